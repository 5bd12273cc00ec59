import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { createFakeClock } from '../../test/support/fake-clock.ts'
import { until } from '../../test/support/until.ts'
import { newId } from '../lib/ids.ts'
import { createLog } from '../lib/log.ts'
import { systemClock } from '../lib/time/clock.ts'
import type { Database } from '../store/database.ts'
import { createWorkRegistry } from '../work/registry.ts'
import type { Cluster, Clusters } from './clusters.ts'
import { awaitShares, type ClusterLease, type LeasedClusters, leaseClusters, sharing } from './lease.ts'

const database = await testDatabase()
const open: LeasedClusters[] = []
after(() => Promise.all(open.map((leased) => leased.stop())))

const clusterOf = (key: string): Cluster => ({ key }) as Cluster

/** A server that can hold clusters; `world.away` cuts it off from the database. */
const startServer = async (all: Cluster[], clock = systemClock) => {
  const world = { away: false, hears: null as (() => void) | null }
  const now = new Map<string, ClusterLease>()
  const events: string[] = []
  let underWay = 0
  const its: Database = {
    ...database,
    query: async (text, values) => {
      if (world.away) throw new Error('away')
      underWay += 1
      return database.query<never>(text, values).finally(() => {
        underWay -= 1
      })
    },
    listen: async (_, hears) => {
      world.hears = () => hears('')
      return () => {}
    },
  }
  const nothing = async () => {}
  const clusters: Clusters = {
    of: async () => all[0]!,
    all: () => all,
    own: all[0]!,
    engines: null,
    openKubernetes: null,
    start: nothing,
    close: nothing,
  }
  const parts = { database: its, clusters, clock, log: createLog('silent'), work: createWorkRegistry(clock) }
  const leased = await leaseClusters(parts, newId(), (lease) => {
    assert.ok(!now.has(lease.id), 'it is looked after once')
    now.set(lease.id, lease)
    events.push(`begin ${lease.id}`)
    return {
      async stop() {
        now.delete(lease.id)
        events.push(`end ${lease.id}`)
      },
    }
  })
  open.push(leased)
  return { world, now, events, leased, isCalm: () => underWay === 0 }
}

const runOut = () => database.query(`update cluster_work set lease_until = '-infinity'`)

test('a cluster has one holder; one that cannot renew ends what it does before its lease can have run out, then another has it', async () => {
  const all = [clusterOf('near'), clusterOf('far')]
  const clock = createFakeClock()
  const first = await startServer(all, clock)
  await until(() => clock.rest().then(() => first.now.size === 2), { what: 'the first to hold both' })
  const second = await startServer(all)
  assert.equal(second.now.size, 0)
  const kept = first.now.get('far')!
  first.world.away = true
  // Fifteen seconds from its last renewal, minus the time that a renewal may take.
  await clock.advance(10_900)
  assert.equal(first.now.size, 2)
  await clock.advance(200)
  assert.deepEqual([first.now.size, first.events], [0, ['begin far', 'begin near', 'end far', 'end near']])
  await runOut()
  second.leased.wake()
  await until(() => second.now.size === 2, { what: 'the second to hold both' })
  assert.equal(second.now.get('far')!.fence, String(Number(kept.fence) + 1))
  // It returns, and does not take clusters that another server holds.
  first.world.away = false
  await clock.advance(20_000)
  assert.equal(first.now.size, 0)
  await second.leased.stop()
  assert.equal(second.now.size, 0)
  first.world.hears!()
  await until(() => clock.rest().then(() => first.now.size === 2), { what: 'the first, at once' })
  await first.leased.stop()
})

test('a cluster that comes is held, one that goes is let go, one that is reached in another way is begun anew', async () => {
  const all = [clusterOf('stays')]
  const clock = createFakeClock()
  const { now, events, leased, isCalm } = await startServer(all, clock)
  /** In steps, each when the database has answered. */
  const seconds = async (count: number): Promise<string[]> => {
    for (let step = 0; step < count * 10; step += 1) {
      await until(() => clock.rest().then(isCalm), { what: 'the database' })
      await clock.advance(100)
    }
    return events.splice(0)
  }
  assert.deepEqual(await seconds(10), ['begin stays'])
  all.push(clusterOf('comes'))
  assert.deepEqual(await seconds(10), ['begin comes'])
  const other = clusterOf('comes')
  all[1] = other
  assert.deepEqual(await seconds(10), ['end comes', 'begin comes'])
  assert.equal(now.get('comes')!.cluster, other)
  all.pop()
  assert.deepEqual([await seconds(30), [...now.keys()]], [['end comes'], ['stays']])
  await leased.stop()
})

test('while the holder restores a service, a deployment waits; rows left by a dead holder delay no deployment', async () => {
  const [environmentId, serviceId, organizationId, clusterId] = [newId(), newId(), newId(), newId()]
  const node = (id: string, kind: string, scope: string, spec: object) =>
    database.query(
      `insert into node (id, organization_id, kind, name_scope, name, spec) values ($1, $2, $3, $4, $3, $5)`,
      [id, organizationId, kind, scope, JSON.stringify(spec)],
    )
  await node(clusterId, 'cluster', 'cluster', {})
  await node(environmentId, 'environment', 'environment', { cluster_id: clusterId })
  await node(serviceId, 'container', 'service', {})
  await database.query(
    `insert into service_state (service_id, environment_id, organization_id, kind) values ($1, $2, $3, 'container')`,
    [serviceId, environmentId, organizationId],
  )
  const { now, leased } = await startServer([clusterOf(clusterId), clusterOf('another')])
  const lease = await until(() => now.get(clusterId), { what: 'the cluster to be held' })
  const waits = () => {
    let done = false
    const ended = awaitShares({ database, clock: systemClock }, environmentId, () => {}).then(() => {
      done = true
    })
    return { ended, isDone: () => done }
  }
  const mended = Promise.withResolvers<void>()
  const asked = Promise.withResolvers<void>()
  const mending = sharing(database, lease, serviceId, async () => {
    asked.resolve()
    await mended.promise
  })
  await asked.promise
  const deployment = waits()
  await database.query('select pg_sleep(0.2)')
  assert.equal(deployment.isDone(), false)
  mended.resolve()
  await Promise.all([mending, deployment.ended])
  // The holder of another cluster, whose engine names the service too.
  const stranger = await until(() => now.get('another'), { what: 'the other cluster to be held' })
  await sharing(database, stranger, serviceId, () => waits().ended)
  const dead = sharing(database, lease, serviceId, () => new Promise<never>(() => {}))
  dead.catch(() => {})
  await until(async () => (await database.query('select from reconcile_share')).length === 1, { what: 'the share' })
  await database.query('update cluster_work set fence = fence + 1 where id = $1', [clusterId])
  await waits().ended
  await leased.stop()
})
