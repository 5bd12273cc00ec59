/** The watch continues after errors: an engine that fails once must not leave an instance unwatched. */
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { createFakeClock } from '../../../../test/support/fake-clock.ts'
import { standIn } from '../../../../test/support/stand-in.ts'
import { type Engine, EngineError } from '../../../lib/docker/docker-engine.ts'
import { createLog } from '../../../lib/log.ts'
import { type ContainerRow, createContainers } from '../containers.ts'
import { labels } from '../describe.ts'
import type { ContainerEvent, Events } from '../events.ts'
import { createHooks } from '../hooks.ts'
import { createReadiness } from './readiness.ts'
import { createTroubles } from './troubles.ts'
import { watchInstances } from './watch.ts'

const probe = JSON.stringify({
  check: { kind: 'exec', command: ['look'] },
  initialDelaySeconds: 300,
  periodSeconds: 1,
  timeoutSeconds: 1,
  successThreshold: 1,
  failureThreshold: 1,
})

const row = (id: string, own: Record<string, string>): ContainerRow => ({
  ...{ Id: id, Names: [`/slipway-${id}`], State: 'running', Created: 0 },
  Labels: { [labels.service]: `service-${id}`, ...own },
})

/** An engine in memory; `fail` returns the error of a call. */
const createScene = (rows: ContainerRow[], fail: (path: string) => Error | undefined) => {
  const clock = createFakeClock()
  const calls: { path: string; atMs: number }[] = []
  const changes: [id: string, isReady: boolean][] = []
  const call = async (_method: string, path: string): Promise<unknown> => {
    calls.push({ path, atMs: clock.monotonicMs() })
    const error = fail(path)
    if (error !== undefined) throw error
    return path === '/containers/json' ? rows : { Id: 'exec', ExitCode: 1 }
  }
  const stream = async () => Readable.from([])
  const engine = standIn<Engine>({ call, stream })
  let notify = (_event: ContainerEvent): void => {}
  const listen: Events['listen'] = async (onEvent) => {
    notify = onEvent
    return () => {}
  }
  const events = standIn<Events>({ listen, seen: () => undefined, notify: () => {} })
  const readiness = createReadiness(({ id }, isReady) => changes.push([id, isReady]))
  const troubles = createTroubles()
  const hooks = createHooks(engine, clock)
  const containers = createContainers({ engine, ownerId: 'o', events, readiness, troubles })
  const log = createLog('silent')
  const ends = new AbortController()
  const watching = watchInstances({ engine, containers, events, hooks, readiness, troubles, clock, log }, ends.signal)
  const event = (kind: ContainerEvent['kind'], instanceId: string): void =>
    notify({ kind, instanceId, isTask: false, name: '', serviceId: '', revision: '', exitCode: null, at: '' })
  const at = (part: string): number[] => calls.filter(({ path }) => path.includes(part)).map(({ atMs }) => atMs)
  const end = async () => {
    ends.abort(new Error('over'))
    await watching
    await clock.rest()
    assert.equal(clock.sleeping(), 0, 'nothing waits after the end')
  }
  return { clock, hooks, changes, event, at, end }
}

const delayMs = 300_000

test('probes continue after errors of the engine, without their delay, until the container is gone', async () => {
  const broken = new Error('the engine did not answer')
  const failures: Record<string, (Error | undefined)[]> = {
    '/containers/a/restart': [broken, broken, undefined, new EngineError(404, 'no such container')],
    '/containers/b/exec': [broken],
  }
  const { clock, at, end, changes } = createScene(
    [row('a', { [labels.liveness]: probe }), row('b', { [labels.readiness]: probe })],
    (path) => failures[path]?.shift(),
  )
  await clock.advance(9000)
  assert.deepEqual([at('/b/exec'), changes], [[0], []])
  await clock.advance(1000)
  assert.deepEqual([at('/b/exec'), changes], [[0, 10_000], [['b', false]]])
  await clock.advance(delayMs + 60_000)
  assert.deepEqual(
    at('/a/restart').map((ms) => ms - delayMs),
    [0, 11_000, 22_000, 23_000],
  )
  await end()
})

test('an instance whose list failed is watched later, and nothing is kept of one that was removed', async () => {
  let fails = 0
  const rows: ContainerRow[] = []
  const { clock, at, hooks, event, end } = createScene(rows, (path) =>
    path === '/containers/json' && fails-- > 0 ? new Error('the engine did not answer') : undefined,
  )
  await clock.rest()
  rows.push(row('a', { [labels.liveness]: probe.replace('300', '1') }))
  fails = 2
  event('started', 'a')
  await clock.advance(25_000)
  assert.ok(at('/a/exec').length > 0, 'it is looked at')
  await hooks.started('a', undefined, new AbortController().signal)
  event('removed', 'a')
  const looks = at('/a/exec').length
  await clock.advance(60_000)
  assert.deepEqual([hooks.isStarted('a'), at('/a/exec').length], [false, looks])
  await end()
})

test('however many containers an engine says were started, it is asked for them once, and so many are looked at', async () => {
  const rows: ContainerRow[] = []
  const { clock, at, event, end } = createScene(rows, () => undefined)
  await clock.rest()
  const before = at('/containers/json').length
  for (let n = 0; n < 6000; n += 1) rows.push(row(`c${n}`, { [labels.liveness]: probe }))
  for (let n = 0; n < 6000; n += 1) event('started', `other${n}`)
  await clock.advance(2000)
  const asked = at('/containers/json').length - before
  assert.ok(asked >= 1 && asked <= 3, String(asked))
  // Each waits for its first check; one more waits for events of the engine's networks.
  assert.ok([5000, 5001].includes(clock.sleeping()), String(clock.sleeping()))
  await end()
})
