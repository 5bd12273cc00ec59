import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Secret } from '../../../lib/secret.ts'
import type { ServiceApp } from '../../runtime.ts'
import { describeApp, kindsOfApps, loginRefusal } from './manifests.ts'

const place = { ownerId: 'owner', canPause: true, runAs: null }
const plan = { argoNamespace: 'argocd', leads: true, begins: true }
const repository = 'https://git.test/team/shop.git'
const commit = 'a'.repeat(40)
const workloadOf = (over: object = {}): ServiceApp => ({
  artifact: 'app',
  ...{ organizationId: 'o', projectId: 'p', environmentId: 'e', serviceId: 's', revision: 'r', readyTimeoutMs: 0 },
  app: { repository, path: '', argoNamespace: 'argocd', content: new Secret({ commit, login: null }), ...over },
})
const encoded = (values: Record<string, string>) =>
  Object.fromEntries(Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString('base64')]))

test('an app is a project of its own, a repository of its own and an Application, whole', () => {
  const labels = {
    ...{ 'slipway.owner': 'owner', 'slipway.organization': 'o' },
    ...{ 'slipway.environment': 'e', 'slipway.service': 's' },
  }
  const metadata = { name: 'slipway-s', namespace: 'argocd', labels }
  const destination = { server: 'https://kubernetes.default.svc', namespace: 'slipway-e' }
  const syncOptions = ['CreateNamespace=false', 'FailOnSharedResource=true']
  const retry = { limit: 2, backoff: { duration: '5s', factor: 2, maxDuration: '1m' } }
  const application = {
    ...{ apiVersion: 'argoproj.io/v1alpha1', kind: 'Application' },
    metadata: {
      ...metadata,
      labels: { ...labels, 'slipway.role': 'app', 'slipway.revision': 'r' },
      finalizers: ['resources-finalizer.argocd.argoproj.io'],
    },
    spec: {
      ...{ project: 'slipway-s', source: { repoURL: repository, path: '.', targetRevision: commit }, destination },
      syncPolicy: { automated: { prune: true, selfHeal: true }, syncOptions, retry },
    },
  }
  const operation = {
    ...{ initiatedBy: { username: 'slipway' }, info: [{ name: 'slipway.revision', value: 'r' }] },
    ...{ sync: { revision: commit, prune: true, syncOptions }, retry },
  }
  const [project, secret, ...apps] = describeApp(workloadOf(), place, plan)
  assert.deepEqual(project, {
    ...{ apiVersion: 'argoproj.io/v1alpha1', kind: 'AppProject', metadata },
    spec: {
      ...{ description: 'Made by Slipway for one service.', sourceRepos: [repository], destinations: [destination] },
      ...{ clusterResourceWhitelist: [], namespaceResourceWhitelist: kindsOfApps },
    },
  })
  assert.deepEqual(secret, {
    ...{ apiVersion: 'v1', kind: 'Secret', type: 'Opaque' },
    metadata: { ...metadata, labels: { ...labels, 'argocd.argoproj.io/secret-type': 'repository' } },
    data: encoded({ type: 'git', url: repository, project: 'slipway-s' }),
  })
  assert.deepEqual(apps, [{ ...application, operation }])
  assert.deepEqual(describeApp(workloadOf(), place, { ...plan, begins: false })[2], application)
  const login = { username: 'me', password: 'p' }
  const [, own, inFolder] = describeApp(
    workloadOf({ path: 'deploy/prod', content: new Secret({ commit, login }) }),
    place,
    plan,
  )
  assert.deepEqual(own!.data, encoded({ type: 'git', url: repository, project: 'slipway-s', ...login }))
  assert.equal((inFolder!.spec as { source: { path: string } }).source.path, 'deploy/prod')
})

test('an app publishes no hosts unless the administrator of the Argo CD allows it', () => {
  const kindsIn = (leads: boolean): string[] => {
    const [project] = describeApp(workloadOf(), place, { ...plan, leads })
    const { namespaceResourceWhitelist: kinds } = project!.spec as { namespaceResourceWhitelist: { kind: string }[] }
    return kinds.map(({ kind }) => kind)
  }
  const leading = ['Ingress', 'HTTPRoute', 'GRPCRoute']
  assert.deepEqual(
    leading.filter((kind) => kindsIn(false).includes(kind)),
    [],
  )
  assert.deepEqual([...kindsIn(true)].sort(), [...kindsIn(false), ...leading].sort())
})

test('no kind that gives rights or is believed by others is allowed, and a URL is never a pattern', () => {
  const allowed = new Set<string>(kindsOfApps.map(({ kind }) => kind))
  for (const kind of [
    'Secret',
    'Role',
    'RoleBinding',
    'ServiceAccount',
    'NetworkPolicy',
    'Application',
    'ResourceQuota',
  ])
    assert.equal(allowed.has(kind), false, kind)
  for (const url of [
    'https://git.test/*',
    'https://git.test/a?',
    'https://git.test/{a,b}',
    'https://git.test/[a]',
    '!https://a',
  ])
    assert.throws(() => describeApp(workloadOf({ repository: url }), place, plan), /pattern/, url)
})

test('a login of the Argo CD that is not for services keeps an app away from its repositories', () => {
  const table: [string, 'repository' | 'repo-creds', Record<string, string>, boolean][] = [
    ['https://git.test/team/shop', 'repository', {}, true],
    ['HTTPS://git.test/Team/shop.git/', 'repository', {}, true],
    ['https://git.test/team', 'repository', {}, false],
    ['https://git.test/team', 'repo-creds', {}, true],
    ['https://git.test', 'repo-creds', { 'slipway.owner': 'another' }, true],
    ['https://git.test', 'repo-creds', { 'slipway.shared': 'true' }, false],
    ['https://git.test/team/shop', 'repository', { 'slipway.owner': 'owner' }, false],
    ['https://other.test', 'repo-creds', {}, false],
    ['', 'repo-creds', {}, false],
  ]
  for (const [url, type, labels, isRefused] of table)
    assert.equal(loginRefusal(repository, [{ url, type, labels }], place) !== null, isRefused, `${type} ${url}`)
})
