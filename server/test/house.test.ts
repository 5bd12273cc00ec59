/**
 * The rules of the house (ARCHITECTURE.md), each shown to fail for a small bad example before it is applied to our
 * files.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import test from 'node:test'
import { strangeIn } from './support/plain-words.ts'
import {
  codeOnly,
  functionSizes,
  importsOf,
  readSources,
  type SourceFile,
  stringsOf,
  withoutComments,
} from './support/source-code.ts'

const root = new URL('../../', import.meta.url).pathname
const sources = readSources(root, ['server/src', 'server/test'])

const isTest = ({ path }: SourceFile): boolean => path.startsWith('server/test/') || path.endsWith('.test.ts')

const isProgram = ({ path }: SourceFile): boolean => path.startsWith('server/src/') && !isTest({ path, text: '' })

type Rule = (file: SourceFile) => string[]

const bad = (path: string, ...lines: string[]): SourceFile => ({ path, text: `${lines.join('\n')}\n` })

/** One test that the rule refuses each bad example, lets the good one pass, and holds for all our files. */
const hold = (guarantee: string, rule: Rule, examples: { bad: SourceFile[]; good: SourceFile[] }): void => {
  test(guarantee, () => {
    for (const file of examples.bad) assert.notDeepEqual(rule(file), [], `not noticed: ${file.text}`)
    for (const file of examples.good) assert.deepEqual(rule(file), [])
    assert.deepEqual(sources.flatMap(rule), [])
  })
}

const ranks = [
  ['main'],
  ['programs'],
  ['wiring'],
  ['doctor'],
  ['settings'],
  ['resources'],
  ['environments'],
  ['facets'],
  ['streams'],
  ['api'],
  ['backups'],
  ['deployments'],
  ['clusters'],
  ['runtimes', 'certificates'],
  ['builds', 'variables', 'webhooks', 'router', 'limits'],
  ['images'],
  ['work'],
  ['store'],
  ['lib', 'kinds'],
]

/** The part of the chain a file belongs to: its folder; the files of the top folder are `main` and `kinds`. */
const partOf = (path: string): string => path.slice('server/src/'.length).split('/')[0]!.replace(/\.ts$/, '')

const rankOf = (part: string): number => ranks.findIndex((parts) => parts.includes(part))

const judgeImport = (from: string, to: string): string | null => {
  if (!to.startsWith('server/src/')) return `${from} imports ${to}, which is not part of the server`
  const [left, right] = [partOf(from), partOf(to)]
  if (rankOf(left) < 0) return `${from}: the folder ${left} has no place in the chain of imports`
  if (left === right || rankOf(left) < rankOf(right)) return null
  return `${from} imports ${to}: ${left} must not know ${right}`
}

const resolveImport = (path: string, from: string): string => posix.join(posix.dirname(path), from)

hold(
  'imports point one way, and folders of the same rank do not import each other',
  (file) =>
    isProgram(file)
      ? importsOf(file.text)
          .filter(({ from }) => from.startsWith('.'))
          .map(({ from }) => judgeImport(file.path, resolveImport(file.path, from)))
          .filter((problem) => problem !== null)
      : [],
  {
    bad: [
      bad('server/src/store/tree.ts', "import { x } from '../api/server.ts'"),
      bad('server/src/builds/git.ts', "import type { X } from '../runtimes/runtime.ts'"),
      bad('server/src/lib/log.ts', "export { x } from '../store/database.ts'"),
      bad('server/src/api/server.ts', "const x = await import('../wiring/app.ts')"),
      bad('server/src/helpful/x.ts', "import { x } from '../lib/log.ts'"),
      bad('server/src/lib/log.ts', "import { until } from '../../test/until.ts'"),
      bad('server/src/kinds.ts', "import { x } from './lib/log.ts'"),
    ],
    good: [bad('server/src/api/server.ts', "import { x } from '../store/tree.ts'", "import { y } from './auth.ts'")],
  },
)

