import assert from 'node:assert/strict'
import { test } from 'node:test'
import { containerBody, newRegistry } from '../../../test/cases/container.ts'
import { databaseBody } from '../../../test/cases/database.ts'
import { applicationBody, type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { newScene } from '../../../test/support/scene.ts'
import { notAppliedHeader } from '../../api/operations/not-applied.ts'
import { learnCapacity } from '../../clusters/capacity.ts'

const api = await startApi()
const { call, runtime } = api
const scene = newScene(api)

const limitVolumes = async (does: boolean): Promise<void> => {
  runtime.limitVolumes(does)
  for (const cluster of api.parts.clusters.all()) await learnCapacity(api.database, cluster)
}

const storage = (...sizes: number[]) => sizes.map((size, index) => ({ mount_point: `/data-${index}`, size }))

const plannedSizes = async (environmentId: string): Promise<Record<string, string[]>> => {
  const { body } = await call('POST', `/environment/${environmentId}/deploy?dry_run=true`)
  const services: Json[] = body.stages.flatMap(({ services }: Json) => services)
  return Object.fromEntries(
    services.map(({ name, not_applied: fields }) => [name, fields.filter((field: string) => /storage/.test(field))]),
  )
}

test('what the cluster does not limit is named by writes and plans, for applications, containers and databases', async () => {
  const registryId = await newRegistry(api)
  for (const limits of [false, true]) {
    await limitVolumes(limits)
    const { environmentId } = await newPlace(api)
    const named = async (method: string, path: string, body: object): Promise<[Json, string | null]> => {
      const answer = await call(method, path, body)
      assert.ok(answer.status < 300, JSON.stringify(answer.body))
      return [answer.body, answer.headers.get(notAppliedHeader)]
    }
    const create = (kind: string, body: object) => named('POST', `/environment/${environmentId}/${kind}`, body)
    const where = (field: string) => (limits ? null : field)
    const [web, first] = await create('application', applicationBody('web', { storage: storage(4, 8) }))
    assert.equal(first, where('/storage/0/size, /storage/1/size'))
    const [, edited] = await named('PUT', `/application/${web.id}`, { storage: storage(5) })
    assert.equal(edited, where('/storage/0/size'))
    const image = containerBody(registryId, { name: 'image', storage: storage(4) })
    assert.equal((await create('container', image))[1], where('/storage/0/size'))
    assert.equal((await create('database', databaseBody('data', { storage: 20 })))[1], where('/storage'))
    assert.equal((await create('database', databaseBody('usual')))[1], null)
    assert.deepEqual(
      await plannedSizes(environmentId),
      limits
        ? { web: [], image: [], data: [], usual: [] }
        : { web: ['/storage/0/size'], image: ['/storage/0/size'], data: ['/storage'], usual: ['/storage'] },
    )
  }
})

test('volumes of a clone are its own, and are limited to the sizes of their source', async () => {
  await limitVolumes(true)
  const { environmentId } = await newPlace(api)
  await scene.post(`/environment/${environmentId}/application`, applicationBody('web', { storage: storage(7) }))
  await scene.post(`/environment/${environmentId}/database`, databaseBody('data', { storage: 20 }))
  const answer = await call('POST', `/environment/${environmentId}/clone`, { name: 'copy' })
  assert.deepEqual([answer.status, answer.headers.get(notAppliedHeader)], [202, null])
  for (const id of [environmentId, answer.body.id]) {
    await scene.post(`/environment/${id}/deploy`, {})
    await scene.settled(id)
    const { volumes } = await runtime.owned()
    const own = volumes.filter((volume) => volume.environmentId === id).map((volume) => volume.id)
    assert.deepEqual([...(await runtime.volumeSizes(own)).values()].sort(), [20, 7])
  }
})
