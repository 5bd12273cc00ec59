// Runs alone: it measures, or takes what the machine has.
/**
 * Sleep and scaling on the real engine: many requests wake a service once, and a busy program gets instances until it
 * is idle.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { after, before, describe, test } from 'node:test'
import { containersOf } from './support/docker/docker.ts'
import { ensureNodeImage, nodeImage } from './support/docker/node-image.ts'
import { countOf, send } from './support/planes.ts'
import { readAnswer } from './support/router/parts.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createPlace, hostOf, type Place } from './support/slipway/story.ts'
import { until } from './support/until.ts'

let slipway: Slipway
let place: Place
let registryId: string

const program = `
  let burning = false
  setInterval(() => { for (const end = Date.now() + 60; burning && Date.now() < end; ); }, 80)
  require('node:http').createServer((req, res) => {
    if (req.url === '/burn') burning = true
    if (req.url === '/calm') burning = false
    res.end(process.env.HOSTNAME)
  }).listen(8080)
  process.on('SIGTERM', () => process.exit())`

const create = async (name: string, more: Record<string, unknown>): Promise<Json> => {
  const [image, tag] = nodeImage.split(':')
  const made = await send(slipway, 'POST', `/environment/${place.environmentId}/container`, {
    name,
    registry_id: registryId,
    image_name: image,
    tag,
    arguments: ['-e', program],
    cpu: 500,
    memory: 128,
    ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    healthchecks: {},
    ...more,
  })
  await send(slipway, 'POST', `/container/${made.id}/deploy`, {})
  await shows(made, ({ deployment_state }) => deployment_state === 'DEPLOYED', 'the deployment')
  return made
}

const shows = ({ id }: Json, is: (status: Json) => boolean, what: string): Promise<Json> =>
  until(
    async () => {
      const status = await send(slipway, 'GET', `/container/${id}/status`)
      assert.doesNotMatch(status.deployment_state, /_ERROR$/, JSON.stringify(status.error))
      return is(status) ? status : null
    },
    { what, timeoutMs: 60_000 },
  )

/** Each on a separate connection; how long it took, in milliseconds. */
const agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY })
const ask = async (host: string, path = '/'): Promise<{ status: number; body: string; ms: number }> => {
  const beganMs = performance.now()
  const out = request({ host: '127.0.0.1', port: slipway.routerPort, path, agent, headers: { host } })
  out.end()
  const [answer] = await once(out, 'response')
  const { status, body } = await readAnswer(answer)
  return { status, body, ms: performance.now() - beganMs }
}

describe('sleep and scaling', () => {
  before(async () => {
    await ensureNodeImage()
    const times = { SLIPWAY_SLEEP_AFTER_SECONDS: '2', SLIPWAY_SCALE_UP_SECONDS: '2', SLIPWAY_SCALE_DOWN_SECONDS: '4' }
    slipway = await prepareSlipway({ env: times })
    await slipway.start()
    place = await createPlace(slipway)
    const registry = { name: 'hub', kind: 'DOCKER_HUB', url: 'https://docker.io', config: {} }
    const path = `/organization/${place.organizationId}/containerRegistry`
    registryId = (await send(slipway, 'POST', path, registry)).id
  })
  after(async () => {
    agent.destroy()
    await slipway?.remove()
  })

  test('a thousand requests that come while a service sleeps are all answered, after one start', async (t) => {
    const made = await create('sleeper', { min_running_instances: 0 })
    await shows(made, ({ scaling }) => scaling.asleep, 'sleep')
    await until(async () => (await containersOf(made.id)).length === 0, { what: 'no container', timeoutMs: 30_000 })
    const since = new Date()
    const answers = await Promise.all(Array.from({ length: 1000 }, () => ask(hostOf(place, 'sleeper'))))
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200])
    assert.equal(new Set(answers.map(({ body }) => body)).size, 1)
    assert.equal(await countOf(made.id, since, 'start'), 1)
    const ms = answers.map((answer) => Math.round(answer.ms)).sort((a, b) => a - b)
    t.diagnostic(`1,000 requests at once: first ${ms[0]} ms, median ${ms[500]} ms, last ${ms[999]} ms`)
    const awake = await shows(made, ({ running_state }) => running_state === 'RUNNING', 'being awake')
    assert.equal(awake.scaling.running_instances, 1)
    // One request alone, as a person makes it.
    await shows(made, ({ scaling }) => scaling.asleep, 'sleep again')
    await until(async () => (await containersOf(made.id)).length === 0, { what: 'no container', timeoutMs: 30_000 })
    const { status, ms: alone } = await ask(hostOf(place, 'sleeper'))
    assert.equal(status, 200)
    t.diagnostic(`one request: ${Math.round(alone)} ms`)
  })

  test('a busy program gets a second instance, and loses it when it is idle; the first is never restarted', async () => {
    const made = await create('busy', { min_running_instances: 1, max_running_instances: 2, cpu: 200 })
    const running = async () => (await containersOf(made.id)).filter(({ State }) => State === 'running')
    const [first] = await running()
    assert.equal((await ask(hostOf(place, 'busy'), '/burn')).status, 200)
    await shows(made, ({ scaling }) => scaling.running_instances === 2, 'two instances')
    await until(async () => (await running()).length === 2, { what: 'two containers' })
    await until(
      async () => {
        await ask(hostOf(place, 'busy'), '/calm')
        return (await send(slipway, 'GET', `/container/${made.id}/status`)).scaling.running_instances === 1
      },
      { what: 'one instance', timeoutMs: 60_000 },
    )
    await until(async () => (await containersOf(made.id)).length === 1, { what: 'one container', timeoutMs: 30_000 })
    assert.deepEqual(
      (await running()).map(({ Id }) => Id),
      [first!.Id],
    )
  })
})