const pureNames = ['describe.ts', 'resolve.ts', 'states.ts', 'stages.ts', 'plan.ts', 'version-change.ts']

hold(
  'pure files import types, lib and the table of kinds only',
  (file) =>
    isProgram(file) && pureNames.includes(posix.basename(file.path))
      ? importsOf(file.text)
          // Hashing has no effect; the rest of node:crypto uses random numbers.
          .filter(({ from, names }) => from !== 'node:crypto' || !/^\{ create(Hash|Hmac) \}$/.test(names))
          .filter(({ from, isTypeOnly }) => !isTypeOnly && !/^(\.\.\/)+(lib\/|kinds\.ts$)/.test(from))
          .filter(({ from }) => !pureNames.includes(posix.basename(from)))
          .map(({ from }) => `${file.path} imports ${from}`)
      : [],
  {
    bad: [
      bad('server/src/deployments/states.ts', "import { readFileSync } from 'node:fs'"),
      bad('server/src/deployments/plan.ts', "import { createHash, randomBytes } from 'node:crypto'"),
      bad('server/src/variables/resolve.ts', "import { type Row, load } from './rows.ts'"),
    ],
    good: [bad('server/src/deployments/plan.ts', "import type { A } from './a.ts'", "import { b } from '../lib/b.ts'")],
  },
)

