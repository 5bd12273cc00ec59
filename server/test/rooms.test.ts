/**
 * The rooms of a top folder import one way too, as the top folders do (house.test.ts). A room is a folder, or a file of
 * the top folder itself. Types count like values: a type is knowledge of the other room as well.
 */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join, posix } from 'node:path'
import test from 'node:test'
import { importsOf, readSources, type SourceFile } from './support/source-code.ts'

const root = new URL('../../', import.meta.url).pathname
const base = 'server/src/'
const sources = readSources(root, [base]).filter(({ path }) => !path.endsWith('.test.ts'))

/** All files of the top folder that have no rank of their own: they are one room. */
const loose = '*.ts'

/** Each rank may import those below it; the rooms of one rank do not know each other (docs/decisions/0080). */
const ranks: Record<string, string[][]> = {
  api: [
    ['server.ts'],
    [loose, 'git-door'],
    ['answer-error.ts'],
    ['console', 'operations'],
    ['auth'],
    [
      'parts.ts',
      'answerer.ts',
      'cors.ts',
      'documents.ts',
      'discard-body.ts',
      'idempotency.ts',
      'rate-limit.ts',
      'throttle.ts',
    ],
    ['streams.ts', 'accept.ts'],
  ],
  builds: [
    [loose],
    ['engine', 'pushed'],
    ['mirrors'],
    ['lfs'],
    ['preparation'],
    ['git'],
    ['cache-store.ts'],
    ['builder.ts', 'built-images.ts', 'image-store.ts', 'preparation-limits.ts'],
  ],
  certificates: [[loose], ['dns']],
  clusters: [[loose], ['lines'], ['local.ts']],
  deployments: [
    ['engine.ts'],
    ['adoption'],
    ['reconcile'],
    ['run', 'plan', 'pushes'],
    ['charts', 'tasks', 'scaling'],
    ['images'],
    ['release', 'request', 'git-hosts'],
    ['progress', 'credentials'],
    ['status'],
    ['desired'],
    ['parts.ts'],
    ['traffic', 'deployments.ts'],
  ],
  facets: [
    [loose],
    ['log-history'],
    ['logs.ts', 'runs', 'domains', 'settings', 'variables'],
    ['log-lines.ts'],
    ['self.ts', 'logql.ts'],
  ],
  lib: [['docker', 'kubernetes'], [loose, 'foreign-text', 'net'], ['concurrency'], ['time']],
  resources: [
    ['index.ts'],
    ['argocd', 'catalogue', 'helm', 'organization', 'previews'],
    ['repositories'],
    ['terraform'],
    ['project'],
    ['cluster', 'kinds'],
    ['secret-manager', 'service'],
    ['forms.ts', 'references.ts'],
  ],
  router: [
    ['main.ts'],
    ['control'],
    ['processes'],
    ['serving.ts'],
    ['http'],
    ['ports'],
    ['traffic'],
    ['http1'],
    ['tls', 'hold'],
    ['exchange', 'table', 'access', 'routes.ts'],
    ['router.ts', 'shares.ts', 'counts.ts', 'descriptors.ts'],
    ['policy.ts'],
    ['sources.ts'],
  ],
  runtimes: [['docker', 'fake', 'kubernetes'], ['blue-green'], [loose]],
  store: [[loose], ['keys', 'postgres'], ['database.ts'], ['locks.ts']],
  variables: [[loose], ['external'], ['resolve.ts']],
  webhooks: [['inbound'], [loose]],
}

const topOf = (path: string): string => path.slice(base.length).split('/')[0]!

const roomOf = (path: string): string => {
  const [top, first, second] = path.slice(base.length).split('/')
  if (second !== undefined) return first!
  return ranks[top!]?.flat().includes(first!) === true ? first! : loose
}

const rankOf = (path: string): number => ranks[topOf(path)]?.findIndex((rooms) => rooms.includes(roomOf(path))) ?? -1

const judgeImport = (from: string, to: string): string | null => {
  const [left, right] = [roomOf(from), roomOf(to)]
  if (left === right || rankOf(from) < rankOf(to)) return null
  return `${from} imports ${to}: in ${topOf(from)}/, ${left} must not know ${right}`
}

/** Problems of one file: it has no rank, or it imports something that is not below it. */
const judge = ({ path, text }: SourceFile): string[] => {
  const isFlat = ranks[topOf(path)] === undefined && roomOf(path) === loose
  if (isFlat) return []
  if (rankOf(path) < 0) return [`${path}: ${roomOf(path)} has no rank in ${topOf(path)}/`]
  return importsOf(text)
    .filter(({ from }) => from.startsWith('.'))
    .map(({ from }) => posix.join(posix.dirname(path), from))
    .filter((to) => to.startsWith(`${base}${topOf(path)}/`))
    .map((to) => judgeImport(path, to))
    .filter((problem) => problem !== null)
}

const file = (path: string, ...lines: string[]): SourceFile => ({
  path: `${base}${path}`,
  text: `${lines.join('\n')}\n`,
})

test('the rooms of a top folder import one way', () => {
  const bad = [
    file('lib/time/clock.ts', "import { x } from '../concurrency/semaphore.ts'"),
    file('lib/time/clock.ts', "import type { X } from '../concurrency/semaphore.ts'"),
    file('lib/docker/x.ts', "export { x } from '../kubernetes/watch.ts'"),
    file('lib/net/x.ts', "const x = await import('../log.ts')"),
    file('clusters/local.ts', "import { x } from './clusters.ts'"),
    file('lib/helpful/x.ts', 'export const x = 1'),
    file('work/helpful/x.ts', 'export const x = 1'),
  ]
  const good = [
    file('lib/docker/x.ts', "import { x } from '../net/outbound.ts'", "import { y } from './registry-session.ts'"),
    file('clusters/clusters.ts', "import { x } from './local.ts'", "import { y } from './capacity.ts'"),
    file('work/loop.ts', "import { x } from './lease.ts'"),
  ]
  for (const each of bad) assert.notDeepEqual(judge(each), [], `not noticed: ${each.text}`)
  for (const each of good) assert.deepEqual(judge(each), [])
  assert.deepEqual(sources.flatMap(judge), [])
})

test('every room that has a rank exists', () => {
  const missing = Object.entries(ranks).flatMap(([top, rooms]) =>
    rooms.flat().filter((room) => room !== loose && !existsSync(join(root, base, top, room))),
  )
  assert.deepEqual(missing, [])
})
