/** F19 and F20: cancels, deletes and clones that meet a deployment at random moments. */
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { page } from '../support/docker/apps.ts'
import { containersOf } from '../support/docker/docker.ts'
import { type Receiver, startReceiver } from '../support/peers/receiver.ts'
import type { Json } from '../support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, type Place, settle } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'
import { chance, median, moment, whole } from './figures.ts'
import { leftoversIn, type Scene, withScene } from './scene.ts'

const lanes = 5
const rounds = 10
const longestMomentMs = 3000

/** Runs `work` in each lane at once; a failure names its seed, so that it can be run again. */
const inLanes = async (work: (lane: number, next: () => number) => Promise<void>): Promise<number> => {
  const seed = Number(process.env.SLIPWAY_TEST_SEED ?? Date.now() % 1_000_000)
  const run = (lane: number) =>
    work(lane, chance(seed + lane)).catch((cause: unknown) => {
      throw new Error(`lane ${lane} of seed ${seed}: ${(cause as Error).message}`, { cause })
    })
  const ended = await Promise.allSettled(Array.from({ length: lanes }, (_, lane) => run(lane)))
  for (const each of ended) if (each.status === 'rejected') throw each.reason
  return seed
}

interface Outcomes {
  canceled: number
  deployed: number
  waitsMs: number[]
}

/** Deploys a new version, cancels at a moment of chance, and looks at what is left. */
const cancelOnce = async (
  scene: Scene,
  { place, application, name, round }: { place: Place; application: Json; name: string; round: number },
  momentMs: number,
  outcomes: Outcomes,
): Promise<void> => {
  const { slipway, git } = scene
  await git.commit(name, { 'index.html': `version ${round}\n` }, `version ${round}`)
  await deploy(slipway, application.id)
  await moment(momentMs)
  const answer = await slipway.api('POST', `/environment/${place.environmentId}/cancelDeployment`, {})
  assert.ok([202, 409].includes(answer.status), `the cancel was answered ${answer.status}`)
  const from = performance.now()
  const state = await settle(slipway, application.id, 15_000)
  outcomes.waitsMs.push(performance.now() - from)
  assert.ok(['CANCELED', 'DEPLOYED'].includes(state), state)
  if (answer.status === 409) assert.equal(state, 'DEPLOYED', 'a refused cancel came too late')
  if (state === 'CANCELED') outcomes.canceled += 1
  else outcomes.deployed += 1
  // The switch is the border: one version runs where one was ever deployed.
  await until(async () => (await containersOf(application.id)).length <= 1, {
    timeoutMs: 60_000,
    what: 'the other version to be gone',
  })
}

const listen = async ({ send }: Scene): Promise<Receiver> => {
  const receiver = await startReceiver()
  const organization = await send('GET', '/organization')
  const webhook = await send('POST', `/organization/${organization.id}/webhook`, {
    target_url: receiver.url,
    events: ['DEPLOYMENT_STARTED', 'DEPLOYMENT_SUCCESSFUL', 'DEPLOYMENT_FAILURE', 'DEPLOYMENT_CANCELLED'],
  })
  receiver.secret = webhook.signing_secret
  return receiver
}

/** Waits until an environment is deleted, and holds it to having left nothing on the engine. */
const gone = async ({ slipway }: Scene, environmentId: string): Promise<void> => {
  await until(async () => (await slipway.api('GET', `/environment/${environmentId}`)).status === 404, {
    timeoutMs: 60_000,
    what: 'the environment to be gone',
  })
  assert.equal(await leftoversIn(environmentId), 0, 'something of a deleted environment is left')
}

const isFinal = (event: string): boolean => event !== 'DEPLOYMENT_STARTED'

/** Each deployment ended once: in one state, with one event that says the same. */
const judge = async ({ send }: Scene, receiver: Receiver, application: Json): Promise<void> => {
  const { results } = await send('GET', `/application/${application.id}/deploymentHistoryV2?pageSize=100`)
  assert.equal(results.length, rounds)
  const mine = () => receiver.deliveries.filter(({ payload }) => payload.service_id === application.id)
  const ended = () => mine().filter(({ event }) => isFinal(event))
  await until(() => new Set(ended().map(({ payload }) => payload.deployment_id)).size === rounds, {
    timeoutMs: 30_000,
    what: 'a final event of each deployment',
  })
  assert.equal(new Set(ended().map(({ id }) => id)).size, rounds, 'one final event each')
  const words = { DEPLOYMENT_CANCELLED: 'CANCELED', DEPLOYMENT_SUCCESSFUL: 'DEPLOYED' } as Record<string, string>
  const told = new Map(ended().map(({ event, payload }) => [payload.execution_id, words[event]]))
  for (const { identifier, status } of results) assert.equal(told.get(identifier.execution_id), status)
}

