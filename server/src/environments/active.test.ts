import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { until } from '../../test/support/until.ts'

const api = await startApi()
const { call, organizationId } = api
const path = `/organization/${organizationId}/activeDeployments`

test('deployments of an organization are listed from the request to the end, and only to its members', async () => {
  const { environmentId, projectId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  let go = (): void => {}
  const held = new Promise<void>((resolve) => {
    go = resolve
  })
  const { converge } = api.runtime
  api.runtime.converge = async (...wanted) => {
    await held
    return converge.apply(api.runtime, wanted)
  }
  await call('POST', `/application/${id}/deploy`)
  const [active] = await until(
    async () => {
      const { results } = (await call('GET', path)).body
      return results[0]?.status === 'QUEUED' || results[0]?.status === 'DEPLOYMENT_QUEUED' ? null : results
    },
    { what: 'it to run' },
  )
  assert.deepEqual(
    [active.environment_id, active.project_id, active.execution_id, active.trigger_action],
    [environmentId, projectId, `${environmentId}-1`, 'DEPLOY'],
  )
  const other = await api.newOrganization()
  assert.deepEqual((await api.as(other.token)('GET', `/organization/${other.id}/activeDeployments`)).body.results, [])
  go()
  await until(async () => (await call('GET', path)).body.results.length === 0, { what: 'the list to be empty' })
})
