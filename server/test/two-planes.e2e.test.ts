/**
 * Two whole control planes on one PostgreSQL and one engine: both serve, every action is done once, and one is enough.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { busyboxName, busyboxTag, ensureBusybox } from './support/docker/busybox-image.ts'
import { containersOf, engine, removeContainer } from './support/docker/docker.ts'
import { countOf, happenedTo, type Planes, send, startPlanes } from './support/planes.ts'
import type { Json, Slipway } from './support/slipway/slipway.ts'
import { createPlace, hostOf, isSettled, type Place, visit } from './support/slipway/story.ts'
import { startVisits } from './support/slipway/visits.ts'
import { until } from './support/until.ts'

let both: Planes
let first: Slipway
let second: Slipway
let registryId: string

/** Returns its id, lives until its file is removed, and handles SIGTERM. */
const program = (text: string, startSeconds = 0): string[] => [
  '-c',
  `trap 'exit 0' TERM; touch /alive; mkdir /w; echo ${text} > /w/index.html; sleep ${startSeconds}; echo ${text} serves
   httpd -p 8080 -h /w; while :; do sleep 0.1; done`,
]

const liveness = {
  type: { exec: { command: ['test', '-e', '/alive'] } },
  initial_delay_seconds: 0,
  period_seconds: 1,
  failure_threshold: 2,
}

const createContainer = (plane: Slipway, { environmentId }: Place, name: string, more: Record<string, unknown> = {}) =>
  send(plane, 'POST', `/environment/${environmentId}/container`, {
    name,
    registry_id: registryId,
    image_name: busyboxName,
    tag: busyboxTag,
    entrypoint: 'sh',
    arguments: program(name),
    cpu: 100,
    memory: 64,
    ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    healthchecks: {},
    ...more,
  })

const settled = (plane: Slipway, { id }: Json, timeoutMs = 60_000): Promise<string> =>
  until(
    async () => {
      const { state } = await send(plane, 'GET', `/container/${id}/status`)
      return isSettled(state) ? state : null
    },
    { timeoutMs, what: 'the container to settle' },
  )

const lines = (plane: Slipway, sentence: string, serviceId: string): number =>
  plane
    .output()
    .split('\n')
    .filter((line) => line.includes(sentence) && line.includes(serviceId)).length

const linesOfBoth = (sentence: string, serviceId: string): number =>
  lines(first, sentence, serviceId) + lines(second, sentence, serviceId)

const running = async (id: string): Promise<string | undefined> =>
  (await containersOf(id)).find(({ State }) => State === 'running')?.Id

