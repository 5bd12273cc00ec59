/** F15: webhook receivers that are down, slow, broken, endless, gone or busy, beside one that is well. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { freePort, type Json } from '../support/slipway/slipway.ts'
import { createPlace, type Place, settleAt } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'
import { whole } from './figures.ts'
import { addContainer, addRegistry, type Scene, withScene } from './scene.ts'

interface Call {
  at: number
  id: string
  event: string
  service: string
}

type Behaviour = (response: ServerResponse, call: number) => void

interface BadReceiver {
  url: string
  calls: Call[]
  close(): Promise<void>
}

const read = async (request: IncomingMessage): Promise<Json> => {
  let text = ''
  for await (const chunk of request) text += chunk
  return text === '' ? {} : JSON.parse(text)
}

const startReceiver = async (behave: Behaviour): Promise<BadReceiver> => {
  const calls: Call[] = []
  const server = createServer(async (request, response) => {
    const at = performance.now()
    const { event_type: event, payload } = await read(request)
    calls.push({ at, id: String(request.headers['webhook-id']), event, service: payload?.service_id })
    response.on('error', () => {})
    behave(response, calls.length)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}/hook`,
    calls,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

const status =
  (code: number, headers: Record<string, string> = {}): Behaviour =>
  (response) =>
    void response.writeHead(code, headers).end()

const endless: Behaviour = (response) => {
  const more = (): void => {
    while (!response.destroyed) if (!response.write('x'.repeat(16_384))) break
  }
  response.writeHead(200).on('drain', more)
  more()
}

const retryAfterSeconds = 3
const attempts = 4
const schedule = '0,1,1,1'
const services = 8

/** Receivers by what is wrong with them; `trap` is where the redirect leads. */
const startAll = async () => {
  const trap = await startReceiver(status(200))
  const busy: Behaviour = (response, call) =>
    call === 1 ? status(429, { 'retry-after': String(retryAfterSeconds) })(response, call) : status(200)(response, call)
  const made = {
    good: await startReceiver(status(200)),
    slow: await startReceiver(() => {}),
    broken: await startReceiver(status(500)),
    redirect: await startReceiver(status(302, { location: trap.url })),
    endless: await startReceiver(endless),
    gone: await startReceiver(status(410)),
    busy: await startReceiver(busy),
  }
  const close = () => Promise.all([trap, ...Object.values(made)].map((each) => each.close()))
  return { ...made, trap, down: { url: `http://127.0.0.1:${await freePort()}/hook`, calls: [] as Call[] }, close }
}

type Receivers = Awaited<ReturnType<typeof startAll>>

const register = async ({ send }: Scene, place: Place, receivers: Receivers): Promise<Map<string, string>> => {
  const ids = new Map<string, string>()
  for (const name of ['slow', 'broken', 'redirect', 'endless', 'gone', 'busy', 'down', 'good'] as const) {
    const { id } = await send('POST', `/organization/${place.organizationId}/webhook`, {
      target_url: receivers[name].url,
      events: ['DEPLOYMENT_STARTED', 'DEPLOYMENT_SUCCESSFUL', 'DEPLOYMENT_FAILURE'],
      description: name,
    })
    ids.set(name, id)
  }
  return ids
}

/** Deploys them all; answers when each was accepted and when it was seen to be done, by the service's id. */
const deployAll = async (scene: Scene, ids: readonly string[]) => {
  const times = new Map<string, { acceptedAt: number; doneAt: number }>()
  for (const id of ids) {
    await scene.send('POST', `/container/${id}/deploy`, { image_tag: '1' })
    const acceptedAt = performance.now()
    assert.equal(await settleAt(scene.slipway, `/container/${id}`, 10_000), 'DEPLOYED')
    times.set(id, { acceptedAt, doneAt: performance.now() })
  }
  return times
}

const newContainers = async (scene: Scene, place: Place): Promise<string[]> => {
  const registry = await addRegistry(scene, place, 'any', 'https://registry.example')
  const image = { registry_id: registry.id, image_name: 'fake/serve', tag: '1' }
  const ids: string[] = []
  for (let n = 0; n < services; n += 1)
    ids.push((await addContainer(scene, place.environmentId, `service-${n}`, image)).id)
  return ids
}

/** The longest time between a change and its event at the receiver that is well, in milliseconds. */
const longestDelay = ({ good }: Receivers, times: Awaited<ReturnType<typeof deployAll>>): number =>
  Math.max(
    ...good.calls.map(({ at, event, service }) => {
      const { acceptedAt, doneAt } = times.get(service)!
      return at - (event === 'DEPLOYMENT_STARTED' ? acceptedAt : doneAt)
    }),
  )

/** Attempts for each event. */
const attemptsOf = (calls: readonly Call[]): number[] => {
  const counts = new Map<string, number>()
  for (const { id } of calls) counts.set(id, (counts.get(id) ?? 0) + 1)
  return [...counts.values()]
}

const webhooks: Fault = {
  id: 'F15',
  title:
    'a webhook receiver that is down, slow, broken, endless, gone or busy harms no deployment and no other receiver',
  deadlineMs: 150_000,
  run: () =>
    withScene({ fake: true, env: { SLIPWAY_WEBHOOK_SCHEDULE: schedule } }, async (scene) => {
      const receivers = await startAll()
      try {
        const place = await createPlace(scene.slipway)
        const ids = await register(scene, place, receivers)
        const containers = await newContainers(scene, place)
        const times = await deployAll(scene, containers)
        const slowestMs = Math.max(...[...times.values()].map(({ acceptedAt, doneAt }) => doneAt - acceptedAt))
        const { good, slow, broken, redirect, endless: talking, gone, busy, trap } = receivers
        const expected = 2 * services
        await until(() => good.calls.length === expected, {
          timeoutMs: 10_000,
          what: 'every event at the good receiver',
        })
        const delayMs = longestDelay(receivers, times)
        assert.ok(delayMs <= 1000, `an event came ${whole(delayMs)} ms late`)

        await until(() => attemptsOf(broken.calls).filter((count) => count === attempts).length >= services, {
          timeoutMs: 60_000,
          what: 'the schedule of the broken receiver',
        })
        assert.ok(Math.max(...attemptsOf(broken.calls)) <= attempts, 'no attempt beyond the schedule')
        assert.ok(redirect.calls.length > 0 && trap.calls.length === 0, 'a redirect was followed')
        await until(() => busy.calls.length >= expected + 1, { timeoutMs: 30_000, what: 'the busy receiver' })
        const first = busy.calls.filter(({ id }) => id === busy.calls[0]!.id)
        const waitedMs = first[1]!.at - first[0]!.at
        assert.ok(waitedMs >= retryAfterSeconds * 1000 - 50, `asked again after ${whole(waitedMs)} ms`)
        assert.ok(slow.calls.length > 0 && talking.calls.length > 0)
        const disabled = await scene.send('GET', `/organization/${place.organizationId}/webhook/${ids.get('gone')}`)
        assert.equal(disabled.enabled, false)
        assert.ok(gone.calls.length <= services, `${gone.calls.length} deliveries to a receiver that is gone`)
        return [
          `deploys took up to ${whole(slowestMs)} ms, events came within ${whole(delayMs)} ms`,
          `${attempts} attempts, none to the redirect's target, again ${whole(waitedMs)} ms after Retry-After: ${retryAfterSeconds}`,
          `410 disabled after ${gone.calls.length}`,
        ].join('; ')
      } finally {
        await receivers.close()
      }
    }),
}

export const receiverFaults: readonly Fault[] = [webhooks]
