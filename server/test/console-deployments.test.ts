/** Lines of deployments among those of their service, in the console's log: their position, and which are shown. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Line } from '../../console/src/api/log-line.ts'
import { createLineList, everything } from '../../console/src/ui/log-lines.ts'
import { inOrder, merged, overlapping, type Span } from '../../console/src/ui/log-merge.ts'
import { createLogStore } from '../../console/src/ui/log-store.ts'
import { until } from './support/until.ts'

const always: Span = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY }

/** `a5`: printed by the service at 5; `12:5`: of deployment 12. The rest distinguishes lines of the same time. */
const lineOf = (id: string): Line => {
  const [, deployment, at] = /^(?:(\d+):|[a-z])(\d+)/.exec(id)!
  const isOf = deployment !== undefined
  const from = isOf ? `Deployment #${deployment}` : id[0]!
  const text = id.endsWith('!') ? 'it failed' : 'a line'
  return {
    id,
    at: Number(at),
    text,
    isError: id.endsWith('!'),
    from,
    ...(isOf ? { deployment: Number(deployment) } : {}),
  }
}
const linesOf = (ids: string): Line[] =>
  ids
    .split(' ')
    .filter((id) => id !== '')
    .map(lineOf)
const listOf = (lines: readonly Line[]) => {
  const list = createLineList()
  list.push(lines)
  return list
}
const idsOf = ({ count, lineAt }: { count: number; lineAt(index: number): Line }): string =>
  Array.from({ length: count }, (_, index) => lineAt(index).id).join(' ')

for (const [what, service, deployments, wanted] of [
  ['none of a deployment', 'a1 a2', '', 'a1 a2'],
  ['none of the service', '', '1:1 1:2', '1:1 1:2'],
  ['before, between and after', 'a2 a4', '1:1 1:3 1:5', '1:1 a2 1:3 a4 1:5'],
  ['several in one place', 'a1 a9', '1:3 1:4 1:5', 'a1 1:3 1:4 1:5 a9'],
  ['at one time: what was done first, then what was printed', 'a2x a2y', '1:2x 1:2y', '1:2x 1:2y a2x a2y'],
  ['at one time, of two deployments that were read in the other order', 'a2', '12:2x 12:2y 9:2', '9:2 12:2x 12:2y a2'],
  ['deployments at once', 'a2 a5', '2:1 2:4 1:3 1:6', '2:1 a2 1:3 2:4 a5 1:6'],
  ['instances whose lines arrived late keep their order', 'a5 b3 a6', '1:4 1:6', '1:4 a5 b3 1:6 a6'],
] as const)
  test(`lines of deployments are sorted in by time: ${what}`, () => {
    const others = inOrder(linesOf(deployments), always)
    assert.equal(idsOf(merged(listOf(linesOf(service)), listOf(others))), wanted)
  })

test('each line appears once, and those of a deployment after all older ones', () => {
  for (let seed = 1; seed < 200; seed += 1) {
    const random = (below: number): number => (Math.imul(seed, 2654435761 + below) >>> 7) % below
    const service = Array.from({ length: random(60) }, (_, index) => lineOf(`a${Math.floor((index * random(9)) / 3)}`))
    const some = Array.from({ length: random(50) }, (_, index) =>
      lineOf(`${index % 3}:${(index * random(13)) % 40}x${index}`),
    )
    const whole = merged(listOf(service), listOf(inOrder(some, always)))
    const all = [...inOrder(some, always), ...service].map((line, order) => ({ line, order }))
    const wanted = all.sort((a, b) => a.line.at - b.line.at || a.order - b.order).map(({ line }) => line.id)
    assert.equal(idsOf(whole), wanted.join(' '))
    assert.equal(whole.total, service.length + some.length)
  }
})

