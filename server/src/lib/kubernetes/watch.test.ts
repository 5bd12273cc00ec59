import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { createFakeClock } from '../../../test/support/fake-clock.ts'
import { startMemoryCluster } from '../../../test/support/kubernetes/api-server.ts'
import { until } from '../../../test/support/until.ts'
import { systemClock } from '../time/clock.ts'
import { createKubernetesApi } from './kubernetes-api.ts'
import { KubernetesError } from './kubernetes-errors.ts'
import { watch } from './watch.ts'

interface Item {
  metadata: { name: string }
}

const start = async (t: TestContext, clock = systemClock) => {
  const cluster = await startMemoryCluster()
  const api = createKubernetesApi(cluster.access(), async () => ({ address: '127.0.0.1' }))
  const ends = new AbortController()
  t.after(async () => {
    ends.abort()
    await api.close()
    await cluster.close()
  })
  const seen: string[] = []
  const follow = async (): Promise<void> => {
    for await (const change of watch<Item>(api, '/api/v1/secrets', { signal: ends.signal, clock }))
      if (change.type === 'ALL') seen.push(`ALL ${change.items.map(({ metadata }) => metadata.name).join(',')}`)
      else seen.push(`${change.type} ${change.object.metadata.name}`)
  }
  const add = (name: string) => cluster.store.put({ kind: 'Secret', metadata: { name, namespace: 'one' } } as never)
  const untilSeen = (wanted: string) =>
    until(() => seen.includes(wanted), { what: `${wanted}; seen: ${seen.join('; ')}` })
  return { cluster, api, ends, seen, follow, add, untilSeen }
}

test('a watch reports all objects and every change, continues where it was cut, and ends quietly', async (t) => {
  const { cluster, ends, seen, follow, add, untilSeen } = await start(t)
  add('a')
  const following = follow()
  await untilSeen('ALL a')
  const b = add('b')
  await untilSeen('ADDED b')
  cluster.cut()
  cluster.store.drop(b)
  add('c')
  await untilSeen('ADDED c')
  ends.abort()
  await following
  assert.deepEqual(seen, ['ALL a', 'ADDED b', 'DELETED b', 'ADDED c'])
  assert.equal(cluster.asked.filter((each) => each === 'GET /api/v1/secrets').length, 3)
})

test('a place that the cluster has forgotten is read anew', async (t) => {
  const { cluster, seen, follow, add, untilSeen } = await start(t)
  const following = follow()
  await untilSeen('ALL ')
  add('a')
  await untilSeen('ADDED a')
  add('b')
  await untilSeen('ADDED b')
  cluster.refuse = () => [503, 'not now']
  cluster.cut()
  add('c')
  cluster.store.forget()
  cluster.refuse = () => null
  await untilSeen('ALL a,b,c')
  add('d')
  await untilSeen('ADDED d')
  assert.equal(seen.length, 5)
  following.catch(() => {})
})

test('a refused login ends the retries', async (t) => {
  const { cluster, follow } = await start(t)
  cluster.refuse = () => [403, 'secrets is forbidden']
  await assert.rejects(follow(), (error) => error instanceof KubernetesError && error.status === 403)
  assert.equal(cluster.asked.length, 1)
})

test('while the cluster is silent, or busy, it is asked at ever longer intervals, and nothing is lost', async (t) => {
  const clock = createFakeClock()
  const { cluster, seen, follow, add, untilSeen } = await start(t, clock)
  const following = follow()
  await untilSeen('ALL ')
  await until(() => cluster.asked.length === 2, { what: 'the watch' })
  cluster.hush()
  add('unheard')
  const asks = async (): Promise<boolean> => {
    await clock.advance(10_000)
    return cluster.asked.length === 3
  }
  await until(asks, { what: 'the next question' })
  cluster.speak()
  await untilSeen('ADDED unheard')
  cluster.refuse = () => [500, 'away']
  cluster.cut()
  const before = cluster.asked.length
  for (let seconds = 0; seconds < 60; seconds += 10) {
    await until(() => clock.sleeping() > 0, { what: 'a pause' })
    await clock.advance(10_000)
  }
  assert.ok(cluster.asked.length - before < 15, `${cluster.asked.length - before} requests in a minute`)
  cluster.refuse = () => null
  add('later')
  const came = untilSeen('ADDED later')
  let done = false
  came.then(() => (done = true)).catch(() => {})
  await until(
    async () => {
      await clock.advance(10_000)
      return done
    },
    { what: 'what came later' },
  )
  assert.deepEqual(seen, ['ALL ', 'ADDED unheard', 'ADDED later'])
  following.catch(() => {})
})