describe('two control planes', () => {
  // Before the database of this file is dropped.
  before(async () => {
    await ensureBusybox()
    both = await startPlanes()
    ;[first, second] = both.planes
    const { results } = await send(first, 'GET', '/organization')
    const organizationId = results?.[0]?.id ?? (await send(first, 'GET', '/organization')).id
    const registry = { name: 'hub', kind: 'DOCKER_HUB', url: 'https://docker.io', config: {} }
    registryId = (await send(first, 'POST', `/organization/${organizationId}/containerRegistry`, registry)).id
  })

  after(async () => {
    await both?.remove()
    await engine.close()
  })

  test('a request to either is done once, reported by both, and served by both', async (t) => {
    const place = await createPlace(first)
    const web = await createContainer(second, place, 'web')
    for (const [plane, other, text] of [
      [first, second, 'web'],
      [second, first, 'next'],
    ] as const) {
      await send(plane, 'PUT', `/container/${web.id}`, { arguments: program(text) })
      const stop = text === 'web' ? null : startVisits(both.planes, hostOf(place, 'web'), t)
      await send(plane, 'POST', `/container/${web.id}/deploy`, {})
      assert.equal(await settled(other, web), 'DEPLOYED')
      // A version is replaced without an error, whichever router a request comes to.
      const { failures, count } = (await stop?.()) ?? { failures: [], count: 1 }
      assert.deepEqual([failures, count > 0], [[], true])
      for (const each of both.planes) {
        assert.deepEqual(await visit(each, hostOf(place, 'web')), { status: 200, text })
        const logs = await send(each, 'GET', `/container/${web.id}/log`)
        assert.ok(JSON.stringify(logs).includes(`${text} serves`))
        const told = JSON.stringify(await send(each, 'GET', `/environment/${place.environmentId}/logs`))
        assert.equal(
          told.split('goes to the new version').length + told.split('go to the new version').length > 2,
          true,
        )
      }
    }
    const { results } = await send(first, 'GET', `/container/${web.id}/deploymentHistory`)
    assert.equal(results.length, 2)
    assert.equal((await containersOf(web.id)).length, 1)
    // A domain that is added at one of them is routed by both.
    await send(second, 'POST', `/container/${web.id}/customDomain`, {
      domain: 'both.example',
      generate_certificate: false,
    })
    for (const each of both.planes)
      await until(async () => (await visit(each, 'both.example')).text === 'next', { what: 'the domain to serve' })
  })

  test('a lost instance is replaced once, a dead one is restarted once, a due job runs once', async () => {
    const place = await createPlace(second)
    const gone = await createContainer(first, place, 'gone')
    const sick = await createContainer(first, place, 'sick', { healthchecks: { liveness_probe: liveness } })
    const nightly = await send(second, 'POST', `/environment/${place.environmentId}/job`, {
      name: 'nightly',
      source: { image: { registry_id: registryId, image_name: busyboxName, tag: busyboxTag } },
      schedule: { cronjob: { scheduled_at: '0 3 1 1 *', entrypoint: 'sh', arguments: ['-c', 'echo done'] } },
      cpu: 100,
      memory: 64,
      healthchecks: {},
    })
    await send(second, 'POST', `/environment/${place.environmentId}/deploy`)
    for (const each of [gone, sick]) assert.equal(await settled(first, each), 'DEPLOYED')
    await until(async () => (await both.workers()).length === 0, { timeoutMs: 30_000, what: 'the deployments to end' })
    const since = new Date()
    const [before, ill] = [await running(gone.id), await running(sick.id)]
    await removeContainer(before!)
    const body = { Cmd: ['rm', '/alive'] }
    const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${ill}/exec`, { body })
    await engine.call('POST', `/exec/${Id}/start`, { body: { Detach: true } })
    await both.database.query(`update schedule set next_at = clock_timestamp() where service_id = $1`, [nightly.id])
    await both.database.query(`select pg_notify('slipway_schedule', '')`)
    await until(async () => (await running(gone.id)) ?? false, { timeoutMs: 20_000, what: 'the replacement' })
    await until(() => linesOfBoth('liveness probe failed', sick.id) > 0, { timeoutMs: 20_000, what: 'the restart' })
    const runsOf = `select state from task_run where service_id = $1`
    await until(
      async () => (await both.database.query<{ state: string }>(runsOf, [nightly.id]))[0]?.state === 'SUCCEEDED',
      { timeoutMs: 20_000, what: 'the run' },
    )
    // A later replacement shows that no second server acted on the first one.
    const again = await running(gone.id)
    assert.notEqual(again, before)
    await removeContainer(again!)
    await until(async () => ![undefined, again].includes(await running(gone.id)), {
      timeoutMs: 20_000,
      what: 'the second replacement',
    })
    for (const each of both.planes)
      await until(async () => (await visit(each, hostOf(place, 'gone'))).text === 'gone', {
        timeoutMs: 10_000,
        what: 'both routers to lead to it',
      })
    // The engine reports in two steps that a container is gone, and one whose address is not free yet is made again: we
    // count who acts, and what starts to run.
    const acted = both.planes.filter((plane) => lines(plane, 'instances are missing', gone.id) > 0)
    assert.deepEqual(acted, [await both.holder()])
    assert.equal(await countOf(gone.id, since, 'start'), 2, JSON.stringify(await happenedTo(gone.id, since)))
    assert.equal(await countOf(sick.id, since, 'restart'), 1)
    assert.equal(linesOfBoth('liveness probe failed', sick.id), 1)
    assert.equal((await both.database.query(runsOf, [nightly.id])).length, 1)
    assert.equal(await countOf(nightly.id, since, 'start'), 1)
  })

  /** Requests slow deployments, each in a separate environment, until the holder works on one of them. */
  const keepBusy = async (holder: Slipway): Promise<{ place: Place; container: Json }[]> => {
    const begun: { place: Place; container: Json }[] = []
    while (!(await both.workers()).includes(holder)) {
      const place = await createPlace(first)
      const container = await createContainer(first, place, 'slow', { arguments: program('slow', 4) })
      await send(second, 'POST', `/container/${container.id}/deploy`, {})
      begun.push({ place, container })
      await until(async () => (await containersOf(container.id)).length > 0, {
        timeoutMs: 20_000,
        what: 'its instance',
      })
    }
    return begun
  }

  test('after a kill -9 of the active one the other finishes its deployments and takes over everything within 30 s', async () => {
    const place = await createPlace(first)
    const gone = await createContainer(first, place, 'gone')
    await send(first, 'POST', `/container/${gone.id}/deploy`, {})
    assert.equal(await settled(second, gone), 'DEPLOYED')
    const holder = await until(both.holder, { what: 'a holder' })
    const other = holder === first ? second : first
    const begun = await keepBusy(holder)
    const since = new Date()
    const before = await running(gone.id)
    await holder.kill('SIGKILL')
    await removeContainer(before!)
    const left = () => Math.max(0, since.getTime() + 30_000 - Date.now())
    for (const { container } of begun) assert.equal(await settled(other, container, left()), 'DEPLOYED')
    await until(async () => ![undefined, before].includes(await running(gone.id)), {
      timeoutMs: left(),
      what: 'the replacement',
    })
    const tookOverMs = Date.now() - since.getTime()
    assert.ok(tookOverMs <= 30_000, `${tookOverMs} ms`)
    assert.equal(await both.holder(), other)
    for (const { place: its, container } of begun) {
      assert.equal((await containersOf(container.id)).length, 1)
      assert.equal((await visit(other, hostOf(its, 'slow'))).text, 'slow')
    }
    // A server that is back serves what was deployed meanwhile, and does not become the holder while another one is.
    await holder.start()
    for (const { place: its } of begun) assert.equal((await visit(holder, hostOf(its, 'slow'))).text, 'slow')
    assert.equal((await visit(holder, hostOf(place, 'gone'))).text, 'gone')
    assert.equal(await both.holder(), other)
    assert.equal(await countOf(gone.id, since, 'start'), 1)
    // After a graceful stop no server waits for a lease to expire.
    const beganMs = performance.now()
    await other.kill('SIGTERM')
    await until(async () => (await both.holder()) === holder, { timeoutMs: 15_000, what: 'the other to take over' })
    const tookMs = performance.now() - beganMs
    assert.ok(tookMs < 12_000, `${tookMs} ms`)
    await other.start()
  })
})
