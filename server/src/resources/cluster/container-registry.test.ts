/** The registry that a Kubernetes cluster names: images built for its services are pushed there. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { applicationBody, type Json, startApi } from '../../../test/support/api.ts'
import { createFakeEngines } from '../../../test/support/docker/fake-engines.ts'
import { startMemoryCluster } from '../../../test/support/kubernetes/api-server.ts'

const kubernetes = await startMemoryCluster()
const api = await startApi({ engines: createFakeEngines() })
const { call, organizationId } = api
const base = `/organization/${organizationId}`
after(() => kubernetes.close())

const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

test('without a registry nothing is built for a Kubernetes cluster, and only such a cluster names one', async () => {
  const { id: registryId } = await must('POST', `${base}/containerRegistry`, {
    ...{ name: 'images', kind: 'GENERIC_CR', url: 'https://registry.example/team', config: {} },
  })
  const { id } = await must('POST', `${base}/onPremise/credentials`, {
    ...{ name: 'kubernetes', kubeconfig: kubernetes.kubeconfig() },
  })
  const own = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' }
  const body = { ...own, name: 'kubernetes', cloud_provider_credentials: { credentials: { id } } }
  const cluster = await must('POST', `${base}/cluster`, body)
  const project = await must('POST', `${base}/project`, { name: 'shop' })
  const { id: environmentId } = await must('POST', `/project/${project.id}/environment`, {
    ...{ name: 'production', cluster: cluster.id },
  })
  const { id: application } = await must('POST', `/environment/${environmentId}/application`, applicationBody('web'))
  const sentence = /The cluster of this environment has no container registry.*container_registry_id of the cluster/

  const refused = await call('POST', `/application/${application}/deploy`, {})
  assert.deepEqual([refused.status, refused.body.code], [400, 'not_deployable'])
  assert.match(refused.body.message, sentence)
  const plan = () => must('POST', `/application/${application}/deploy?dry_run=true`, {})
  assert.match(JSON.stringify(await plan()), sentence)

  const path = `${base}/cluster/${cluster.id}`
  const named = await must('PUT', path, { ...body, container_registry_id: registryId })
  assert.equal(named.container_registry_id, registryId)
  assert.doesNotMatch(JSON.stringify(await plan()), sentence)
  await must('POST', `/application/${application}/deploy`, {})
  const kept = await must('PUT', path, body)
  assert.equal(kept.container_registry_id, registryId, 'a client that does not know the field leaves it')
  const removal = await call('DELETE', `${base}/containerRegistry/${registryId}`)
  assert.deepEqual([removal.status, removal.body.code], [409, 'container_registry_in_use'])
  assert.match(removal.body.message, /cluster/)
  const without = await must('PUT', path, { ...body, container_registry_id: null })
  assert.equal(without.container_registry_id ?? null, null)
  await must('DELETE', `${base}/containerRegistry/${registryId}`)

  const { id: other } = await must('POST', `${base}/containerRegistry`, {
    ...{ name: 'other', kind: 'GENERIC_CR', url: 'https://registry.example', config: {} },
  })
  const local = (await must('GET', `${base}/cluster`)).results.find(({ is_default }: Json) => is_default)
  const { id: nowhere } = await must('POST', `${base}/onPremise/credentials`, { name: 'nowhere' })
  const recorded = { ...body, name: 'recorded', cloud_provider_credentials: { credentials: { id: nowhere } } }
  const tries: [string, string, Json][] = [
    ['PUT', `${base}/cluster/${local.id}`, { ...own, name: local.name, region: local.region }],
    ['POST', `${base}/cluster`, recorded],
  ]
  for (const [method, at, sent] of tries) {
    const answer = await call(method, at, { ...sent, container_registry_id: other })
    assert.equal(answer.status, 400, JSON.stringify(answer.body))
    assert.match(answer.body.message, /^container_registry_id: must not be set/)
  }
})
