/**
 * Only we set our labels: an image, or a container from before we set all of them, may have values under their names.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import {
  clean,
  createTask,
  createWorkload,
  ignore,
  signal,
  start,
  until,
} from '../../../test/support/runtimes/conformance.ts'
import { createEngine, type Engine } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import type { Probe, Workload } from '../runtime.ts'
import { containerName, networkName } from './describe.ts'
import { createDockerRuntime, type DockerRuntime } from './docker.ts'
import { parseProbe } from './probes/watch.ts'

const httpd = { image: busyboxImage, entrypoint: null, arguments: ['httpd', '-f', '-p', '8080'] }
const failing: Probe = {
  check: { kind: 'exec', command: ['false'] },
  initialDelaySeconds: 0,
  periodSeconds: 1,
  timeoutSeconds: 1,
  successThreshold: 1,
  failureThreshold: 1,
}
const badProbes = [
  'not json',
  'null',
  '{}',
  JSON.stringify({ ...failing, periodSeconds: 'x' }),
  JSON.stringify({ ...failing, check: { kind: 'tcp', port: 1 } }),
  JSON.stringify({ ...failing, check: { kind: 'exec', command: 'false' } }),
]
const evilLabels = {
  'slipway.task': 'x',
  'slipway.liveness': 'not json',
  'slipway.ports': Array.from({ length: 15_000 }, (_, i) => `${i + 1}=${15_000 + i}`).join(','),
  'slipway.attempt': 'x',
  'slipway.volume': 'x',
  'slipway.unknown': 'kept',
}

test('a label is a probe when all of it is', () => {
  assert.deepEqual(parseProbe(JSON.stringify(failing)), failing)
  for (const text of badProbes.filter((each) => !each.includes('tcp'))) assert.equal(parseProbe(text), null, text)
})

describe('labels of images and of old containers', () => {
  const ownerId = `labels-test-${newId()}`
  let engine: Engine
  let runtime: DockerRuntime
  let image = ''
  before(async () => {
    await ensureBusybox()
    engine = createEngine()
    runtime = createDockerRuntime({ ownerId, log: createLog('silent') })
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { body: { Image: busyboxImage } })
    const query = { container: Id, repo: `slipway-test-${newId()}`, tag: '1' }
    image = (await engine.call<{ Id: string }>('POST', '/commit', { query, body: { Labels: evilLabels } })).Id
    await engine.call('DELETE', `/containers/${Id}`)
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    await engine.call('DELETE', `/images/${image}`, { query: { force: true } })
    await engine.close()
  })

  const labelsOf = async (id: string): Promise<Record<string, string>> =>
    (await engine.call<{ Config: { Labels: Record<string, string> } }>('GET', `/containers/${id}/json`)).Config.Labels

  test('what an image says under our names is overwritten, on instances and on tasks; other labels are its own', async () => {
    const workload = createWorkload({ ...httpd, image })
    const [instance] = await start(runtime, workload)
    const labels = await labelsOf(instance!.id)
    assert.equal(labels['slipway.unknown'], 'kept')
    for (const name of ['task', 'liveness', 'attempt', 'volume']) assert.equal(labels[`slipway.${name}`], '', name)
    assert.deepEqual(Object.keys(instance!.endpoints), ['8080'])
    const task = createTask({ image, entrypoint: null, arguments: ['true'] })
    assert.equal((await runtime.run(task, ignore, signal())).exitCode, 0)
    const { instances } = await runtime.owned()
    assert.deepEqual(instances.find(({ taskId }) => taskId === task.taskId)?.ports, [])
    assert.equal((await runtime.observe([workload])).length, 1)
  })

  /** As made before we set every label: the image's labels show through. */
  const makeOld = async (of: Workload, more: Record<string, string>): Promise<string> => {
    const name = containerName(of.serviceId, of.revision, 0)
    const labels = { owner: ownerId, organization: of.organizationId, environment: of.environmentId }
    const ids = {
      ...labels,
      service: of.serviceId,
      revision: of.revision,
      index: '0',
      ports: '8080=15999',
      config: 'x',
    }
    const Labels = { ...Object.fromEntries(Object.entries(ids).map(([key, id]) => [`slipway.${key}`, id])), ...more }
    const HostConfig = { NetworkMode: networkName(of.environmentId), RestartPolicy: { Name: 'unless-stopped' } }
    const body = { Image: busyboxImage, Cmd: httpd.arguments, Labels, HostConfig }
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })
    await engine.call('POST', `/containers/${Id}/start`)
    return Id
  }

  test('a container with bad labels stops no probe, no choice of a port and no list, and does not count as a task', async () => {
    const victim = createWorkload(httpd, { liveness: failing })
    await start(runtime, victim)
    const { environmentId } = victim
    for (const liveness of badProbes)
      await makeOld(createWorkload(httpd, { environmentId }), { ...evilLabels, 'slipway.liveness': liveness })
    const old = createWorkload(httpd, { environmentId })
    await makeOld(old, { ...evilLabels, 'slipway.ports': evilLabels['slipway.ports'] })
    // A newly started server finds all of these.
    const later = createDockerRuntime({ ownerId, log: createLog('silent') })
    const stop = new AbortController()
    const events = later.watch(stop.signal)
    const keeping = later.keepAlive(stop.signal)
    try {
      let died = 0
      for await (const { serviceId, kind } of events) {
        if (serviceId === victim.serviceId && kind === 'died') died += 1
        if (died === 2) break
      }
      assert.equal((await later.observe([old])).length, 1)
      const [next] = await start(later, createWorkload(httpd, { environmentId }))
      assert.ok(next!.endpoints[8080])
    } finally {
      stop.abort()
      await keeping
      await later.close()
    }
  })

  test('a container that the engine named while it built an image with our labels does not count as an instance', async () => {
    const victim = createWorkload(httpd)
    const [instance] = await start(runtime, victim)
    const forged = { ...(await labelsOf(instance!.id)), 'slipway.record': 'x' }
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', {
      body: { Image: busyboxImage, Labels: forged },
    })
    try {
      const later = createDockerRuntime({ ownerId, log: createLog('silent') })
      for (const each of [runtime, later]) {
        const { instances } = await each.owned()
        const found = instances.filter(({ serviceId }) => serviceId === victim.serviceId)
        assert.deepEqual(
          found.map(({ id }) => id),
          [instance!.id],
        )
        assert.equal((await each.observe([victim])).length, 1)
        assert.deepEqual([...(await each.records([victim])).values()], [[]])
      }
      await later.close()
    } finally {
      await engine.call('DELETE', `/containers/${Id}`)
    }
  })

  test('ports that containers of others claim are not believed', async () => {
    const Labels = { 'slipway.owner': 'somebody else', 'slipway.ports': evilLabels['slipway.ports'] }
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', {
      body: { Image: busyboxImage, Labels },
    })
    const later = createDockerRuntime({ ownerId, log: createLog('silent') })
    try {
      await until('it runs', async () => (await start(later, createWorkload(httpd)))[0] ?? null)
    } finally {
      await later.close()
      await engine.call('DELETE', `/containers/${Id}`)
    }
  })
})
