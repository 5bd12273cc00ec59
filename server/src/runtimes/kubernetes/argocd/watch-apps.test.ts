import assert from 'node:assert/strict'
import { addAbortSignal, PassThrough } from 'node:stream'
import { test } from 'node:test'
import { standIn } from '../../../../test/support/stand-in.ts'
import { until } from '../../../../test/support/until.ts'
import { systemClock } from '../../../lib/time/clock.ts'
import type { RuntimeEvent } from '../../runtime.ts'
import { labels } from '../manifests/describe.ts'
import type { Objects } from '../objects.ts'
import { watchApps } from './watch-apps.ts'

const ofPod: RuntimeEvent = { serviceId: 'web', revision: 'v1', instanceId: 'pod', kind: 'started' }
const ofApp: RuntimeEvent = { serviceId: 'shop', revision: 'v2', instanceId: 'app', kind: 'unready' }
const app = { metadata: { name: 'app', labels: { [labels.service]: 'shop', [labels.revision]: 'v2' } } }

/** One app, and what `instances` yields; `signals`: those that the cluster and `instances` were called with. */
const start = (outer: AbortSignal, instances: () => AsyncIterable<RuntimeEvent>) => {
  const signals: AbortSignal[] = []
  const stream = async (_: string, { signal }: { signal: AbortSignal }) => {
    signals.push(signal)
    return addAbortSignal(signal, new PassThrough())
  }
  const api = standIn<Objects['api']>({ read: async () => ({ items: [app], resourceVersion: '1' }), stream })
  const objects = standIn<Objects>({ api, place: standIn<Objects['place']>({ ownerId: 'owner' }) })
  const watchInstances = (signal: AbortSignal) => {
    signals.push(signal)
    return instances()
  }
  return { signals, events: watchApps(watchInstances, { objects, clock: systemClock, argoNamespace: 'a' }, outer) }
}

test('events of apps and of instances come as one stream, all of them before the failure of a source', async () => {
  const appSeen = Promise.withResolvers<void>()
  const { events, signals } = start(AbortSignal.timeout(60_000), async function* () {
    await appSeen.promise
    yield ofPod
    yield { ...ofPod, kind: 'died' }
    throw new Error('the cluster is gone')
  })
  const seen: RuntimeEvent[] = []
  const reading = (async () => {
    for await (const event of events) {
      seen.push(event)
      appSeen.resolve()
    }
  })()
  await assert.rejects(reading, /^Error: the cluster is gone$/)
  assert.deepEqual(seen, [ofApp, ofPod, { ...ofPod, kind: 'died' }])
  assert.ok(signals.every(({ aborted }) => aborted))
})

test('an abort ends the stream without an error, and both sources with it', async () => {
  const ends = new AbortController()
  const { events, signals } = start(ends.signal, async function* () {
    yield ofPod
    await new Promise((_, reject) => ends.signal.addEventListener('abort', () => reject(ends.signal.reason)))
  })
  const seen: RuntimeEvent[] = []
  const reading = (async () => {
    for await (const event of events) seen.push(event)
  })()
  await until(() => seen.length === 2 && signals.length === 2, { what: 'both sources' })
  ends.abort()
  await reading
  assert.ok(signals.every(({ aborted }) => aborted))
})

test('both sources end when the reader leaves', async () => {
  const { events, signals } = start(AbortSignal.timeout(60_000), async function* () {
    yield ofPod
  })
  await events.next()
  await events.return(undefined)
  assert.ok(signals.length > 0)
  assert.ok(signals.every(({ aborted }) => aborted))
})
