/**
 * bin/bundle.ts <folder>: bundles the server of this checkout, its router and their threads into a few files with all
 * packages except the API documentation page, which is loaded on first use. The folder appears complete or not at all.
 * The server is one script, with V8's compiled code (bin/bundled-main.ts).
 */
import { execFileSync } from 'node:child_process'
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BuildOptions, build, type Plugin } from 'esbuild'

const sources = fileURLToPath(new URL('../server/src', import.meta.url))
const [, , folder] = process.argv
if (folder === undefined) throw new Error('which folder?')
const place = resolve(folder)
// Bundles beside it are deleted when they are old: a folder of another name may be anything.
if (!/^bundle-[^.]+$/.test(basename(place)))
  throw new Error(`the folder must be named bundle-…, not ${basename(place)}`)
const half = `${place}.${process.pid}`

/** Files that the server starts as a process or as a thread. */
const programs: Record<string, string> = {
  router: 'router/main.ts',
  'router-worker': 'router/processes/worker.ts',
  'password-thread': 'router/access/password-thread.ts',
  'follow-routes': 'programs/follow-routes.ts',
  'preparation-worker': 'builds/preparation/worker.ts',
  'json-thread': 'lib/foreign-text/json-thread.ts',
  'index-thread': 'deployments/charts/index-thread.ts',
}

const beginsTraces = new Set([...Object.values(programs), 'programs/serve.ts'].map((path) => join(sources, path)))

/** On the existing line, so that line numbers do not change. */
const withTraces = `import { nameSourcesOfUncaught } from '${join(sources, 'lib/traces.ts')}'; nameSourcesOfUncaught(); `

/**
 * Files that a source refers to next to itself are found from the bundle: programs are the bundled ones, everything
 * else stays where it is. Relative, because a checkout may be moved.
 */
const fitPlaces = (path: string, text: string): string => {
  const here = dirname(path)
  const fitted = text
    .replaceAll(/createRequire\(import\.meta\.url\)\(('[^']+')\)/g, 'require($1)')
    .replaceAll(/new URL\('([^']+)', import\.meta\.url\)/g, (_whole, name: string) => {
      const named = resolve(here, name)
      const program = Object.keys(programs).find((each) => named === join(sources, programs[each]!))
      const target =
        program === undefined ? relative(place, named) + (name.endsWith('/') ? '/' : '') : `./${program}.mjs`
      return `new URL(${JSON.stringify(target)}, __place)`
    })
    .replaceAll(
      /createRequire\(import\.meta\.url\)/g,
      `createRequire(new URL(${JSON.stringify(relative(place, path))}, __place))`,
    )
  if (/import\.meta\.(url|dirname|filename)/.test(fitted))
    throw new Error(`${path}: bin/bundle.ts cannot place this import.meta`)
  return fitted
}

const placed: Plugin = {
  name: 'placed',
  setup(step) {
    step.onLoad({ filter: /\.ts$/ }, async ({ path }) => ({
      contents: (beginsTraces.has(path) ? withTraces : '') + fitPlaces(path, await readFile(path, 'utf8')),
      loader: 'ts',
    }))
  },
}

/** With `require`, not all exports of a built-in module are read: `node:http` would load its own client. */
const required: Plugin = {
  name: 'required',
  setup(step) {
    step.onResolve({ filter: /^node:/ }, ({ path, kind }) =>
      kind === 'import-statement' ? { path, namespace: 'required', sideEffects: false } : null,
    )
    step.onLoad({ filter: /./, namespace: 'required' }, ({ path }) => ({
      contents: `module.exports = require('${path}')`,
    }))
  },
}

/** A package in a separate file, which is loaded on first use. */
const apart: Plugin = {
  name: 'apart',
  setup(step) {
    step.onResolve({ filter: /^acme-client$/ }, ({ kind }) =>
      kind === 'dynamic-import' ? { path: './acme-client.cjs', external: true } : null,
    )
  },
}

