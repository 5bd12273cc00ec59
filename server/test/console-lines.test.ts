/**
 * Parts of the console that need no browser: the lines of a log, and the queries that are read again after a change.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { QueryClient, QueryObserver } from '@tanstack/react-query'
import { type Change, concerns } from '../../console/src/api/changes.ts'
import type { Line } from '../../console/src/api/log-line.ts'
import { createRefresher } from '../../console/src/api/refresh.ts'
import { spansOf } from '../../console/src/ui/ansi.ts'
import { createLineList, everything, type Filter } from '../../console/src/ui/log-lines.ts'
import { createLogStore } from '../../console/src/ui/log-store.ts'
import { until } from './support/until.ts'

const lineOf = (number: number): Line => ({
  id: String(number),
  at: number,
  text: number % 7 === 0 ? `\u001b[31mLine\u001b[0m ${number}` : `line ${number}`,
  isError: number % 10 === 0,
  from: `instance-${number % 3}`,
})
const linesFrom = (first: number, count: number): Line[] => Array.from({ length: count }, (_, at) => lineOf(first + at))

const shown = (list: ReturnType<typeof createLineList>): string[] =>
  Array.from({ length: list.count }, (_, index) => list.lineAt(index).id)

const lookThrough = (list: ReturnType<typeof createLineList>): number => {
  let looks = 1
  while (!list.look(0)) looks += 1
  return looks
}

const esc = '\u001b'

for (const [what, line, wanted] of [
  ['colors', `${esc}[31mred${esc}[0m plain ${esc}[1;92mbold`, ['a31:red', ': plain ', 'a1 a32:bold']],
  ['a color that does not change', `${esc}[31mre${esc}[31md`, ['a31:red']],
  ['a title, and moves of the cursor', `${esc}]0;title\u0007a${esc}[2Jb${esc}[10;5Hc`, [':abc']],
  ['a link', `${esc}]8;;javascript:alert(1)${esc}\\here${esc}]8;;${esc}\\!`, [':here!']],
  ['a sequence that never ends', `a${esc}]8;;https://evil.example`, [':a']],
  ['controls of one byte', 'a\u0000\u0008\u009b31mb\u007f\r', [':a31mb']],
  ['markup', '<b>&amp;</b>', [':<b>&amp;</b>']],
] as const)
  test(`only text and colors of a log line are kept: ${what}`, () => {
    assert.deepEqual(
      spansOf(line).map(({ text, className }) => `${className}:${text}`),
      wanted,
    )
  })

test('a line has few elements, whatever its length and however often its color changes', () => {
  const spans = spansOf(`${esc}[31mx${esc}[32my`.repeat(100_000))
  assert.equal(spans.length, 200)
  assert.ok(spans.reduce((sum, { text }) => sum + text.length, 0) < 10_000)
  assert.match(spans.at(-1)!.text, /more characters\)$/)
})

test('however many lines arrive, the newest are kept, and the others are counted', () => {
  const list = createLineList()
  for (let first = 0; first < 220_000; first += 1000) list.push(linesFrom(first, 1000))
  assert.deepEqual([list.total, list.count, list.dropped], [50_000, 50_000, 170_000])
  assert.deepEqual([list.lineAt(0).id, list.lineAt(49_999).id], ['170000', '219999'])
  const long = createLineList()
  for (let number = 0; number < 400; number += 1) long.push([{ ...lineOf(number), text: 'x'.repeat(1_000_000) }])
  assert.ok(long.total < 300, `${long.total} lines of a megabyte`)
  assert.match(long.lineAt(0).text, /^x{100000} … \(900000 more characters\)$/)
})

test('a reader further up loses no line, and sees the newest after following again', async () => {
  const log = createLogStore()
  const newest = (): string => log.lines().lineAt(log.lines().count - 1).id
  log.add(linesFrom(0, 50_000))
  await until(() => log.lines().total === 50_000, { what: 'the lines' })
  log.pin(true)
  log.add(linesFrom(50_000, 10))
  await until(() => log.isHeld, { what: 'the log to be held' })
  assert.deepEqual([log.lines().lineAt(0).id, newest(), log.late], ['0', '49999', 10])
  log.pin(false)
  assert.deepEqual([log.isHeld, newest()], [false, '50009'])
  // Paused by the user, it stays paused.
  log.hold()
  log.pin(true)
  log.pin(false)
  assert.equal(log.isHeld, true)
  log.close()
})

// biome-ignore lint/suspicious/noControlCharactersInRegex: of the lines above
const color = /\u001b\[\d+m/g

const filters: Filter[] = [
  { ...everything, text: 'line 77' },
  { ...everything, level: 'error' },
  { ...everything, from: 'instance-1', text: '9' },
  { ...everything, about: ['nobody'] },
]

test('a filter finds in portions exactly the matching lines, while lines are added and dropped', () => {
  for (const filter of filters) {
    const fits = ({ text, isError, from }: Line): boolean =>
      text.replaceAll(color, '').toLowerCase().includes(filter.text) &&
      (filter.level === 'all' || isError) &&
      (filter.from === null || from === filter.from) &&
      filter.about === null
    const list = createLineList(5000)
    list.push(linesFrom(0, 5000))
    list.filter(filter)
    assert.equal(list.count, 0)
    assert.ok(lookThrough(list) > 5, 'in portions')
    for (let first = 5000; first < 17_000; first += 300) {
      list.push(linesFrom(first, 300))
      if (first % 900 === 0) lookThrough(list)
    }
    lookThrough(list)
    assert.deepEqual(
      shown(list),
      linesFrom(12_000, 5000)
        .filter(fits)
        .map(({ id }) => id),
    )
  }
})

test('a copy does not change while new lines arrive, and includes the older ones', () => {
  const list = createLineList(100)
  list.push(linesFrom(100, 100))
  const copy = list.copy(linesFrom(50, 50))
  list.push(linesFrom(200, 100))
  assert.deepEqual([copy.total, copy.lineAt(0).id, copy.lineAt(149).id], [150, '50', '199'])
  assert.equal(list.lineAt(0).id, '200')
  assert.deepEqual([list.isFullWith([]), list.isFullWith(linesFrom(300, 1))], [false, true])
})

const change = (over: Partial<Change>): Change => ({
  ...{ kind: 'APPLICATION', part: null, verb: 'UPDATE', id: 's1', project_id: 'p1', environment_id: 'e1' },
  ...over,
})
const keys = [
  ['session'],
  ['organizations'],
  ['projects', 'o1'],
  ['environments', 'p1'],
  ['environments', 'p2'],
  ['environment', 'e1'],
  ['services', 'e1'],
  ['live', 'e1'],
  ['live', 'e2'],
  ['history', 'e1', 30],
  ['service', 's1'],
  ['variables', 's2'],
  ['members', 'o1'],
  ['audit', 'o1'],
  ['active deployments', 'o1'],
  ['credentials', 's1'],
]
const concernedBy = (over: Partial<Change>): string[] =>
  keys
    .filter((queryKey) => concerns(change(over), 'o1')({ queryKey, state: { data: { environmentId: 'e1' } } }))
    .map((key) => key.slice(0, 2).join(' '))

test('a change finds the queries that it concerns, and no others', () => {
  assert.deepEqual(concernedBy({ kind: 'ENVIRONMENT', part: 'STATUS', id: 'e1' }), [
    ...['environments p1', 'services e1', 'live e1', 'history e1', 'service s1', 'active deployments o1'],
  ])
  assert.deepEqual(concernedBy({}), [
    ...['environments p1', 'environment e1', 'services e1', 'live e1', 'history e1', 'service s1', 'audit o1'],
  ])
  assert.ok(concernedBy({ kind: 'PROJECT', part: 'VARIABLE', id: 'p1', environment_id: null }).includes('variables s2'))
  const members = concernedBy({ kind: 'MEMBERS_AND_ROLES', id: 'm1', project_id: null, environment_id: null })
  for (const key of ['session', 'members o1', 'audit o1']) assert.ok(members.includes(key), key)
  assert.ok(!members.includes('live e1') && !members.includes('services e1'))
})

test('a change during a read causes another read, and no query runs twice at the same time', async () => {
  const queries = new QueryClient()
  let reads = 0
  let atOnce = 0
  let most = 0
  let go = (): void => {}
  const stop = new QueryObserver(queries, {
    queryKey: ['live', 'e1'],
    async queryFn() {
      reads += 1
      atOnce += 1
      most = Math.max(most, atOnce)
      await new Promise<void>((resolve) => {
        go = resolve
      })
      atOnce -= 1
      return reads
    },
    staleTime: Number.POSITIVE_INFINITY,
  }).subscribe(() => {})
  const { refresh } = createRefresher(queries)
  const all = (): boolean => true
  refresh(all)
  for (let turn = 0; turn < 10; turn += 1) refresh(all)
  go()
  await until(() => reads === 2, { what: 'the read after the first' })
  for (let turn = 0; turn < 10; turn += 1) refresh(all)
  go()
  await until(() => reads === 3, { what: 'the read after the change' })
  go()
  await until(() => queries.getQueryData(['live', 'e1']) === 3, { what: 'the last answer' })
  assert.deepEqual([reads, most], [3, 1])
  stop()
  queries.clear()
})
