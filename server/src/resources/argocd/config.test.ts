import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { after, test } from 'node:test'
import { type Json, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call, organizationId, clusterId } = api
const path = `/cluster/${clusterId}/argoCdConfig`
const mappings = `/organization/${organizationId}/argoCdDestinationClusterMapping`

/** An Argo CD: the status that it returns for each token, and the requests it received. */
const asked: string[] = []
const statuses: Record<string, number> = { 'Bearer right': 200, 'Bearer narrow': 403 }
const local = 'https://kubernetes.default.svc'
const remote = 'https://10.0.0.1:6443'
const applications = [{ server: local }, { server: local }, { name: 'remote' }].map((destination) => ({
  spec: { destination },
}))
const known = [
  { server: local, name: 'in-cluster' },
  { server: remote, name: 'remote' },
]
const pages: Record<string, unknown> = {
  '/argo/api/version': { Version: 'v2.9.3' },
  '/argo/api/v1/applications': { items: applications },
  '/argo/api/v1/clusters': { items: known },
}
const server = createServer(({ url = '', headers }, response) => {
  const page = url.split('?')[0]!
  asked.push(`${page} ${headers.authorization}`)
  const status = page.endsWith('/version') ? 200 : (statuses[headers.authorization ?? ''] ?? 401)
  response.writeHead(pages[page] === undefined ? 404 : status).end(JSON.stringify(pages[page] ?? {}))
})
await once(server.listen(0, '127.0.0.1'), 'listening')
after(() => server.close())
const { port } = server.address() as { port: number }
const url = `http://127.0.0.1:${port}/argo`
const body = (argocd_token: string, argocd_url = url) => ({ argocd_url, argocd_token })
const check = async (sent: Json): Promise<Json> => {
  const answer = await call('POST', `${path}/check`, sent)
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  return answer.body
}

test('a check asks the Argo CD and reports errors of the token or of the connection', async () => {
  assert.deepEqual(await check(body('right')), { status: 'connected', app_count: 3 })
  assert.ok(asked.includes('/argo/api/version Bearer right'))
  assert.deepEqual(await check(body('wrong')), { status: 'error', reason: 'authentication_failed' })
  assert.deepEqual(await check(body('narrow')), { status: 'error', reason: 'insufficient_permissions' })
  for (const place of [`http://127.0.0.1:${port}/nothing`, 'http://127.0.0.1:1'])
    assert.deepEqual(await check(body('right', place)), { status: 'error', reason: 'unreachable' })
  for (const wrong of ['ftp://127.0.0.1', 'http://169.254.169.254', 'no address']) {
    const { status, body: answer } = await call('POST', `${path}/check`, body('right', wrong))
    assert.deepEqual([status, answer.details[0].field], [400, '/argocd_url'], wrong)
  }
  assert.equal((await call('GET', path)).status, 404)
})

test('the token of a configuration is sealed, shown as REDACTED, and sent to no other host', async () => {
  const saved = await call('POST', path, body('right', `${url}/`))
  assert.equal(saved.status, 200)
  assert.deepEqual([saved.body.argocd_url, saved.body.argocd_token], [url, 'REDACTED'])
  assert.deepEqual((await call('GET', path)).body, saved.body)
  const [row] = await api.database.query<{ text: string }>(
    `select n::text as text from node n where kind = 'argocd_config'`,
    [],
  )
  assert.doesNotMatch(row!.text, /right/)
  assert.deepEqual(await check(body('REDACTED')), { status: 'connected', app_count: 3 })
  const elsewhere = await call('POST', path, body('REDACTED', 'http://127.0.0.1:1'))
  assert.deepEqual([elsewhere.status, elsewhere.body.details[0].field], [400, '/argocd_token'])
  const again = await call('POST', path, body('right'))
  assert.deepEqual([again.body.id, again.body.created_at], [saved.body.id, saved.body.created_at])
})

test('what an Argo CD deploys to is linked to clusters of ours, until it is unlinked or the cluster goes', async () => {
  const ours = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'r', name: 'ours' }
  const { id } = (await call('POST', `/organization/${organizationId}/cluster`, ours)).body
  const link = { agent_cluster_id: clusterId, argocd_cluster_url: local, cluster_id: id }
  assert.deepEqual((await call('POST', mappings, link)).body, link)
  const [found] = (await call('GET', mappings)).body.results
  assert.deepEqual([found.agent_cluster_id, found.status, found.argocd_url], [clusterId, 'connected', url])
  const place = { argocd_cluster_url: local, argocd_cluster_name: 'in-cluster', applications_count: 2 }
  assert.deepEqual(found.linked_clusters, [
    {
      ...place,
      qovery_cluster_id: id,
      qovery_cluster_name: 'ours',
      qovery_cluster_cloud_provider: 'ON_PREMISE',
      qovery_cluster_type: 'SELF_MANAGED',
    },
  ])
  const free = { argocd_cluster_url: remote, argocd_cluster_name: 'remote', applications_count: 1 }
  assert.deepEqual(found.unlinked_clusters, [free])
  assert.equal((await call('POST', mappings, { ...link, agent_cluster_id: id })).status, 400)
  assert.equal((await call('POST', mappings, { ...link, cluster_id: organizationId })).status, 400)

  await call('DELETE', `/organization/${organizationId}/cluster/${id}`)
  const [left] = (await call('GET', mappings)).body.results
  assert.deepEqual([left.linked_clusters, left.unlinked_clusters], [[], [place, free]])

  const query = new URLSearchParams({ agentClusterId: clusterId, argocdClusterUrl: local })
  assert.equal((await call('DELETE', `${mappings}?${query}`)).status, 204)
  assert.equal((await call('DELETE', `${mappings}?${query}`)).status, 404)
})

test('a configuration that was deleted is gone, with its token', async () => {
  assert.equal((await call('DELETE', path)).status, 204)
  assert.equal((await call('DELETE', path)).status, 404)
  assert.deepEqual((await call('GET', mappings)).body.results, [])
  assert.equal((await call('POST', `${path}/check`, body('REDACTED'))).status, 400)
})