const span = (fromMs: number, toMs: number): Span => ({ fromMs, toMs })
const running = Number.POSITIVE_INFINITY
/** Newest first, as the history has them. */
const executions = [
  { id: '4', ...span(80, running) },
  { id: '3', ...span(50, 60) },
  { id: '2', ...span(30, 40) },
  { id: '1', ...span(10, 20) },
]
for (const [what, loaded, most, wanted] of [
  ['live', span(35, running), 5, '4 3 2'],
  ['the newest few', span(0, running), 2, '4 3'],
  ['a time in between', span(40, 50), 5, '3 2'],
  ['a time in which nothing was deployed', span(41, 49), 5, ''],
  ['what goes on has no end', span(1000, 2000), 5, '4'],
  ['nothing was printed', null, 5, '4'],
] as const)
  test(`only deployments of the time that is loaded are read: ${what}`, () => {
    const found = overlapping(executions, loaded, most)
    assert.equal(found.map(({ id }) => id).join(' '), wanted)
  })

test('the deployment of a linked line is read, however many are newer', () => {
  for (const [id, most, wanted] of [
    ['1', 2, '4 1'],
    ['4', 2, '4 3'],
    ['1', 5, '4 3 2 1'],
    ['gone', 2, '4 3'],
  ] as const) {
    const found = overlapping(executions, span(0, running), most, id)
    assert.equal(found.map((each) => each.id).join(' '), wanted)
  }
})

const opened = async (ids: string) => {
  const log = createLogStore()
  log.add(linesOf(ids))
  await until(() => log.lines().total > 0, { what: 'the lines' })
  return log
}
const shown = (log: ReturnType<typeof createLogStore>): string => idsOf(log.lines())

test('search, level and instances find lines of deployments too; without them the log is unchanged', async () => {
  const log = await opened('a2 b4 a6!')
  log.place(linesOf('1:3 1:5! 1:1'))
  assert.equal(shown(log), '1:1 a2 1:3 b4 1:5! a6!')
  for (const [filter, wanted] of [
    [{ level: 'error' }, '1:5! a6!'],
    [{ text: 'failed' }, '1:5! a6!'],
    [{ from: 'b' }, '1:1 1:3 b4 1:5!'],
    [{ text: 'nowhere' }, ''],
    [{}, '1:1 a2 1:3 b4 1:5! a6!'],
  ] as const) {
    log.filter({ ...everything, ...filter })
    assert.equal(shown(log), wanted)
  }
  log.filter({ ...everything, level: 'error' })
  log.place(linesOf('1:3 1:5! 1:7!'))
  assert.equal(shown(log), '1:5! a6! 1:7!')
  log.place([])
  log.filter(everything)
  assert.equal(shown(log), 'a2 b4 a6!')
  assert.deepEqual(log.names, ['a', 'b'])
  log.close()
})

test('while a log is paused, new lines of a deployment are counted and shown when it resumes; a past time has its own lines', async () => {
  const log = await opened('a2 a6')
  assert.deepEqual(log.loaded(), span(2, running))
  log.place(linesOf('1:1 1:4'))
  log.hold()
  log.place(linesOf('1:1 1:4 1:7 1:8'))
  assert.deepEqual([shown(log), log.late, log.loaded()], ['1:1 a2 1:4 a6', 2, span(2, 6)])
  log.prepend(linesOf('a0'))
  assert.deepEqual([shown(log), log.late, log.loaded()], ['a0 1:1 a2 1:4 a6', 2, span(0, 6)])
  log.release()
  assert.deepEqual([shown(log), log.late], ['1:1 a2 1:4 a6 1:7 1:8', 0])
  log.show(linesOf('a3'), span(2, 4))
  assert.deepEqual([shown(log), log.late, log.loaded()], ['a3 1:4', 0, span(2, 4)])
  log.release()
  log.pin(true)
  log.add(Array.from({ length: 50_000 }, (_, index) => lineOf(`a${10 + index}`)))
  await until(() => log.isHeld, { what: 'the log to be held' })
  log.place(linesOf('1:1 1:4 1:7 1:8 1:9'))
  assert.equal(shown(log), '1:1 a2 1:4 a6 1:7 1:8')
  log.close()
})
