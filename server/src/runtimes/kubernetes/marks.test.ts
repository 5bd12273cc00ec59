/** Marks on a cluster in memory, and a database that is older than its namespaces. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { startMemoryCluster } from '../../../test/support/kubernetes/api-server.ts'
import { createMemoryRuntime } from '../../../test/support/kubernetes/memory-runtime.ts'
import { createWorkload, nowhere, runningAs } from '../../../test/support/runtimes/conformance.ts'
import { guardRuntime } from '../../clusters/lines/guard.ts'
import { createLine } from '../../clusters/lines/line.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { systemClock } from '../../lib/time/clock.ts'

const cluster = await startMemoryCluster()
const runtime = createMemoryRuntime(cluster, 'owner')
const stopping = new AbortController()
const signal = AbortSignal.timeout(60_000)
after(async () => {
  stopping.abort()
  await runtime.close()
  await cluster.close()
})

test('of two writers of one generation the cluster takes the first, and keeps the marks of each cluster apart', async () => {
  const { marks } = runtime
  const [mine, theirs] = ['mine', 'theirs'].map((nonce) => ({ generation: 1, nonce, writer: nonce }))
  assert.deepEqual(await marks.put('a', mine!, signal), mine)
  assert.deepEqual(await marks.put('a', theirs!, signal), mine)
  await marks.put('a', { ...mine!, generation: 2 }, signal)
  await marks.put('b', theirs!, signal)
  assert.deepEqual(
    (await marks.list('a', signal)).map(({ generation }) => generation),
    [2, 1],
  )
  assert.deepEqual(await marks.list('b', signal), [theirs])
  await marks.remove('a', mine!, signal)
  assert.equal((await marks.list('a', signal)).length, 1)
  await marks.clear(signal)
  assert.deepEqual([await marks.list('a', signal), await marks.list('b', signal)], [[], []])
})

test('a database that does not know the namespaces of a cluster changes nothing there', async () => {
  const database = await testDatabase()
  const start = () =>
    createLine(
      { database, writer: 'a', clock: systemClock, log: createLog('silent'), stopping: stopping.signal },
      'c',
      runtime,
    )
  await start().ready()
  const program = { image: 'registry.test/serve@sha256:1', entrypoint: null, arguments: null }
  const workload = createWorkload(program, { volumes: [{ id: newId(), mountPath: '/data', sizeGb: 1 }] })
  await runtime.converge(workload, runningAs(workload, nowhere), null, signal)
  const claims = () => cluster.store.all('PersistentVolumeClaim').length
  const there = claims()
  assert.ok(there > 0)
  const line = start()
  const guarded = guardRuntime(line, runtime)
  const { environmentId, serviceId } = workload
  const refused = { code: 'cluster_conflict' }
  await assert.rejects(guarded.removeEnvironment(environmentId, signal), refused)
  await assert.rejects(
    guarded.converge({ environmentId, serviceId }, { state: 'absent', graceMs: 0 }, null, signal),
    refused,
  )
  assert.equal(claims(), there)
})
