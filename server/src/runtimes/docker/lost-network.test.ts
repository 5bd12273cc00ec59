/** Instances that run and cannot be reached, or are not alive: they are replaced if a restart does not help. */
import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import { engine } from '../../../test/support/docker/docker.ts'
import {
  clean,
  createWorkload,
  deploy,
  nowhere,
  type Program,
  runningAs,
  signal,
  until,
} from '../../../test/support/runtimes/conformance.ts'
import { exec } from '../../lib/exec.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { isDown, type RuntimeEvent, type Workload } from '../runtime.ts'
import { networkName } from './describe.ts'
import { createDockerRuntime, type DockerRuntime } from './docker.ts'

const shell = (script: string): Program => ({ image: busyboxImage, entrypoint: ['sh', '-c'], arguments: [script] })
const serve = shell('mkdir -p /w; echo hello > /w/index.html; exec httpd -f -p 8080 -h /w')

describe('instances that cannot be reached', () => {
  let runtime: DockerRuntime
  let ends: AbortController
  before(async () => {
    await ensureBusybox()
  })
  const open = (): void => {
    ends = new AbortController()
    runtime = createDockerRuntime({ ownerId: `lost-network-test-${newId()}`, log: createLog('silent') })
  }
  afterEach(async () => {
    ends.abort()
    await clean(runtime)
    await runtime.close()
  })
  after(() => engine.close())

  const only = async (workload: Workload) => {
    const [instance, ...more] = await runtime.instances.see([workload])
    assert.deepEqual(more, [])
    return instance!
  }
  const answers = async (workload: Workload): Promise<boolean> => {
    const { host, port } = (await only(workload)).endpoints[8080]!
    const answer = await fetch(`http://${host}:${port}/`, { signal: AbortSignal.timeout(2000) }).catch(() => null)
    return answer?.status === 200
  }
  const network = (action: string, workload: Workload, body: object) =>
    engine.call('POST', `/networks/${networkName(workload.environmentId)}/${action}`, { body })
  const restore = (workload: Workload) => runtime.converge(workload, runningAs(workload, nowhere), null, signal())

  test('one that was disconnected is noticed at once, gets no requests, and is replaced; another address is the same', async () => {
    open()
    const told: RuntimeEvent[] = []
    const watching = (async () => {
      for await (const event of runtime.watch(ends.signal)) told.push(event)
    })()
    const keeping = runtime.keepAlive(ends.signal)
    const workload = createWorkload(serve)
    await deploy(runtime, workload)
    for (const reconnects of [false, true]) {
      const { id } = await only(workload)
      assert.equal(await answers(workload), true)
      told.length = 0
      await network('disconnect', workload, { Container: id, Force: true })
      if (reconnects) await network('connect', workload, { Container: id })
      await until(
        'the event',
        () => told.some(({ instanceId, kind }) => instanceId === id && kind === 'unready') || null,
      )
      const seen = await only(workload)
      assert.deepEqual([seen.state, seen.unready, isDown(seen)], ['running', true, true])
      assert.match(seen.trouble!.message, reconnects ? /got another address/ : /lost the network/)
      const { instances } = await restore(workload)
      assert.notEqual(instances[0]!.id, id)
      await until('its answer', async () => (await answers(workload)) || null)
      assert.equal((await only(workload)).trouble, undefined)
    }
    ends.abort()
    await Promise.allSettled([watching, keeping])
  })

  test('one that is down and has lost its network is made anew instead of started without it', async () => {
    open()
    const workload = createWorkload(serve)
    await deploy(runtime, workload)
    const { id } = await only(workload)
    await engine.call('POST', `/containers/${id}/stop`, { query: { t: 0 } })
    await network('disconnect', workload, { Container: id, Force: true })
    await restore(workload)
    await until('its answer', async () => (await answers(workload)) || null)
  })

  test('one whose network was removed gets a new network', async () => {
    open()
    const workload = createWorkload(serve)
    await deploy(runtime, workload)
    await network('disconnect', workload, { Container: (await only(workload)).id, Force: true })
    await engine.call('DELETE', `/networks/${networkName(workload.environmentId)}`)
    await restore(workload)
    await until('its answer', async () => (await answers(workload)) || null)
  })

  test('one whose bridge is gone from the machine gets a new network, and so does the other instance on it', async (t) => {
    open()
    const workload = createWorkload(serve)
    const neighbour = { ...createWorkload(serve), environmentId: workload.environmentId, aliases: ['other'] }
    await deploy(runtime, workload)
    await deploy(runtime, neighbour)
    const name = networkName(workload.environmentId)
    const { Id } = await engine.call<{ Id: string }>('GET', `/networks/${name}`)
    const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' }
    const removed = await exec('ip', ['link', 'del', `br-${Id.slice(0, 12)}`], { env, timeoutMs: 10_000 }).catch(
      () => null,
    )
    if (removed?.code !== 0) return t.skip('bridges of this machine cannot be removed')
    for (const each of [workload, neighbour]) {
      assert.equal(isDown(await only(each)), true)
      await restore(each)
      await until('its answer', async () => (await answers(each)) || null)
    }
    assert.equal(await answers(workload), true)
  })

  test('a liveness probe that restarts do not fix makes a new container, and is reported meanwhile', async () => {
    open()
    const keeping = runtime.keepAlive(ends.signal)
    // Kept by a restart and missing in a new container.
    const liveness = {
      check: { kind: 'exec' as const, command: ['test', '!', '-e', '/broken'] },
      ...{ initialDelaySeconds: 1, periodSeconds: 1, timeoutSeconds: 5, successThreshold: 1, failureThreshold: 1 },
    }
    const workload = createWorkload(serve, { liveness, stopGraceMs: 0 })
    await deploy(runtime, workload)
    const { id } = await only(workload)
    const exec = { Cmd: ['touch', '/broken'] }
    const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${id}/exec`, { body: exec })
    await engine.call('POST', `/exec/${Id}/start`, { body: { Detach: true } })
    await until('a restart', async () => (await only(workload)).trouble?.message.includes('being restarted') || null)
    await until('that it gives up', async () => (await only(workload)).trouble?.needsNew || null)
    assert.match(
      (await only(workload)).trouble!.message,
      /liveness probe \(.*\); 3 restarts of its container did not help/,
    )
    const { instances } = await restore(workload)
    assert.notEqual(instances[0]!.id, id)
    assert.equal((await only(workload)).trouble, undefined)
    ends.abort()
    await keeping.catch(() => {})
  })
})
