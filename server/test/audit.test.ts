/** The audit log misses nothing: every operation that changes something, or shows a secret, leaves exactly one event. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Operation } from '../src/api/operations/operation.ts'
import { newId } from '../src/lib/ids.ts'
import { operations } from '../src/resources/index.ts'
import { startApi } from './support/api.ts'
import { addressOf, caseOf, newScene, valuesFor } from './support/scene.ts'

const api = await startApi()

/** Reads that show a secret. */
const revealing = [
  'getDatabaseMasterCredentials',
  'getClusterKubeconfig',
  'exportEnvironmentConfigurationIntoTerraform',
]

/** Operations with another number of events than one, and why. */
const exceptions: Record<string, { events: number; why: string }> = {
  createOrganization: { events: 2, why: 'the organization, and the cluster that it gets' },
  autoDeployContainerEnvironments: { events: 2, why: 'the new tag of each service, and the deployment' },
  autoDeployJobEnvironments: { events: 2, why: 'the new tag of each service, and the deployment' },
  checkArgoCdConnection: { events: 0, why: 'asks another server and changes nothing' },
  checkContainerImage: { events: 0, why: 'asks a registry and changes nothing' },
  listTfVarsFilesFromGitRepo: { events: 0, why: 'reads, with a body that says what' },
  parseTerraformVariablesFromGitRepo: { events: 0, why: 'reads, with a body that says what' },
  inspectRepository: { events: 0, why: 'reads, with a body that says what' },
  listDirectoriesFromGitRepository: { events: 0, why: 'reads, with a body that says what' },
  createUserSignUp: { events: 0, why: 'stores nothing' },
  editOrganizationBillingInfo: { events: 0, why: 'stores nothing' },
  deployCluster: { events: 0, why: 'there is nothing to do on the local cluster' },
  upgradeCluster: { events: 0, why: 'there is nothing to do on the local cluster' },
}

const isWatched = ({ id, method }: Operation): boolean => method !== 'GET' || revealing.includes(id)

for (const operation of operations.filter(isWatched)) {
  const plan = caseOf(operation)
  if (plan.refused !== undefined) continue
  const { events = 1, why = '' } = exceptions[operation.id] ?? {}
  test(`${operation.id} leaves ${events} events${why === '' ? '' : `: ${why}`}`, async () => {
    const scene = newScene(api)
    const values = await valuesFor(operation, scene)
    const path = addressOf(operation.path, values, plan.query?.(values))
    const requestId = newId()
    const sent = { 'x-request-id': requestId }
    try {
      const answer = await api.call(operation.method, path, plan.body?.(values, scene), sent)
      assert.ok(answer.status < 300, JSON.stringify(answer.body))
      const rows = await api.database.query(
        'select event_type, target_type, sub_target_type, actor_type, actor_id, target_id from event where request_id = $1',
        [requestId],
      )
      assert.equal(rows.length, events, JSON.stringify(rows))
      for (const row of rows) assert.deepEqual([row.actor_type, typeof row.actor_id], ['API_TOKEN', 'string'])
    } finally {
      await plan.after?.(values, scene)
    }
  })
}
