/** Argo CD apps on a Kubernetes cluster, through the API: on a cluster and with an Argo CD in memory. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { type Json, startApi } from '../../../test/support/api.ts'
import { judgeAnswer } from '../../../test/support/client-types.ts'
import { createFakeEngines } from '../../../test/support/docker/fake-engines.ts'
import { startMemoryCluster } from '../../../test/support/kubernetes/api-server.ts'
import { startFakeArgo } from '../../../test/support/kubernetes/fake-argo.ts'
import { until } from '../../../test/support/until.ts'

const kubernetes = await startMemoryCluster()
const argo = startFakeArgo(kubernetes.store)
const { store } = kubernetes
const deployment = (replicas: number): Json => ({
  ...{ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'shop' } },
  spec: {
    replicas,
    selector: { matchLabels: { a: 'b' } },
    template: {
      metadata: { labels: { a: 'b' } },
      spec: { containers: [{ name: 'main', image: 'registry.test/shop' }] },
    },
  },
})
const config = (commit: string): Json => ({
  ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'shop' }, data: { commit } },
})
argo.manifests = (commit) => [deployment(2), config(commit)]
const api = await startApi({ engines: createFakeEngines() })
after(() => kubernetes.close())
const { call, organizationId } = api
const base = `/organization/${organizationId}`
const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}
const { id: credentialsId } = await must('POST', `${base}/onPremise/credentials`, {
  ...{ name: 'kubernetes', kubeconfig: kubernetes.kubeconfig() },
})
const { id: clusterId } = await must('POST', `${base}/cluster`, {
  ...{ name: 'kubernetes', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
  cloud_provider_credentials: { credentials: { id: credentialsId } },
})
const project = await must('POST', `${base}/project`, { name: 'shop' })
const { id: tokenId } = await must('POST', `${base}/gitToken`, { name: 'apps', type: 'GITLAB', token: 'glpat-secret' })
const url = 'https://gitlab.com/example/apps.git'
const git_repository = { url, branch: 'live', root_path: '/shop', git_token_id: tokenId, provider: 'GITLAB' }

let made = 0
const newApp = async (more: Json = {}, cluster: string = clusterId): Promise<Json> => {
  made += 1
  const environment = await must('POST', `/project/${project.id}/environment`, { name: `env ${made}`, cluster })
  return must('POST', `/environment/${environment.id}/argocdApp`, { name: `shop ${made}`, git_repository, ...more })
}
const until_ = (path: string, what: string, isSo: (status: Json) => boolean): Promise<Json> =>
  until(
    async () => {
      const { body } = await call('GET', `${path}/status`)
      return isSo(body) ? body : null
    },
    { what: `${path} to be ${what}`, timeoutMs: 20_000 },
  )
const atRest = (path: string, wanted: string): Promise<Json> =>
  until_(path, wanted, (status) => {
    assert.ok(status.state === wanted || !/_ERROR$/.test(status.state), JSON.stringify(status))
    return status.state === wanted
  })
const deploy = async (path: string, body: Json = {}, wanted = 'DEPLOYED'): Promise<Json> => {
  await must('POST', `${path}/deploy`, body)
  return atRest(path, wanted)
}
const failed = async (path: string, body: Json = {}): Promise<Json> => {
  await must('POST', `${path}/deploy`, body)
  return until_(path, 'in error', ({ state }) => /_ERROR$/.test(state))
}
const named = ({ id }: Json, kind: string) => store.find(kind, 'argocd', `slipway-${id}`)
const inside = ({ environment }: Json, kind: string) => store.find(kind, `slipway-${environment.id}`, 'shop')
const text = (data: Json): Json =>
  Object.fromEntries(
    Object.entries(data).map(([key, value]) => [key, Buffer.from(value as string, 'base64').toString()]),
  )
const [first, second] = ['a'.repeat(40), 'b'.repeat(40)]

test('an app is an Application at a commit that is waited for, changed, rolled back, stopped, started and deleted', async () => {
  const app = await newApp()
  const { id, environment } = app
  const path = `/argocdApp/${id}`
  assert.deepEqual([app.last_synced_at, app.manifest_revision], [null, null])
  const plan = await must('POST', `${path}/deploy?dry_run=true`, { git_commit_id: first })
  assert.deepEqual([plan.stages[0].services[0].effect, plan.stages[0].services[0].builds], ['ROLL_OUT', false])
  assert.equal(named(app, 'Application'), undefined)

  const status = await deploy(path, { git_commit_id: first })
  assert.equal(status.running_state, 'RUNNING')
  const { metadata, spec } = named(app, 'Application') as Json
  assert.deepEqual(metadata.finalizers, ['resources-finalizer.argocd.argoproj.io'])
  const namespace = `slipway-${environment.id}`
  const server = 'https://kubernetes.default.svc'
  assert.deepEqual(
    [spec.project, spec.source, spec.destination],
    [`slipway-${id}`, { repoURL: url, path: 'shop', targetRevision: first }, { server, namespace }],
  )
  const allowed = named(app, 'AppProject')!.spec
  assert.deepEqual(
    [allowed.sourceRepos, allowed.destinations, allowed.clusterResourceWhitelist],
    [[url], [{ server, namespace }], []],
  )
  const login = { username: 'oauth2', password: 'glpat-secret' }
  assert.deepEqual(text(named(app, 'Secret')!.data), { type: 'git', url, project: `slipway-${id}`, ...login })

  const shown = await must('GET', path)
  assert.deepEqual(judgeAnswer('getArgoCdApp', shown), [])
  assert.deepEqual([shown.manifest_revision, shown.git_repository.deployed_commit_id], [first, first])
  assert.ok(Math.abs(Date.parse(shown.last_synced_at) - Date.now()) < 60_000)
  const manifest = await must('GET', `${path}/manifest`)
  assert.deepEqual(judgeAnswer('getArgoCdAppManifest', manifest), [])
  const [, made] = manifest.manifest_metadata.managed_resources
  assert.deepEqual([manifest.manifest_revision, made.kind, made.namespace], [first, 'ConfigMap', namespace])
  assert.deepEqual(JSON.parse(made.targetState), config(first))
  assert.equal(JSON.parse(made.liveState).data.commit, first)
  const associated = await must('GET', `/cluster/${clusterId}/argocdApps/associatedServices`)
  assert.deepEqual(judgeAnswer('getArgoCdAssociatedServices', associated), [])
  assert.ok(associated.results.some((each: Json) => each.service_id === id && each.environment_id === environment.id))

  await deploy(path, { git_commit_id: second })
  assert.equal(inside(app, 'ConfigMap')!.data.commit, second)
  const { results: releases } = await must('GET', `${path}/release`)
  assert.deepEqual(
    releases.map(({ commit }: Json) => commit.git_commit_id),
    [second, first],
  )
  await must('POST', `${path}/rollback`, { release_id: releases.at(-1).id })
  await until(async () => inside(app, 'ConfigMap')!.data.commit === first, { what: 'the first commit to be back' })
  await atRest(path, 'DEPLOYED')

  await must('POST', `${path}/stop`, {})
  await atRest(path, 'STOPPED')
  assert.equal(inside(app, 'Deployment')!.spec.replicas, 0)
  assert.equal(named(app, 'Application')!.spec.syncPolicy.automated, undefined)
  await deploy(path, { git_commit_id: second })
  assert.equal(inside(app, 'Deployment')!.spec.replicas, 2)
  assert.deepEqual(named(app, 'Application')!.spec.syncPolicy.automated, { prune: true, selfHeal: true })
  const history = await must('GET', `${path}/deploymentHistoryV2`)
  assert.equal(history.results.length, 5)
  const older = async (query = ''): Promise<string[]> =>
    (await must('GET', `${path}/deploymentHistory${query}`)).results.map((each: Json) => each.id)
  const all = await older()
  assert.deepEqual(await older(`?startId=${all[0]}`), all.slice(1))

  await must('DELETE', path)
  await until(async () => (await call('GET', path)).status === 404, { what: 'the end of the app' })
  for (const kind of ['Application', 'AppProject', 'Secret']) assert.equal(named(app, kind), undefined, kind)
  for (const kind of ['Deployment', 'ConfigMap']) assert.equal(inside(app, kind), undefined, kind)
})

test('a failed synchronization says why, and the commit before is back; later failures and recovery are shown', async () => {
  const app = await newApp()
  const path = `/argocdApp/${app.id}`
  await deploy(path, { git_commit_id: first })
  const outcome = argo.outcome
  argo.outcome = (commit) =>
    commit === second ? { phase: 'Failed', message: 'one or more objects failed to apply' } : outcome(commit)
  const broken = await failed(path, { git_commit_id: second })
  assert.match(broken.error.message, /^Argo CD could not synchronize the app: one or more objects failed to apply\./)
  assert.equal(named(app, 'Application')!.spec.source.targetRevision, first)
  argo.outcome = outcome

  argo.manifests = () => [{ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'sh.helm.release.v1.any.v9' } }]
  assert.match(
    (await failed(path, { git_commit_id: second })).error.message,
    /resource :Secret is not permitted in project/,
  )
  argo.manifests = () => [{ apiVersion: 'networking.k8s.io/v1', kind: 'Ingress', metadata: { name: 'any' } }]
  const leading = (await failed(path, { git_commit_id: second })).error.message
  assert.match(leading, /:Ingress is not permitted .* the namespace of Argo CD has the label slipway\.hosts=any\.$/)
  const argoPlace = store.find('Namespace', '', 'argocd')!
  store.merge(argoPlace, { metadata: { labels: { 'slipway.hosts': 'any' } } })
  await deploy(path, { git_commit_id: second })
  store.merge(argoPlace, { metadata: { labels: null } })
  argo.manifests = (commit) => [deployment(2), config(commit)]
  await deploy(path, { git_commit_id: second })

  const resources = [{ kind: 'Deployment', name: 'shop', health: { status: 'Degraded', message: 'image is missing' } }]
  const ill = (status: string, more: Json = {}) =>
    store.merge(named(app, 'Application')!, { status: { health: { status }, ...more } })
  ill('Degraded', { resources })
  const degraded = await until_(path, 'ill', ({ running_state: state }) => state === 'ERROR')
  assert.equal(degraded.error.message, 'Argo CD says Degraded and Synced. Deployment shop: Degraded: image is missing.')
  ill('Healthy', { resources: [] })
  const well = await until_(path, 'well', ({ running_state: state }) => state === 'RUNNING')
  assert.equal(well.error, undefined)
})

test('an app that was removed on the cluster is made again, and one that hangs is ended by the next deployment', async () => {
  const app = await newApp()
  const path = `/argocdApp/${app.id}`
  await deploy(path, { git_commit_id: first })
  store.drop(named(app, 'Application')!)
  await until(async () => named(app, 'Application')?.status?.health?.status === 'Healthy', {
    ...{ what: 'the app to be back', timeoutMs: 20_000 },
  })
  const outcome = argo.outcome
  argo.outcome = (commit) => (commit === second ? { phase: 'Running', message: 'waiting for a hook' } : outcome(commit))
  await must('POST', `${path}/deploy`, { git_commit_id: second })
  await until(async () => named(app, 'Application')?.status?.operationState?.phase === 'Running', {
    ...{ what: 'the synchronization that hangs', timeoutMs: 20_000 },
  })
  await must('POST', `/environment/${app.environment.id}/cancelDeployment`, {})
  await atRest(path, 'CANCELED')
  argo.outcome = outcome
  assert.equal(named(app, 'Application')!.spec.source.targetRevision, first)
  await deploy(path, { git_commit_id: second })
})

test('a first deployment that fails leaves nothing of the app', async () => {
  const app = await newApp()
  const outcome = argo.outcome
  argo.outcome = () => ({ phase: 'Error', message: 'no such path' })
  assert.match((await failed(`/argocdApp/${app.id}`)).error.message, /no such path/)
  argo.outcome = outcome
  for (const kind of ['Application', 'AppProject', 'Secret'])
    await until(async () => named(app, kind) === undefined, { what: `the end of the ${kind}` })
})

test('an app takes no other namespace, no object of others and no login of others', async () => {
  const elsewhere = await newApp({ namespace: 'kube-system' })
  const refused = await call('POST', `/argocdApp/${elsewhere.id}/deploy`, {})
  assert.deepEqual(
    [refused.status, refused.body.message],
    [400, 'The Argo CD of this cluster is in the namespace argocd: set the namespace of the app to that.'],
  )
  const own = await must('PUT', `/argocdApp/${elsewhere.id}`, { namespace: 'argocd' })
  assert.equal(own.namespace, 'argocd')

  for (const kind of ['Application', 'AppProject', 'Secret']) {
    const app = await newApp()
    const stranger = { kind, metadata: { name: `slipway-${app.id}`, namespace: 'argocd' }, spec: { mine: true } }
    const put = store.put(stranger)
    assert.match((await failed(`/argocdApp/${app.id}`)).error.message, /does not belong to this server: remove it/)
    assert.deepEqual(store.find(kind, 'argocd', `slipway-${app.id}`)!.spec, { mine: true })
    store.drop(put)
  }

  const keep = (type: string, at: string, labels: Json = {}): void =>
    void store.put({
      ...{ kind: 'Secret', data: { url: Buffer.from(at).toString('base64') } },
      metadata: {
        ...{ name: 'kept', namespace: 'argocd' },
        labels: { 'argocd.argoproj.io/secret-type': type, ...labels },
      },
    })
  const app = await newApp()
  const path = `/argocdApp/${app.id}`
  for (const [type, at] of [
    ['repo-creds', 'https://gitlab.com/example'],
    ['repository', 'https://GitLab.com/example/apps/'],
  ] as const) {
    keep(type, at)
    assert.match((await failed(path)).error.message, /already has credentials for this repository/)
    assert.equal(named(app, 'Application'), undefined)
  }
  keep('repo-creds', 'https://gitlab.com/example', { 'slipway.shared': 'true' })
  await deploy(path)
  keep('repository', 'https://gitlab.com/example/other')
  await deploy(path)
  store.drop(store.find('Secret', 'argocd', 'kept')!)
})

test('without a repository, without Argo CD, and on a Docker engine, a deploy is refused with what is needed', async () => {
  const refusal = async (app: Json): Promise<string> => {
    const { status, body } = await call('POST', `/argocdApp/${app.id}/deploy`, {})
    assert.equal(status, 400, JSON.stringify(body))
    const plan = await must('POST', `/argocdApp/${app.id}/deploy?dry_run=true`, {})
    assert.equal(plan.stages[0].services[0].reason, body.message)
    return body.message
  }
  assert.match(await refusal(await newApp({ git_repository: null })), /set its git_repository/)
  assert.match(await refusal(await newApp({}, api.clusterId)), /needs a Kubernetes cluster with Argo CD/)
  const app = await newApp()
  kubernetes.refuse = (_method, kind) => (/^App/.test(kind) ? [404, 'the server could not find the resource'] : null)
  assert.match(await refusal(app), /^Argo CD is not installed on this cluster: install it in the namespace argocd/)
  kubernetes.refuse = (_method, kind) => (/^App/.test(kind) ? [403, 'applications is forbidden'] : null)
  assert.match(await refusal(app), /apply the manifest of its rights again/)
  kubernetes.refuse = () => null
  await deploy(`/argocdApp/${app.id}`)
})
