/** F18: the same request twice, with a key and without. */
import assert from 'node:assert/strict'
import type { Answer, Json } from '../support/slipway/slipway.ts'
import { createPlace, type Place, settleAt, stateAt } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'
import { addContainer, addRegistry, type Scene, withScene } from './scene.ts'

const key = (text: string) => ({ 'idempotency-key': text })

const isReplay = ({ headers }: Answer): boolean => headers.get('idempotent-replayed') === 'true'

/** A create, twice with one key: one thing, one answer; another body or a key in use is refused. */
const createTwice = async ({ slipway }: Scene, place: Place): Promise<void> => {
  const path = `/project/${place.projectId}/environment`
  const body = { name: 'twin', mode: 'DEVELOPMENT' }
  const [first, second] = [
    await slipway.api('POST', path, body, key('k1')),
    await slipway.api('POST', path, body, key('k1')),
  ]
  assert.deepEqual([first.status, isReplay(first)], [201, false])
  assert.deepEqual([second.status, isReplay(second), second.body], [201, true, first.body])
  const other = await slipway.api('POST', path, { ...body, name: 'other' }, key('k1'))
  assert.deepEqual([other.status, other.body.code], [409, 'idempotency_mismatch'])
  const without = await slipway.api('POST', path, body)
  assert.equal(without.status, 409)
  const invalid = await slipway.api('POST', path, { mode: 'DEVELOPMENT' }, key('k2'))
  assert.equal(invalid.status, 400)
  const corrected = await slipway.api('POST', path, { ...body, name: 'third' }, key('k2'))
  assert.equal(corrected.status, 201, 'a refused body does not use the key up')
  for (const bad of ['', 'x'.repeat(256), 'two words'])
    assert.equal((await slipway.api('POST', path, body, key(bad))).status, 400, `key of ${bad.length} characters`)
}

const racing = 20

/** Twenty at once with one key: one effect; the others get its answer, or the answer that it is still running. */
const race = async ({ slipway, send }: Scene, place: Place): Promise<{ replayed: number; refused: number }> => {
  const path = `/project/${place.projectId}/environment`
  const body = { name: 'raced', mode: 'DEVELOPMENT' }
  const answers = await Promise.all(Array.from({ length: racing }, () => slipway.api('POST', path, body, key('race'))))
  const made = answers.filter(({ status }) => status === 201)
  const refused = answers.filter(({ status, body }) => status === 409 && body.code === 'idempotency_in_progress')
  assert.equal(made.length + refused.length, racing, JSON.stringify(answers.map(({ status }) => status)))
  assert.equal(made.filter((answer) => !isReplay(answer)).length, 1)
  assert.equal(new Set(made.map((answer) => answer.body.id)).size, 1)
  const { results } = await send('GET', path)
  assert.equal(results.filter(({ name }: Json) => name === 'raced').length, 1)
  return { replayed: made.length - 1, refused: refused.length }
}

const deploymentsOf = async ({ send }: Scene, environmentId: string): Promise<number> =>
  (await send('GET', `/environment/${environmentId}/deploymentHistoryV2`)).results.length

/** Deploys of one service: with a key one deployment, without a key those that wait are joined. */
const deployTwice = async (scene: Scene, place: Place): Promise<void> => {
  const { slipway, send } = scene
  const registry = await addRegistry(scene, place, 'any', 'https://registry.example')
  const image = { registry_id: registry.id, image_name: 'fake/slow', tag: '3000' }
  const { id } = await addContainer(scene, place.environmentId, 'slow', image)
  const path = `/container/${id}`
  const ask = (headers = {}) => slipway.api('POST', `${path}/deploy`, { image_tag: '3000' }, headers)
  const [first, again] = [await ask(key('d1')), await ask(key('d1'))]
  assert.deepEqual([first.status, again.status, isReplay(again)], [202, 202, true])
  assert.equal(again.body.deployment_request_id, first.body.deployment_request_id)
  await until(async () => (await stateAt(scene.slipway, path)) !== 'DEPLOYMENT_QUEUED', {
    what: 'the first deployment to run',
  })
  const waiting = await Promise.all([ask(), ask(), ask()])
  assert.deepEqual(
    waiting.map(({ status }) => status),
    [202, 202, 202],
  )
  const ids = new Set(waiting.map(({ body }) => body.deployment_request_id))
  assert.deepEqual([ids.size, ids.has(first.body.deployment_request_id)], [1, false])
  assert.equal(await settleAt(scene.slipway, path, 30_000), 'DEPLOYED')
  assert.equal(await deploymentsOf(scene, place.environmentId), 2)

  const spec = await send('GET', path)
  const edit = { name: 'slow', registry_id: spec.registry.id, image_name: 'fake/slow', tag: '3000', healthchecks: {} }
  const [one, two] = [await send('PUT', path, edit), await send('PUT', path, edit)]
  assert.deepEqual({ ...two, updated_at: 0 }, { ...one, updated_at: 0 })
  assert.equal((await slipway.api('DELETE', path)).status, 204)
  await until(async () => (await slipway.api('GET', path)).status === 404, { timeoutMs: 20_000, what: 'the delete' })
  assert.equal((await slipway.api('DELETE', path)).status, 404)
}

const duplicates: Fault = {
  id: 'F18',
  title: 'a request that comes twice has one effect',
  deadlineMs: 120_000,
  run: () =>
    withScene({ fake: true }, async (scene) => {
      const place = await createPlace(scene.slipway)
      await createTwice(scene, place)
      const { replayed, refused } = await race(scene, place)
      await deployTwice(scene, place)
      return `${racing} creates at once made one, ${replayed} were replayed and ${refused} told to wait; 3 waiting deploys joined`
    }),
}

export const duplicateFaults: readonly Fault[] = [duplicates]