const common: BuildOptions = {
  outdir: half,
  bundle: true,
  platform: 'node',
  target: 'node24',
  external: ['@scalar/fastify-api-reference', 'ssh2', 'yaml'],
  plugins: [placed],
  sourcemap: 'linked',
  sourcesContent: false,
  // V8 keeps the text of what it runs, twice as large where one character is not ASCII: no spaces and no comments.
  // The licenses of packages stay in node_modules, because a bundle is never distributed.
  minifyWhitespace: true,
  minifySyntax: true,
  // Node shows the line of an uncaught error.
  lineLimit: 200,
  legalComments: 'none',
  logLevel: 'error',
}

/** `require` for packages in CommonJS; `__place` in sources is this file's address, all of them being in one folder. */
const banner = [
  "import { createRequire as __createRequire } from 'node:module';",
  'const require = __createRequire(import.meta.url), __place = import.meta.url;',
].join('')

const bundlePrograms = (): Promise<unknown> =>
  build({
    ...common,
    entryPoints: Object.entries(programs).map(([out, source]) => ({ in: join(sources, source), out })),
    outExtension: { '.js': '.mjs' },
    chunkNames: '[name]-[hash]',
    splitting: true,
    format: 'esm',
    plugins: [placed, required],
    banner: { js: banner },
  })

/**
 * The server's own script is a function that gets the variables of a CommonJS module, and its address. Loading a part
 * of it by `import()` would slow down the rest: modules that are shared with that part are bound later, which V8
 * optimizes less.
 */
const bundleServer = (): Promise<unknown> =>
  build({
    ...common,
    entryPoints: { server: join(sources, 'programs/serve.ts') },
    plugins: [placed, apart],
    outExtension: { '.js': '.cjs' },
    format: 'cjs',
    banner: { js: '(function(require,module,__place){"use strict";var exports=module.exports;' },
    footer: { js: '})' },
  })

const bundleRest = (): Promise<unknown> =>
  build({
    ...common,
    entryPoints: { main: fileURLToPath(new URL('./bundled-main.ts', import.meta.url)), 'acme-client': 'acme-client' },
    absWorkingDir: join(sources, '..'),
    outExtension: { '.js': '.cjs' },
    format: 'cjs',
  })

const bundle = async (): Promise<void> => {
  await Promise.all([bundlePrograms(), bundleServer(), bundleRest()])
  // With our own flags, which are the server's: V8 rejects code that was compiled with others.
  execFileSync(process.execPath, [...process.execArgv, join(half, 'main.cjs'), '--prepare'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
}

/** V8's own caches, named after the version of Node. */
const isCompileCache = /^v\d+\.\d+\.\d+-/

const kept = 4
const hourMs = 3_600_000

/**
 * Deletes all but the newest bundles, of which one may be running, partial ones of killed builds, and V8's compile
 * caches. Nothing else in the same folder.
 */
const removeOld = (): void => {
  const home = dirname(place)
  const all = readdirSync(home).map((name) => ({
    name,
    path: join(home, name),
    at: statSync(join(home, name)).mtimeMs,
  }))
  const whole = all.filter(({ name }) => /^bundle-[^.]+$/.test(name)).sort((a, b) => b.at - a.at)
  const halves = all.filter(({ name, at }) => /^bundle-.+\.\d+$/.test(name) && at < Date.now() - hourMs)
  const compiled = all.filter(({ name }) => isCompileCache.test(name))
  for (const { path } of [...whole.slice(kept), ...halves, ...compiled]) rmSync(path, { recursive: true, force: true })
}

/** After a power failure the folder must not exist without its contents. */
const writeThrough = (path: string): void => {
  const file = openSync(path, 'r')
  fsyncSync(file)
  closeSync(file)
}

try {
  mkdirSync(half, { recursive: true })
  await bundle()
  for (const name of readdirSync(half)) writeThrough(join(half, name))
  renameSync(half, place)
  removeOld()
} catch (error) {
  // Another start may have created the same one at the same time.
  if (!existsSync(join(place, 'main.cjs'))) throw error
} finally {
  rmSync(half, { recursive: true, force: true })
}
