/**
 * The rooms of a folder import one way too, as the top folders do (house.test.ts). A room is a folder in it, or a file of
 * the folder itself. Types count like values: a type is knowledge of the other room as well.
 */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join, posix } from 'node:path'
import test from 'node:test'
import { type Import, importsOf, readSources, type SourceFile } from './support/source-code.ts'

const root = new URL('../../', import.meta.url).pathname
const read = (folder: string): SourceFile[] =>
  readSources(root, [folder]).filter(({ path }) => !/\.test\.ts$/.test(path))
const server = read('server/src')
const webConsole = read('console/src')

/** All files of the folder that have no rank of their own: they are one room. */
const loose = '*.ts'

/** Each rank may import those below it; the rooms of one rank do not know each other (docs/decisions/0080). */
const ranks: Record<string, string[][]> = {
  'console/src': [['main.tsx'], ['router.tsx'], ['pages'], ['templates', 'forms.d.ts'], ['ui'], ['api']],
  'console/src/pages': [
    ['deployment.tsx', 'service'],
    ['create', 'environment', 'organization', loose],
    ['overview.tsx'],
  ],
  'server/src/api': [
    ['server.ts'],
    [loose, 'git-http'],
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
  'server/src/backups': [
    ['self', loose],
    ['tools', 'format', 'places'],
  ],
  'server/src/builds': [
    [loose],
    ['engine', 'pushed'],
    ['mirrors'],
    ['lfs'],
    ['preparation'],
    ['git'],
    ['cache-store.ts'],
    ['builder.ts', 'built-images.ts', 'image-store.ts', 'preparation-limits.ts'],
  ],
  'server/src/certificates': [[loose], ['dns']],
  'server/src/clusters': [[loose], ['lines'], ['local.ts']],
  'server/src/deployments': [
    ['engine.ts'],
    ['adoption'],
    ['reconcile'],
    ['run', 'plan', 'sources'],
    ['scaling', 'compare', 'keeping'],
    ['request'],
    ['artifacts'],
    ['charts', 'tasks'],
    ['images'],
    ['release', 'git-hosts'],
    ['progress', 'credentials'],
    ['status'],
    ['desired'],
    ['parts.ts'],
    ['traffic', 'deployments.ts'],
  ],
  'server/src/facets': [
    [loose],
    ['log-history'],
    ['logs.ts', 'runs', 'domains', 'settings', 'variables'],
    ['log-lines.ts'],
    ['facet.ts', 'logql.ts'],
  ],
  'server/src/lib': [['docker', 'kubernetes'], [loose, 'foreign-text', 'net'], ['concurrency'], ['time']],
  'server/src/resources': [
    ['index.ts'],
    ['argocd', 'backups', 'catalogue', 'helm', 'organization', 'previews'],
    ['repositories'],
    ['terraform'],
    ['project'],
    ['cluster', 'kinds'],
    ['secret-manager', 'service'],
    ['forms.ts', 'references.ts'],
    ['answer-from.ts'],
  ],
  'server/src/router': [
    ['main.ts'],
    ['control'],
    ['processes'],
    ['serving.ts'],
    ['http'],
    ['ports'],
    ['traffic'],
    ['http1'],
    ['tls', 'parked'],
    ['exchange', 'table', 'access', 'routes.ts'],
    ['router.ts', 'shares.ts', 'counts.ts', 'descriptors.ts'],
    ['policy.ts'],
    ['sources.ts'],
  ],
  'server/src/runtimes': [['docker', 'fake', 'kubernetes'], ['blue-green'], [loose]],
  'server/src/store': [[loose], ['keys', 'postgres', 'copy'], ['database.ts'], ['locks.ts']],
  'server/src/variables': [[loose], ['external'], ['resolve.ts']],
  'server/src/webhooks': [['inbound'], [loose]],
}

/** The folders whose rooms a file is in: those with ranks, and each folder below `server/src` that has folders in it. */
const foldersOf = (path: string): string[] => {
  const parts = path.split('/')
  const above = parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'))
  const isTop = (folder: string): boolean => posix.dirname(folder) === 'server/src' && parts.length > 4
  return above.filter((folder) => ranks[folder] !== undefined || isTop(folder))
}

const roomIn = (folder: string, path: string): string => {
  const [first = '', ...more] = path.slice(folder.length + 1).split('/')
  return more.length > 0 || ranks[folder]?.flat().includes(first) === true ? first : loose
}

const rankIn = (folder: string, path: string): number =>
  ranks[folder]?.findIndex((rooms) => rooms.includes(roomIn(folder, path))) ?? -1

const localImports = ({ path, text }: SourceFile, counts: (each: Import) => boolean = () => true): string[] =>
  importsOf(text)
    .filter((each) => each.from.startsWith('.') && counts(each))
    .map(({ from }) => posix.join(posix.dirname(path), from))

const judgeImport = (folder: string, from: string, to: string): string | null => {
  const [left, right] = [roomIn(folder, from), roomIn(folder, to)]
  if (left === right || rankIn(folder, from) < rankIn(folder, to)) return null
  return `${from} imports ${to}: in ${folder}, ${left} must not know ${right}`
}

/** Problems of one file: it has no rank, or it imports something that is not below it. */
const judge = (file: SourceFile): string[] =>
  foldersOf(file.path).flatMap((folder) => {
    if (rankIn(folder, file.path) < 0) return [`${file.path}: ${roomIn(folder, file.path)} has no rank in ${folder}`]
    return localImports(file)
      .filter((to) => to.startsWith(`${folder}/`) && /\.tsx?$/.test(to))
      .map((to) => judgeImport(folder, file.path, to))
      .filter((problem) => problem !== null)
  })

const file = (path: string, ...lines: string[]): SourceFile => ({ path, text: `${lines.join('\n')}\n` })

test('the rooms of a folder import one way', () => {
  const bad = [
    file('server/src/lib/time/clock.ts', "import { x } from '../concurrency/semaphore.ts'"),
    file('server/src/lib/time/clock.ts', "import type { X } from '../concurrency/semaphore.ts'"),
    file('server/src/lib/docker/x.ts', "export { x } from '../kubernetes/watch.ts'"),
    file('server/src/lib/net/x.ts', "const x = await import('../log.ts')"),
    file('server/src/clusters/local.ts', "import { x } from './clusters.ts'"),
    file('server/src/lib/helpful/x.ts', 'export const x = 1'),
    file('server/src/work/helpful/x.ts', 'export const x = 1'),
    file('console/src/api/x.ts', "import type { X } from '../ui/state.tsx'"),
    file('console/src/pages/overview.tsx', "import { x } from './environment/services.tsx'"),
  ]
  const good = [
    file('server/src/lib/docker/x.ts', "import { x } from '../net/outbound.ts'", "import { y } from './tls.ts'"),
    file('server/src/clusters/clusters.ts', "import { x } from './local.ts'", "import { y } from './capacity.ts'"),
    file('server/src/work/loop.ts', "import { x } from './lease.ts'"),
    file('console/src/ui/x.tsx', "import { x } from '../api/client.ts'", "import icon from '../icon.svg'"),
  ]
  for (const each of bad) assert.notDeepEqual(judge(each), [], `not noticed: ${each.path} ${each.text}`)
  for (const each of good) assert.deepEqual(judge(each), [])
  assert.deepEqual([...server, ...webConsole].flatMap(judge), [])
})

test('every room that has a rank exists', () => {
  const missing = Object.entries(ranks).flatMap(([folder, rooms]) =>
    rooms
      .flat()
      .filter((room) => room !== loose && !existsSync(join(root, folder, room)))
      .map((room) => `${folder}/${room}`),
  )
  assert.deepEqual(missing, [])
})

/** What is left when all files are taken away that import none of the others, or that none of the others imports. */
const inCircles = (files: readonly SourceFile[], counts?: (each: Import) => boolean): string[] => {
  let left = new Map(files.map((each) => [each.path, localImports(each, counts)]))
  for (;;) {
    const imported = new Set([...left.values()].flat())
    const next = [...left].filter(([path, to]) => imported.has(path) && to.some((each) => left.has(each)))
    if (next.length === left.size) return [...left.keys()]
    left = new Map(next)
  }
}

test('no files import each other in a circle; in the console not even types', () => {
  const circle = [
    file('a/x.tsx', "import type { Y } from './y.ts'"),
    file('a/y.ts', "import { z } from '../z.ts'"),
    file('z.ts', "const x = await import('./a/x.tsx')"),
  ]
  const others = [file('before.ts', "import './z.ts'"), file('a/behind.ts', '')]
  assert.deepEqual(inCircles([...others, ...circle]), ['a/x.tsx', 'a/y.ts', 'z.ts'])
  const isValue = ({ isTypeOnly }: Import): boolean => !isTypeOnly
  assert.deepEqual(inCircles([...others, ...circle], isValue), [])
  assert.deepEqual(inCircles(server, isValue), [])
  assert.deepEqual(inCircles(webConsole), [])
})
