/**
 * console/build.ts <folder> <key>: builds the console into a folder, which appears whole, with each file also compressed.
 * The key says of which sources it is (bin/ready.sh).
 */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import react from '@vitejs/plugin-react'
import { build, type Plugin } from 'vite'

const home = fileURLToPath(new URL('.', import.meta.url))
const [, , folder, key = ''] = process.argv
if (folder === undefined) throw new Error('which folder?')
const place = resolve(folder)
const half = join(dirname(place), `.dist-${process.pid}`)
const old = `${half}-old`

interface Schema {
  $ref?: string
  [name: string]: unknown
}

interface Operation {
  operationId?: string
  requestBody?: { content: Record<string, { schema: Schema }> }
}

interface Description {
  components: { schemas: Record<string, Schema> }
  paths: Record<string, Record<string, Operation>>
}

const forms = [
  ...['Application', 'Container', 'Database', 'Job', 'Helm', 'Terraform', 'ArgocdApp'].map(
    (name) => `${name}EditRequest`,
  ),
  ...['Environment', 'Organization', 'Project'].map((name) => `${name}EditRequest`),
]
const advanced = ['Application', 'Container', 'Job', 'Helm', 'Terraform'].map((name) => `${name}AdvancedSettings`)
/** Modules that pages import, with the names of the schemas that they have. */
const modules: Record<string, readonly string[]> = { 'virtual:forms': forms, 'virtual:advanced': advanced }

/** The schemas of the bodies that forms are made from, complete in themselves: the whole description is a megabyte. */
const readForms = (names: readonly string[]): Record<string, unknown> => {
  const text = readFileSync(new URL('../openapi.json', import.meta.url), 'utf8')
  const { components, paths } = JSON.parse(text) as Description
  const { schemas } = components
  const operations = Object.values(paths).flatMap((path) => Object.values(path))
  const whole = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(whole)
    if (typeof value !== 'object' || value === null) return value
    const { $ref: named } = value as Schema
    if (named !== undefined) return whole(schemas[named.slice(named.lastIndexOf('/') + 1)])
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, whole(each)]))
  }
  const kindOf = (name: string): string => {
    const kind = name.replace(/(EditRequest|AdvancedSettings)$/, '')
    return kind.charAt(0).toLowerCase() + kind.slice(1)
  }
  /** One that only its operation uses has no name. */
  const bodyOf = (name: string): Schema => {
    const id = `edit${name.replace(/EditRequest$/, '')}`
    const operation = operations.find(({ operationId }) => operationId === id)
    const found = schemas[name] ?? operation?.requestBody?.content['application/json']?.schema
    if (found === undefined) throw new Error(`openapi.json has no schema ${name}`)
    return found
  }
  return Object.fromEntries(names.map((name) => [kindOf(name), whole(bodyOf(name))]))
}

const formsPlugin: Plugin = {
  name: 'forms',
  resolveId: (id) => (Object.hasOwn(modules, id) ? `\0${id}` : null),
  load(id) {
    const names = modules[id.replace('\0', '')]
    return names === undefined ? null : `export const forms = ${JSON.stringify(readForms(names))}`
  },
}

const compressible = /\.(js|css|html|svg)$/

const compress = (within: string): void => {
  for (const name of readdirSync(within).filter((each) => compressible.test(each))) {
    const bytes = readFileSync(join(within, name))
    const options = {
      params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length },
    }
    writeFileSync(join(within, `${name}.br`), brotliCompressSync(bytes, options))
    writeFileSync(join(within, `${name}.gz`), gzipSync(bytes, { level: 9 }))
  }
}

try {
  await build({
    root: home,
    configFile: false,
    logLevel: 'warn',
    plugins: [react(), formsPlugin],
    build: {
      outDir: half,
      emptyOutDir: true,
      assetsDir: 'assets',
      // The policy of the page allows no inline content.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
      target: 'es2023',
      manifest: true,
      cssCodeSplit: false,
    },
  })
  compress(half)
  compress(join(half, 'assets'))
  writeFileSync(join(half, 'built-from'), key)
  mkdirSync(dirname(place), { recursive: true })
  try {
    renameSync(place, old)
  } catch {
    // The first build.
  }
  renameSync(half, place)
} finally {
  for (const each of [half, old]) rmSync(each, { recursive: true, force: true })
}
