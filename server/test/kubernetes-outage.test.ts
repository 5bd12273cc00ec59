/**
 * The API server of a cluster is down for a minute in the middle of a deployment, in every possible way: silent, busy,
 * forgetful, failing. Nothing is stuck, no code retries in a tight loop, and the deployment resumes when it is back.
 */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { attempt } from '../src/deployments/progress/steps.ts'
import { DeploymentError } from '../src/lib/errors.ts'
import { newId } from '../src/lib/ids.ts'
import { createKubernetesApi } from '../src/lib/kubernetes/kubernetes-api.ts'
import { createKubernetesRuntime } from '../src/runtimes/kubernetes/runtime.ts'
import type { Rollout, RolloutStep, Workload } from '../src/runtimes/runtime.ts'
import { createFakeClock } from './support/fake-clock.ts'
import { type MemoryCluster, startMemoryCluster } from './support/kubernetes/api-server.ts'
import { createWorkload, nowhere, runningAs } from './support/runtimes/conformance.ts'
import { until } from './support/until.ts'

const program = { image: 'registry.test/serve@sha256:1', entrypoint: null, arguments: null }

const start = async (t: TestContext) => {
  const cluster = await startMemoryCluster()
  const clock = createFakeClock()
  const api = createKubernetesApi(cluster.access(), async () => ({ address: '127.0.0.1' }), clock)
  const runtime = createKubernetesRuntime({
    ...{ api, ownerId: newId(), version: 'v1.33.1', outbound: undefined as never, registryLogins: async () => [] },
    ping: async () => {},
    capacity: () => Promise.reject(new Error('not asked')),
    close: api.close,
    clock,
  })
  const ended = new AbortController()
  t.after(async () => {
    ended.abort()
    await runtime.close()
    await cluster.close()
  })
  /** Until no request is sent without the clock advancing: a tight loop never gets there. */
  const quiet = () =>
    until(
      async () => {
        const before = cluster.asked.length
        for (let turns = 0; turns < 20; turns += 1) await clock.rest()
        return cluster.asked.length === before
      },
      { what: 'the requests to end' },
    )
  const pass = async (seconds: number, isOver: () => boolean = () => false): Promise<void> => {
    for (let second = 0; second < seconds && !isOver(); second += 1) {
      await quiet()
      await clock.advance(1000)
    }
    await quiet()
  }
  /** As in a deployment: each step is retried while the cluster is down. */
  const roll = (workload: Workload, onStep: (name: RolloutStep) => void = () => {}) => {
    const waits: string[] = []
    const rollout: Rollout = {
      step: (name, deadlineMs, work) => {
        onStep(name)
        return attempt(name, deadlineMs, work, ended.signal, clock, ({ message }) => void waits.push(message))
      },
      report: () => {},
      serving: async () => {},
    }
    let isOver = false
    const result = runtime.converge(workload, runningAs(workload, nowhere), rollout, ended.signal).then(
      () => 'done',
      (error: unknown) => (error instanceof DeploymentError ? `${error.code}: ${error.message}` : String(error)),
    )
    void result.then(() => (isOver = true))
    return { result, waits, isOver: () => isOver }
  }
  const revisions = async (workload: Workload): Promise<string[]> =>
    (await runtime.observe([workload])).map(({ revision }) => revision)
  return { cluster, pass, quiet, roll, revisions }
}

const refusing =
  (status: number, says: string) =>
  (cluster: MemoryCluster): void => {
    cluster.refuse = () => [status, says]
  }
const busy = (cluster: MemoryCluster): void => {
  cluster.busy = Number.POSITIVE_INFINITY
}

const outages: [string, (cluster: MemoryCluster) => void][] = [
  ['silent', (cluster) => cluster.hush()],
  ['busy', busy],
  ['forgetful', refusing(410, 'the place is too old')],
  ['failing', refusing(500, 'etcd is away')],
]
const refusals: [string, number, string][] = [
  ['a login that is refused', 401, 'Unauthorized'],
  ['a right that was taken away', 403, 'forbidden'],
]

const begin = (cluster: MemoryCluster, outage: (cluster: MemoryCluster) => void): void => {
  outage(cluster)
  cluster.store.forget()
  cluster.cut()
}

const end = (cluster: MemoryCluster): void => {
  cluster.refuse = () => null
  cluster.busy = 0
  cluster.speak()
}

for (const at of ['start', 'ready', 'switch', 'drain', 'retire'] as const)
  for (const [what, outage] of outages)
    test(`${what} for a minute at the step ${at}: few requests, nothing stuck, and the deployment resumes`, async (t) => {
      const { cluster, pass, roll, revisions } = await start(t)
      // Less than the outage takes.
      const old = createWorkload(program, { readyTimeoutMs: 30_000 })
      const first = roll(old)
      await pass(60, first.isOver)
      assert.equal(await first.result, 'done')

      const fresh = { ...old, revision: newId(), cpuMillicores: 300 }
      cluster.behave = () => ({ kind: 'ready' })
      let before = 0
      const second = roll(fresh, (step) => {
        if (step !== at) return
        before = cluster.asked.length
        begin(cluster, outage)
      })
      await pass(60)
      if (second.isOver()) assert.fail(`${await second.result}; ${second.waits.join('; ')}`)
      const asked = cluster.asked.length - before
      assert.ok(asked >= 2 && asked < 130, `${asked} requests in a minute`)
      end(cluster)
      await pass(120, second.isOver)
      assert.equal(await second.result, 'done', second.waits.join('; '))
      assert.deepEqual(await revisions(fresh), [fresh.revision])
    })

for (const [what, status, says] of refusals)
  test(`${what} ends the deployment with the reason, the old version keeps running, and the next one succeeds`, async (t) => {
    const { cluster, pass, roll, revisions } = await start(t)
    const old = createWorkload(program, { readyTimeoutMs: 180_000 })
    const first = roll(old)
    await pass(60, first.isOver)
    assert.equal(await first.result, 'done')

    const fresh = { ...old, revision: newId() }
    let before = 0
    const second = roll(fresh, (step) => {
      if (step !== 'start') return
      before = cluster.asked.length
      begin(cluster, refusing(status, says))
    })
    await pass(60, second.isOver)
    assert.match(
      await second.result,
      /^cluster_refused: .*(does not accept the credentials|does not allow this: forbidden)/,
    )
    assert.ok(cluster.asked.length - before < 10, `${cluster.asked.length - before} requests`)
    end(cluster)
    assert.deepEqual(await revisions(old), [old.revision])
    const third = roll(fresh)
    await pass(60, third.isOver)
    assert.equal(await third.result, 'done')
    assert.deepEqual(await revisions(fresh), [fresh.revision])
  })
