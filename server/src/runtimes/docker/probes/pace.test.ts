/** When a probe checks a running instance: at the configured delay and period. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFakeClock } from '../../../../test/support/fake-clock.ts'
import { newId } from '../../../lib/ids.ts'
import type { PlacedInstance } from '../../blue-green/instances.ts'
import type { Probe } from '../../runtime.ts'
import type { ProbeCall } from './probe.ts'
import { createReadiness, watchReadiness } from './readiness.ts'
import { keepAliveOne } from './watch.ts'

const probe: Probe = {
  check: { kind: 'exec', command: ['true'] },
  initialDelaySeconds: 7,
  periodSeconds: 4,
  timeoutSeconds: 1,
  successThreshold: 2,
  failureThreshold: 2,
}
const instance = {
  id: newId(),
  name: 'a',
  environmentId: newId(),
  serviceId: newId(),
  revision: newId(),
} as PlacedInstance

test('after the switch an instance is asked after the delay and at the period, and both thresholds count', async () => {
  const clock = createFakeClock()
  const ends = new AbortController()
  const told: [number, boolean][] = []
  const readiness = createReadiness((_, isReady) => told.push([clock.monotonicMs(), isReady]))
  readiness.ready(instance)
  const looks: number[] = []
  // Seconds 7, 11, 15: no. Later: yes.
  const look: ProbeCall = async () => {
    looks.push(clock.monotonicMs())
    return looks.length <= 3 ? 'no' : null
  }
  const watching = watchReadiness({ clock, readiness, isFresh: true }, instance, probe, look, ends.signal)
  await clock.advance(24_000)
  assert.deepEqual(looks, [7000, 11_000, 15_000, 19_000, 23_000])
  assert.deepEqual(told, [
    [11_000, false],
    [23_000, true],
  ])
  ends.abort()
  await watching.catch(() => {})
})

test('a liveness probe waits for its delay after each restart, and fails after as many looks as asked', async () => {
  const clock = createFakeClock()
  const ends = new AbortController()
  const looks: number[] = []
  const restarts: number[] = []
  const look: ProbeCall = async () => {
    looks.push(clock.monotonicMs())
    return 'no'
  }
  const failed = async () => void restarts.push(clock.monotonicMs())
  const watching = keepAliveOne(clock, probe, look, ends.signal, { failed, alive: () => {} })
  await clock.advance(23_000)
  assert.deepEqual(looks, [7000, 11_000, 18_000, 22_000])
  assert.deepEqual(restarts, [11_000, 22_000])
  ends.abort()
  await watching.catch(() => {})
})
