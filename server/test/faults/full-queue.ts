/** F27: a thousand deployments of a thousand services wait at once. */
import assert from 'node:assert/strict'
import type { Json } from '../support/slipway/slipway.ts'
import { createPlace, type Place, settleAt } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'
import { timed, whole } from './figures.ts'
import { addContainer, addRegistry, type Scene, withScene } from './scene.ts'

const environments = 100
const servicesEach = 10
const cap = 4
/** Deployments of the other organization. */
const late = 5

const fill = async (scene: Scene, place: Place): Promise<string[]> => {
  const registry = await addRegistry(scene, place, 'any', 'https://registry.example')
  const image = { registry_id: registry.id, image_name: 'fake/slow', tag: '20' }
  for (let n = 0; n < servicesEach; n += 1) await addContainer(scene, place.environmentId, `service-${n}`, image)
  const ids = [place.environmentId]
  for (let n = 1; n < environments; n += 1) {
    const clone = await scene.send('POST', `/environment/${place.environmentId}/clone`, { name: `crowd-${n}` })
    ids.push(clone.id)
  }
  const lists = await Promise.all(ids.map((id) => scene.send('GET', `/environment/${id}/container`)))
  return lists.flatMap(({ results }) => results.map(({ id }: Json) => id))
}

const otherOrganization = async (scene: Scene): Promise<string[]> => {
  const organization = await scene.send('POST', '/organization', { name: 'Other', plan: 'FREE' })
  const project = await scene.send('POST', `/organization/${organization.id}/project`, { name: 'Other' })
  const environment = await scene.send('POST', `/project/${project.id}/environment`, {
    name: 'other',
    mode: 'DEVELOPMENT',
  })
  const place = { organizationId: organization.id, projectId: project.id } as Place
  const registry = await addRegistry(scene, place, 'any', 'https://registry.example')
  const image = { registry_id: registry.id, image_name: 'fake/slow', tag: '20' }
  const ids: string[] = []
  for (let n = 0; n < late; n += 1) ids.push((await addContainer(scene, environment.id, `late-${n}`, image)).id)
  return ids
}

const deployOne = async ({ slipway }: Scene, id: string): Promise<void> => {
  const answer = await slipway.api('POST', `/container/${id}/deploy`, { image_tag: '20' })
  assert.equal(answer.status, 202, JSON.stringify(answer.body))
}

/** Sixteen clients ask for one deployment after the other. */
const deployAll = async (scene: Scene, ids: readonly string[]): Promise<void> => {
  const left = [...ids]
  const client = async (): Promise<void> => {
    for (let id = left.pop(); id !== undefined; id = left.pop()) await deployOne(scene, id)
  }
  await Promise.all(Array.from({ length: 16 }, client))
}

const figures = async ({ slipway }: Scene): Promise<Record<string, number>> => {
  const text = await (await fetch(`${slipway.url}/metrics`)).text()
  const found = text.matchAll(/^slipway_deployments\{state="(\w+)"\} (\d+)$/gm)
  return Object.fromEntries([...found].map(([, state, count]) => [state, Number(count)]))
}

const fullQueue: Fault = {
  id: 'F27',
  title: 'a full queue takes every deployment, keeps to its cap, is fair to others, and drains',
  deadlineMs: 600_000,
  run: () =>
    withScene({ fake: true, env: { SLIPWAY_DEPLOY_CONCURRENCY: String(cap) } }, async (scene) => {
      const place = await createPlace(scene.slipway)
      const crowd = await fill(scene, place)
      assert.equal(crowd.length, environments * servicesEach)
      const others = await otherOrganization(scene)
      const acceptedMs = await timed(() => deployAll(scene, crowd))
      const { QUEUED: waiting = 0 } = await figures(scene)
      const fairMs = await timed(async () => {
        for (const id of others) await deployOne(scene, id)
        for (const id of others) assert.equal(await settleAt(scene.slipway, `/container/${id}`), 'DEPLOYED')
      })
      const { QUEUED: left = 0 } = await figures(scene)
      let most = 0
      const drainedMs = await timed(() =>
        until(
          async () => {
            const { QUEUED = 0, RUNNING = 0 } = await figures(scene)
            most = Math.max(most, RUNNING)
            return QUEUED + RUNNING === 0
          },
          { timeoutMs: 400_000, what: 'the queue to drain' },
        ),
      )
      const { SUCCEEDED } = await figures(scene)
      assert.equal(SUCCEEDED, crowd.length + late)
      // The first one of another organization does not wait for the crowd.
      assert.ok(most > 0 && most <= cap + 1, `${most} ran at once`)
      assert.ok(waiting > 100, `only ${waiting} were waiting`)
      // At most half of the places are another's: few of those that waited first may have gone before.
      assert.ok(left > waiting / 2, `of ${waiting} that waited first ${left} were left when the other was served`)
      return [
        `${crowd.length} accepted in ${whole(acceptedMs)} ms, at most ${most} of ${cap} at once`,
        `${late} of another organization done in ${whole(fairMs)} ms before ${left} of ${waiting} that waited first`,
        `drained ${whole(drainedMs)} ms later`,
      ].join('; ')
    }),
}

export const queueFaults: readonly Fault[] = [fullQueue]
