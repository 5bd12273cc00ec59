/** How long a version is waited for, with an engine in memory. */
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { createFakeClock } from '../../../../test/support/fake-clock.ts'
import { createWorkload } from '../../../../test/support/runtimes/conformance.ts'
import { standIn } from '../../../../test/support/stand-in.ts'
import type { Engine } from '../../../lib/docker/docker-engine.ts'
import type { Containers } from '../containers.ts'
import type { ContainerEvent, Events } from '../events.ts'
import type { Logs } from '../logs/logs.ts'
import { createReady, type Ending, judge } from './ready.ts'

test('the time that a version gets to say yes as often as asked is the one that its log and its failure name', async () => {
  const clock = createFakeClock()
  const engine = { call: async () => ({ Id: 'exec', ExitCode: 1 }), stream: async () => Readable.from([]) }
  const instance = { id: 'a', index: 0, state: 'running', endpoints: {} }
  const wait = createReady({
    engine: standIn<Engine>(engine),
    containers: standIn<Containers>({ list: async () => [], describe: async () => [instance] }),
    events: standIn<Events>({ listen: async () => () => {} }),
    logs: standIn<Logs>({ lastLines: async () => [] }),
    clock,
  })
  const check = { kind: 'exec' as const, command: ['look'] }
  const pace = { initialDelaySeconds: 1, periodSeconds: 3, timeoutSeconds: 1, successThreshold: 3, failureThreshold: 1 }
  const workload = createWorkload(
    { image: 'x', entrypoint: [], arguments: [] },
    { readyTimeoutMs: 5000, readiness: { check, ...pace } },
  )
  const told: string[] = []
  const waiting = wait(workload, (text) => told.push(text), new AbortController().signal)
  let failure: Error | undefined
  waiting.catch((error: Error) => {
    failure = error
  })
  await clock.advance(12_900)
  assert.deepEqual([told, failure], [['Waiting for the command of its readiness probe (up to 13 s).'], undefined])
  await clock.advance(200)
  assert.match(failure?.message ?? '', /^The service did not become ready within 13 s: /)
})

test('what has ended once is ready when it says yes and has stayed up for a second, not between two endings', async () => {
  const clock = createFakeClock()
  let answer = 1
  const engine = { call: async () => ({ Id: 'exec', ExitCode: answer }), stream: async () => Readable.from([]) }
  const instance = { id: 'a', index: 0, state: 'running', endpoints: {} }
  let tell = (_event: ContainerEvent): void => {}
  const listen: Events['listen'] = async (onEvent) => {
    tell = onEvent
    return () => {}
  }
  const inspect = async () => ({ State: { Running: true, Restarting: false, OOMKilled: false }, RestartCount: 1 })
  const wait = createReady({
    engine: standIn<Engine>(engine),
    containers: standIn<Containers>({ list: async () => [], describe: async () => [instance], inspect }),
    events: standIn<Events>({ listen }),
    logs: standIn<Logs>({ lastLines: async () => [] }),
    clock,
  })
  const check = { kind: 'exec' as const, command: ['look'] }
  const pace = { initialDelaySeconds: 0, periodSeconds: 3, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 1 }
  const workload = createWorkload(
    { image: 'x', entrypoint: [], arguments: [] },
    { readyTimeoutMs: 30_000, readiness: { check, ...pace } },
  )
  let isReady = false
  const waiting = wait(workload, () => {}, new AbortController().signal).then(() => {
    isReady = true
  })
  await clock.rest()
  tell({ kind: 'died', instanceId: 'a', exitCode: 1 } as ContainerEvent)
  await clock.advance(2500)
  answer = 0
  tell({ kind: 'started', instanceId: 'a' } as ContainerEvent)
  await clock.advance(600)
  assert.equal(isReady, false)
  await clock.advance(3000)
  await waiting
})

const ending = (over: Partial<Ending>): Ending => ({ exits: 1, exitCode: 1, oomKilled: false, restarts: true, ...over })

const cases: [string, Partial<Ending>, RegExp | null][] = [
  ['runs', { exits: 0 }, null],
  ['runs after a child of it was killed', { exits: 0, oomKilled: true }, null],
  ['first end', {}, null],
  ['second end', { exits: 2 }, null],
  ['third end', { exits: 3, exitCode: 127 }, /crash_loop.*3 times.*exit code 127: the command was not found/],
  ['end without restart', { restarts: false, exitCode: 0 }, /crash_loop.*exit code 0: it exited without an error/],
  ['out of memory', { oomKilled: true, exitCode: 137 }, /out_of_memory.*64 MB/],
  ['unknown signal', { exits: 3, exitCode: 135 }, /killed by signal 7/],
  ['unknown code', { exits: 3, exitCode: 42 }, /exit code 42: the program reported an error/],
]

for (const [name, over, expected] of cases)
  test(`verdict: ${name}`, () => {
    const verdict = judge(ending(over), 64)
    if (expected === null) assert.equal(verdict, null)
    else assert.match(`${verdict?.code} ${verdict?.message}`, expected)
  })
