/** F1: kill -9 at each step of a deployment, and at moments of chance: what was begun ends as if nothing had been. */
import assert from 'node:assert/strict'
import { page } from '../support/docker/apps.ts'
import { containersOf } from '../support/docker/docker.ts'
import { leftoversOf, ownerOf } from '../support/docker/leftovers.ts'
import type { Receiver } from '../support/peers/receiver.ts'
import { createApplication, createPlace, hostOf, type Place, settle, visit } from '../support/slipway/story.ts'
import { startVisits } from '../support/slipway/visits.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'
import { chance, moment, timed, whole } from './figures.ts'
import { arm, moments } from './kill-moments.ts'
import { type Scene, withScene } from './scene.ts'
import { assertTold, listenTo } from './told.ts'

const kills = Number(process.env.FAULT_KILLS ?? 200)
const seed = Number(process.env.FAULT_SEED ?? Date.now() % 1_000_000)
const longestMomentMs = 1500
const services = 8
const throughMs = 60_000

interface Service {
  id: string
  name: string
  place: Place
  version: number
}

interface Story {
  scene: Scene
  receiver: Receiver
  ownerId: string
  all: Service[]
  /** Deployments asked for. */
  asked: Set<string>
  slowestMs: number
  visits: number
}

const createService = async (scene: Scene, name: string): Promise<Service> => {
  const place = await createPlace(scene.slipway)
  const { id } = await createApplication(scene.slipway, place, name, await scene.repository(name, page(`${name} 0`)))
  return { id, name, place, version: 0 }
}

const textOf = ({ name, version }: Service): string => `${name} ${version}`

/** Asks for the version it is to have; may be asked twice. */
const ask = async ({ scene: { slipway }, asked }: Story, service: Service): Promise<void> => {
  const headers = { 'idempotency-key': textOf(service).replace(' ', '-') }
  const { status, body } = await slipway.api('POST', `/application/${service.id}/deploy`, undefined, headers)
  assert.equal(status, 202, JSON.stringify(body))
  asked.add(body.deployment_request_id)
}

const makeNext = async ({ scene: { git } }: Story, service: Service): Promise<void> => {
  service.version += 1
  await git.commit(service.name, { 'index.html': `${textOf(service)}\n` }, textOf(service))
}

const askForNext = async (story: Story, service: Service): Promise<void> => {
  await makeNext(story, service)
  await ask(story, service)
}

/** What must hold once a service's deployments are through, whatever died meanwhile. */
const assertThrough = async ({ scene: { slipway } }: Story, service: Service): Promise<void> => {
  assert.equal(await settle(slipway, service.id, throughMs), 'DEPLOYED', textOf(service))
  assert.deepEqual(await visit(slipway, hostOf(service.place, service.name)), { status: 200, text: textOf(service) })
  // A kill between the switch and the end of the old version leaves that one to reconcile.
  await until(async () => (await containersOf(service.id)).length === 1, {
    timeoutMs: throughMs,
    what: `one container of ${service.name}`,
  })
}

/** All of them, at most a minute after the start; and nothing else is on the engine. */
const assertAllThrough = async (story: Story): Promise<void> => {
  const from = performance.now()
  for (const service of story.all) await assertThrough(story, service)
  story.slowestMs = Math.max(story.slowestMs, performance.now() - from)
  assert.ok(story.slowestMs <= throughMs, `through after ${whole(story.slowestMs)} ms`)
  const left = await leftoversOf(story.ownerId)
  assert.equal(left.filter((each) => each.startsWith('container')).length, story.all.length, left.join(', '))
}

/** Runs `work` while the first service is visited: it may not be away for a moment. */
const whileVisited = async (story: Story, work: () => Promise<void>): Promise<void> => {
  const { place, name } = story.all[0]!
  const end = startVisits([story.scene.slipway], hostOf(place, name))
  await work().finally(async () => {
    const { failures, count } = await end()
    assert.deepEqual(failures, [])
    story.visits += count
  })
}

const killAtEachStep = async (story: Story): Promise<void> => {
  const { slipway } = story.scene
  const service = story.all[0]!
  for (const name of moments) {
    await assertTold(story.receiver, story.asked)
    await makeNext(story, service)
    const armed = await arm(name, { slipway, receiver: story.receiver, serviceId: service.id })
    // The first moments may come before the answer does.
    const answered = await ask(story, service).then(
      () => true,
      () => false,
    )
    await armed.struck()
    await slipway.start()
    if (!answered) await ask(story, service)
    await assertThrough(story, service).catch((error: Error) => {
      throw new Error(`killed at ${name}: ${error.message}`)
    })
  }
}

/** One kill after each deployment, of one service after another: the ones before are still under way. */
const killAtRandom = async (story: Story): Promise<void> => {
  const { slipway } = story.scene
  const next = chance(seed)
  for (let done = 0; done < kills; ) {
    for (const service of story.all.slice(0, kills - done)) {
      await askForNext(story, service)
      await moment(next() * longestMomentMs)
      await slipway.kill('SIGKILL')
      await slipway.start()
      done += 1
    }
    await assertAllThrough(story)
  }
}

const tell = async (scene: Scene): Promise<string> => {
  const all: Service[] = []
  for (let index = 0; index < services; index += 1) all.push(await createService(scene, `app${index}`))
  const receiver = await listenTo(scene, all[0]!.place)
  const ownerId = (await ownerOf(scene.slipway.dataDir))!
  const story: Story = { scene, receiver, ownerId, all, asked: new Set(), slowestMs: 0, visits: 0 }
  try {
    for (const service of all) await askForNext(story, service)
    await assertAllThrough(story)
    await whileVisited(story, () => killAtEachStep(story))
    const randomMs = await timed(() => whileVisited(story, () => killAtRandom(story)))
    const repeats = await assertTold(receiver, story.asked)
    return `${moments.length} steps and ${kills} moments (seed ${seed}) in ${whole(randomMs / 1000)} s: ${story.asked.size} deployments through, at most ${whole(story.slowestMs)} ms after a start; ${receiver.deliveries.length} events, ${repeats} of them repeats; ${story.visits} visits, none failed`
  } finally {
    await receiver.close()
  }
}

const killed: Fault = {
  id: 'F1',
  title:
    'after kill -9 at any step every deployment ends, the old version serves until the new one does, nothing is left',
  deadlineMs: 300_000 + kills * 6000,
  run: () => withScene({ env: { SLIPWAY_LOG_LEVEL: 'debug', SLIPWAY_WEBHOOK_SCHEDULE: '0,1,1,1,1,1,1,1' } }, tell),
}

export const killFaults: readonly Fault[] = [killed]