const shells: [RegExp, string][] = [
  [/\bexecSync\s*\(/, 'execSync takes a string for a shell'],
  [/\bshell:\s*(?!false\b)\S/, 'an option asks for a shell'],
  [/\b(?:spawn|exec|execFile)(?:Sync)?\(\s*['"`](?:\/bin\/)?(?:ba|da)?sh['"`]/, 'a shell is started'],
]

hold(
  'no program is started through a shell',
  (file) => {
    if (!isProgram(file)) return []
    const code = withoutComments(file.text)
    const found = shells.filter(([pattern]) => pattern.test(code)).map(([, reason]) => `${file.path}: ${reason}`)
    const imported = importsOf(file.text).filter(({ from }) => /^(node:)?child_process$/.test(from))
    return imported.some(({ names }) => /\bexec(Sync)?\b/.test(names))
      ? [...found, `${file.path} imports exec of child_process`]
      : found
  },
  {
    bad: [
      bad('server/src/x.ts', "import { exec } from 'node:child_process'"),
      bad('server/src/x.ts', "spawn('git', args, { shell: true })"),
      bad('server/src/x.ts', "spawn('sh', ['-c', text])"),
      bad('server/src/x.ts', 'child.execSync(`ls`)'),
    ],
    good: [bad('server/src/x.ts', "import { spawn } from 'node:child_process'", "spawn('git', [], { shell: false })")],
  },
)

const emptyNames = ['utils', 'helpers', 'common', 'services', 'controllers', 'models', 'types']

hold(
  'no folder has a meaningless name',
  ({ path }) =>
    posix
      .dirname(path)
      .split('/')
      .filter((folder) => emptyNames.includes(folder))
      .map((folder) => `${path}: ${folder}`),
  { bad: [bad('server/src/api/utils/x.ts')], good: [bad('server/src/api/x.ts')] },
)

hold(
  'no file is longer than 500 lines',
  ({ path, text }) => {
    const lines = text.split('\n').length - 1
    return lines > 500 ? [`${path} has ${lines} lines`] : []
  },
  { bad: [bad('server/src/x.ts', ...Array(501).fill('x'))], good: [bad('server/src/x.ts', ...Array(500).fill('x'))] },
)

hold(
  'no function is longer than 120 lines',
  (file) =>
    isProgram(file)
      ? functionSizes(file.text)
          .filter(({ lines }) => lines > 120)
          .map(({ line, lines }) => `${file.path}:${line} has ${lines} lines`)
      : [],
  {
    bad: [
      bad('server/src/x.ts', 'const x = () => {', ...Array(120).fill('"}"'), '}'),
      bad('server/src/x.ts', 'const o = {', 'f(a: string): Promise<{ b: 1 }> {', ...Array(120).fill('// }'), '}', '}'),
    ],
    good: [bad('server/src/x.ts', 'const x = () => {', '}', 'const o = {', ...Array(130).fill('a,'), '}')],
  },
)

test('nine in ten functions have at most 40 lines', () => {
  const longest = (files: SourceFile[]): number => {
    const sizes = files.flatMap(({ text }) => functionSizes(text).map(({ lines }) => lines)).sort((a, b) => a - b)
    return sizes[Math.ceil(sizes.length * 0.9) - 1] ?? 0
  }
  assert.equal(longest([bad('x.ts', 'function x(a = {}) {', ...Array(39).fill('if (a) { b() }'), '}')]), 41)
  assert.ok(longest(sources.filter(isProgram)) <= 40)
})

hold(
  'the server writes to its log; only its programs print',
  (file) =>
    isProgram(file) && !file.path.startsWith('server/src/programs/') && /\bconsole\./.test(codeOnly(file.text))
      ? [`${file.path} uses console`]
      : [],
  {
    bad: [bad('server/src/api/x.ts', "console.log('x')")],
    good: [
      bad('server/src/api/x.ts', '// console.log', "const x = 'console.log()'"),
      bad('server/src/programs/x.ts', "console.log('x')"),
    ],
  },
)

/** Each guards one operation or one connection, and ends with it; the router is a separate process. */
const intervals = ['builds/engine/disk-reserve.ts', 'builds/git/mirror-room.ts', 'streams/sink.ts']

hold(
  'repeated work is a loop of work/, which has a name, a backoff and an end',
  (file) =>
    isProgram(file) &&
    /\bsetInterval\(/.test(codeOnly(file.text)) &&
    !intervals.some((path) => file.path.endsWith(path))
      ? [`${file.path} has an interval of its own`]
      : [],
  {
    bad: [bad('server/src/api/x.ts', 'const timer = setInterval(sweep, 1000)')],
    good: [bad('server/src/streams/sink.ts', 'const timer = setInterval(ping, 1000)')],
  },
)

const sleeps: RegExp[] = [
  /new Promise\b[^;]{0,120}?\bsetTimeout\(/,
  /\bAtomics\.wait\(/,
  /\bsystemClock\.sleep\(/,
  /\bawait\s+(?:delay|sleep|pause)\(/,
]

hold(
  'no test sleeps: it waits with until',
  (file) => {
    if (!isTest(file) || file.path === 'server/test/support/until.ts') return []
    const code = codeOnly(file.text)
    const timers = importsOf(file.text).some(({ from }) => from === 'node:timers/promises')
    return timers || sleeps.some((pattern) => pattern.test(code)) ? [`${file.path} sleeps`] : []
  },
  {
    bad: [
      bad('server/src/x.test.ts', 'await new Promise((resolve) => setTimeout(resolve, 50))'),
      bad('server/src/x.test.ts', "import { setTimeout as wait } from 'node:timers/promises'"),
    ],
    good: [bad('server/src/x.test.ts', "await until(() => done, { what: 'it' })")],
  },
)

hold(
  'what users read is plain English',
  (file) =>
    isProgram(file)
      ? stringsOf(file.text)
          .filter((found) => found.includes(' '))
          .flatMap((found) => strangeIn(file.path, found))
      : [],
  {
    bad: [
      bad('server/src/x.ts', "throw invalidField('/branch', 'is no valid branch name')"),
      bad('server/src/x.ts', 'const text = `The key ${key} stands in the file.`'),
      bad('server/src/x.ts', "const summary = 'Change a role; holds from the next request on'"),
      bad('server/src/x.ts', "log.info('the run was cancelled')"),
    ],
    good: [
      bad('server/src/x.ts', "throw invalidField('/cluster', 'is required because there is no default cluster')"),
      bad('server/src/x.ts', "// It stands in the file, for it is no secret.\nconst text = 'It is no longer used.'"),
    ],
  },
)

test('what users read in the guides is plain English', () => {
  const pages = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'ARCHITECTURE.md']
  const guides = readdirSync(join(root, 'docs/guides')).map((name) => `docs/guides/${name}`)
  const lines = (text: string): string[] => text.split('\n')
  assert.notDeepEqual(
    lines('Fine.\nIt is no valid name.').flatMap((line) => strangeIn('x.md', line)),
    [],
  )
  const found = [...pages, ...guides].flatMap((path) =>
    lines(readFileSync(join(root, path), 'utf8')).flatMap((line) => strangeIn(path, line)),
  )
  assert.deepEqual(found, [])
})

test('every source file that the documents name is there', () => {
  const paths = readSources(root, ['bin', 'console', 'server']).map(({ path }) => path)
  const isThere = (name: string): boolean => paths.some((path) => `/${path}`.endsWith(`/${name}`))
  const folders = ['docs/decisions', 'docs/guides'].flatMap((folder) =>
    readdirSync(join(root, folder)).map((name) => `${folder}/${name}`),
  )
  const missing = ['ARCHITECTURE.md', 'CONTRIBUTING.md', ...folders].flatMap((path) =>
    [...readFileSync(join(root, path), 'utf8').matchAll(/`([\w./-]+\.tsx?)`/g)]
      .map(([, name]) => name!)
      .filter((name) => !isThere(name))
      .map((name) => `${path}: ${name}`),
  )
  assert.deepEqual(missing, [])
})

/**
 * The text that these files parse or split comes from this server itself: its own rows and responses, its own files and
 * child processes, the operator's settings; or it is signed by it. All other text is untrusted.
 */
const ownTexts: Record<string, readonly string[]> = {
  'rows and answers of this server': [
    'api/operations/resource.ts',
    'api/operations/resource-writes.ts',
    'api/operations/run-operation.ts',
    'deployments/plan/changes.ts',
    'deployments/release/releases.ts',
    'deployments/status/status.ts',
    'deployments/status/step-metrics.ts',
    'programs/key-rotation.ts',
    'programs/sample-start.ts',
    'resources/organization/webhook.ts',
    'resources/project/clone.ts',
    'resources/project/copy-service.ts',
    'resources/project/deployment-rule.ts',
    'resources/project/environment.ts',
    'resources/repositories/git-webhook.ts',
    'resources/terraform/export.ts',
    'webhooks/attempt.ts',
  ],
  'messages between the processes of this server': [
    'clusters/servers.ts',
    'router/control/control.ts',
    'router/control/control-client.ts',
    'router/http/grpc-status.ts',
  ],
  'files of this server and its packages': [
    'api/auth/admin-token.ts',
    'lib/traces.ts',
    'lib/version.ts',
    'router/table/table-file.ts',
    'router/tls/tls-store.ts',
    'runtimes/fake/fake-engine.ts',
    'store/postgres/binaries.ts',
  ],
  'values that this server has just made': ['deployments/traffic/ingress-settings.ts'],
  'cookies that this server has signed': ['api/auth/sign-in-cookies.ts'],
  'the one reader of what others write': ['lib/foreign-text/read-json.ts'],
}

const ownFiles = new Set(Object.values(ownTexts).flat())

const isOwnText = ({ path }: SourceFile): boolean => ownFiles.has(path.slice('server/src/'.length))

hold(
  'untrusted text is parsed in one place, which counts it first (lib/foreign-text)',
  (file) =>
    isProgram(file) && /\bJSON\.parse\(/.test(codeOnly(file.text)) && !isOwnText(file)
      ? [`${file.path} uses JSON.parse: readJson and readLargeJson read what others write`]
      : [],
  {
    bad: [bad('server/src/webhooks/inbound/x.ts', 'const push = JSON.parse(body.toString())')],
    good: [
      bad('server/src/webhooks/inbound/x.ts', 'const push = readJson(text) // not JSON.parse()'),
      bad('server/src/webhooks/attempt.ts', 'const { payload } = JSON.parse(row.body)'),
    ],
  },
)

test('files that are exempt from that parser still parse something', () => {
  const parsing = new Set(sources.filter(({ text }) => /\bJSON\.parse\(/.test(codeOnly(text))).map(({ path }) => path))
  assert.deepEqual(
    [...ownFiles].filter((path) => !parsing.has(`server/src/${path}`)),
    [],
  )
})

/** Folders whose input is untrusted. */
const outside = ['lib', 'webhooks', 'certificates', 'images', 'clusters', 'runtimes', 'deployments/charts'].concat([
  'deployments/git-hosts',
  'deployments/tasks',
  'variables/external',
  'resources/argocd',
  'resources/terraform',
])

/** Files that split short texts into lines: the limit is in the file. */
const shortTexts = [
  'deployments/charts/make-chart.ts',
  'deployments/tasks/tasks.ts',
  'images/engine-images.ts',
  'lib/docker/ssh-tunnel.ts',
  'lib/foreign-text/split-lines.ts',
  'lib/net/name-lookup.ts',
  'lib/system-user.ts',
  'runtimes/docker/hooks.ts',
  'runtimes/docker/network/subnets.ts',
  'runtimes/docker/probes/listeners.ts',
  'runtimes/fake/tasks.ts',
  'runtimes/kubernetes/helm/tool.ts',
]

const splitsLines = /\.split\(\s*(?:'\\n'|"\\n"|\/(?:\\r\?)?\\n\/)/
/** The rest of the last piece of a stream is copied and searched again with each next one. */
const splitsPieces = /\(\s*\w+\s*\+\s*\w+\s*\)\.split\(/

hold(
  'untrusted lines are counted before they are split, and those of a stream are read by readLines',
  (file) => {
    const path = file.path.slice('server/src/'.length)
    const text = withoutComments(file.text)
    const isOutside = outside.some((folder) => path.startsWith(`${folder}/`)) && !shortTexts.includes(path)
    if (!isProgram(file)) return []
    if (isOutside && splitsLines.test(text)) return [`${file.path} splits lines: use splitLines or readLines`]
    return splitsPieces.test(text) && path !== 'deployments/progress/log.ts'
      ? [`${file.path} splits pieces of a stream: use readLines`]
      : []
  },
  {
    bad: [
      bad('server/src/lib/docker/x.ts', "const lines = (rest + chunk).split('\\n')"),
      bad('server/src/builds/x.ts', "const lines = (rest + chunk).split(';')"),
      bad('server/src/deployments/charts/x.ts', 'const lines = text.split(/\\r?\\n/)'),
    ],
    good: [bad('server/src/lib/x.ts', "const parts = name.split('.')", 'const lines = splitLines(text)')],
  },
)

hold(
  'no list is spread into push, which fails for a long one',
  (file) =>
    isProgram(file) && /\.(?:push|unshift)\(\s*(?:[\w.!?[\]]+\s*,\s*)*\.\.\./.test(codeOnly(file.text))
      ? [`${file.path} spreads a list into push: use concat, or a loop`]
      : [],
  {
    bad: [
      bad('server/src/x.ts', 'found.push(...items)'),
      bad('server/src/x.ts', 'found.push(first, ...items.map(recordOf))'),
    ],
    good: [bad('server/src/x.ts', 'found = found.concat(items)', 'found.push({ ...item })')],
  },
)

test('migrations are numbered in sequence', () => {
  const misnumbered = (names: string[]): string[] =>
    names.filter((name, index) => !new RegExp(`^${String(index + 1).padStart(4, '0')}-[a-z0-9-]+\\.sql$`).test(name))
  assert.deepEqual(misnumbered(['0001-a.sql', '0003-b.sql']), ['0003-b.sql'])
  assert.deepEqual(misnumbered(['0001-a.sql', '0001-b.sql']), ['0001-b.sql'])
  assert.deepEqual(misnumbered(readdirSync(join(root, 'server/src/store/migrations')).sort()), [])
})
