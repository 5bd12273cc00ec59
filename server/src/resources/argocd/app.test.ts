import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { judgeAnswer } from '../../../test/support/client-types.ts'

const api = await startApi({ idle: true })

const sent = async (method: string, path: string, body: object | undefined, status: number): Promise<Json> => {
  const answer = await api.call(method, path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}

test('an Argo CD app is created, read, listed beside the other services, changed and deleted', async () => {
  const { environmentId } = await newPlace(api)
  const git_repository = { url: 'https://gitlab.com/example/apps', branch: 'live' }
  const made = await sent('POST', `/environment/${environmentId}/argocdApp`, { name: 'shop', git_repository }, 201)
  assert.deepEqual(judgeAnswer('getArgoCdApp', made), [])
  assert.deepEqual(
    [made.service_type, made.namespace, made.environment_id, made.cluster_id, made.git_repository.owner],
    ['ARGOCD_APP', 'argocd', environmentId, api.clusterId, 'example'],
  )
  const path = `/argocdApp/${made.id}`
  const { results } = await sent('GET', `/environment/${environmentId}/services`, undefined, 200)
  assert.deepEqual(results, [await sent('GET', path, undefined, 200)])
  for (const provider of ['BITBUCKET', 'GITHUB', 'GITLAB']) {
    const named = await sent('PUT', path, { git_repository: { ...git_repository, provider } }, 200)
    assert.equal(named.git_repository.provider, provider)
  }
  const edited = await sent('PUT', path, { namespace: 'shop', git_repository: null }, 200)
  assert.deepEqual([edited.name, edited.namespace, edited.git_repository], ['shop', 'shop', null])
  assert.equal((await sent('GET', `/environment/${environmentId}/statuses`, undefined, 200)).environment.state, 'READY')
  await sent('DELETE', path, undefined, 204)
  await sent('GET', path, undefined, 404)
  const { events } = await sent('GET', `/organization/${api.organizationId}/events?targetId=${made.id}`, undefined, 200)
  assert.deepEqual(
    events.map(({ event_type, target_type }: Json) => [event_type, target_type]),
    [['DELETED', 'HELM'], ['TRIGGER_DELETE', 'HELM'], ...Array(4).fill(['UPDATE', 'HELM']), ['CREATE', 'HELM']],
  )
})