const cancels: Fault = {
  id: 'F19',
  title: 'a cancel at any moment of a deployment ends in CANCELED or DEPLOYED, never both',
  deadlineMs: 600_000,
  run: () =>
    withScene({}, async (scene) => {
      const outcomes: Outcomes = { canceled: 0, deployed: 0, waitsMs: [] }
      const receiver = await listen(scene)
      const seed = await inLanes(async (lane, next) => {
        const name = `lane-${lane}`
        const place = await createPlace(scene.slipway)
        const application = await createApplication(
          scene.slipway,
          place,
          'web',
          await scene.repository(name, page('0')),
        )
        for (let round = 1; round <= rounds; round += 1)
          await cancelOnce(scene, { place, application, name, round }, next() * longestMomentMs, outcomes)
        await judge(scene, receiver, application)
        await scene.send('DELETE', `/environment/${place.environmentId}`)
        await gone(scene, place.environmentId)
      }).finally(() => receiver.close())
      // A build's file names its containers for as long as any of them is there.
      const builds = () => readdirSync(join(scene.slipway.dataDir, 'builds'))
      await until(() => builds().length === 0, { timeoutMs: 15_000, what: 'the last build to be gone' })
      const { canceled, deployed, waitsMs } = outcomes
      const longestMs = Math.max(...waitsMs)
      return `${canceled} CANCELED and ${deployed} DEPLOYED of ${lanes * rounds}, settled within ${whole(longestMs)} ms (median ${whole(median(waitsMs))} ms), nothing left, seed ${seed}`
    }),
}

/** What F20 saw. */
interface Meetings {
  accepted: number
  refused: number
}

type Meeting = (scene: Scene, place: Place, application: Json, momentMs: number, seen: Meetings) => Promise<void>

const count = (seen: Meetings, status: number, accepted: number): void => {
  assert.ok([accepted, 404, 409].includes(status), `answered ${status}`)
  if (status === accepted) seen.accepted += 1
  else seen.refused += 1
}

/** Deletes an environment, where that was refused or is under way too, and waits until nothing is left. */
const deleteAll = async (scene: Scene, environmentId: string): Promise<void> => {
  await until(
    async () => [204, 404].includes((await scene.slipway.api('DELETE', `/environment/${environmentId}`)).status),
    { timeoutMs: 60_000, what: 'the delete to be accepted' },
  )
  await gone(scene, environmentId)
}

const deleteDuringDeploy: Meeting = async (scene, { environmentId }, { id }, momentMs, seen) => {
  await deploy(scene.slipway, id)
  await moment(momentMs)
  count(seen, (await scene.slipway.api('DELETE', `/environment/${environmentId}`)).status, 204)
  await deleteAll(scene, environmentId)
}

/** Asks for a delete and for something else, either first, so near to each other that their order is chance. */
const meet = async <T>(
  { slipway }: Scene,
  environmentId: string,
  momentMs: number,
  other: () => Promise<T>,
): Promise<T> => {
  const [deleteAt, otherAt] = momentMs % 2 < 1 ? [0, momentMs / 50] : [momentMs / 50, 0]
  const [, answer] = await Promise.all([
    moment(deleteAt).then(() => slipway.api('DELETE', `/environment/${environmentId}`)),
    moment(otherAt).then(other),
  ])
  return answer
}

const deployDuringDelete: Meeting = async (scene, { environmentId }, { id }, momentMs, seen) => {
  await deploy(scene.slipway, id)
  assert.equal(await settle(scene.slipway, id), 'DEPLOYED')
  const again = () => scene.slipway.api('POST', `/application/${id}/deploy`)
  count(seen, (await meet(scene, environmentId, momentMs, again)).status, 202)
  await deleteAll(scene, environmentId)
}

const cloneDuringDelete: Meeting = async (scene, { environmentId }, { id }, momentMs, seen) => {
  await deploy(scene.slipway, id)
  await moment(momentMs)
  const copy = () => scene.slipway.api('POST', `/environment/${environmentId}/clone`, { name: `clone-of-${id}` })
  const clone = await meet(scene, environmentId, momentMs, copy)
  count(seen, clone.status, 202)
  await deleteAll(scene, environmentId)
  if (clone.status !== 202) return
  const { results } = await scene.send('GET', `/environment/${clone.body.id}/application`)
  assert.equal(results.length, 1, 'a clone is whole')
  await deleteAll(scene, clone.body.id)
}

const meetings: [string, Meeting][] = [
  ['delete during deploy', deleteDuringDeploy],
  ['deploy during delete', deployDuringDelete],
  ['clone during delete', cloneDuringDelete],
]

const deletes: Fault = {
  id: 'F20',
  title: 'deletes, deploys and clones that meet are ordered or refused, and a delete leaves nothing',
  deadlineMs: 600_000,
  run: () =>
    withScene({}, async (scene) => {
      const seen = meetings.map(() => ({ accepted: 0, refused: 0 }))
      const seed = await inLanes(async (lane, next) => {
        const url = await scene.repository(`lane-${lane}`, page('0'))
        for (let round = 1; round <= rounds; round += 1) {
          await scene.git.commit(`lane-${lane}`, { 'index.html': `version ${round}\n` }, `version ${round}`)
          const place = await createPlace(scene.slipway)
          const application = await createApplication(scene.slipway, place, 'web', url)
          const kind = (lane + round) % meetings.length
          await meetings[kind]![1](scene, place, application, next() * longestMomentMs, seen[kind]!)
        }
      })
      const told = meetings.map(
        ([name], kind) => `${name}: ${seen[kind]!.accepted} taken, ${seen[kind]!.refused} refused`,
      )
      return `${told.join('; ')}; all ended DELETED with nothing left, seed ${seed}`
    }),
}

export const raceFaults: readonly Fault[] = [cancels, deletes]
