import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BuiltInContext, builtInVariables } from './built-in.ts'

const api = {
  id: '1a2b3c4d-0000-4000-8000-000000000001',
  name: 'API',
  type: 'APPLICATION',
  internalHost: 'api',
  externalHost: 'api-dev.localhost',
}
const store = {
  id: 'ffeeddcc-0000-4000-8000-000000000002',
  name: 'Store',
  type: 'DATABASE',
  keyType: 'POSTGRESQL',
  internalHost: 'store',
  externalHost: null,
  more: { PORT: { value: '5432' }, PASSWORD: { value: 'word', isSecret: true } },
}
const context: BuiltInContext = {
  organizationId: 'o',
  projectId: 'p',
  environment: { id: 'e', name: 'dev', mode: 'DEVELOPMENT', cluster: null },
  services: [api, store],
  serviceId: api.id,
}
const table = (of: BuiltInContext) => Object.fromEntries(builtInVariables(of).map((one) => [one.key, one]))

test('a service sees its own place and the hosts of the others of its environment, under both prefixes', () => {
  const all = table(context)
  for (const prefix of ['SLIPWAY_', 'QOVERY_']) {
    const value = (key: string) => all[prefix + key]?.value
    assert.equal(value('PROJECT_ID'), 'p')
    assert.equal(value('ENVIRONMENT_ID'), 'e')
    assert.equal(value('ENVIRONMENT_NAME'), 'dev')
    assert.equal(value('SERVICE_ID'), api.id)
    assert.equal(value('APPLICATION_NAME'), 'API')
    assert.equal(value('APPLICATION_Z1A2B3C4D_HOST_INTERNAL'), 'api')
    assert.equal(value('APPLICATION_Z1A2B3C4D_HOST_EXTERNAL'), 'api-dev.localhost')
    assert.equal(value('POSTGRESQL_ZFFEEDDCC_HOST_INTERNAL'), 'store')
    assert.equal(value('POSTGRESQL_ZFFEEDDCC_HOST_EXTERNAL'), undefined)
    assert.equal(all[`${prefix}POSTGRESQL_ZFFEEDDCC_PASSWORD`]?.isSecret, true)
  }
})

test('a service sees the names, repositories and ports of the others of its environment, and where all of them run', () => {
  const commit = 'a'.repeat(40)
  const built = { ...api, gitBranch: 'main', gitCommitId: commit, more: { PORT: { value: '8080' } } }
  const cluster = { name: 'local', provider: 'ON_PREMISE', region: 'here', domain: 'localhost' }
  const all = table({ ...context, environment: { ...context.environment!, cluster }, services: [built, store] })
  for (const prefix of ['SLIPWAY_', 'QOVERY_']) {
    const value = (key: string) => all[prefix + key]?.value
    assert.equal(value('CLOUD_PROVIDER'), 'ON_PREMISE')
    assert.equal(value('CLOUD_PROVIDER_REGION'), 'here')
    assert.equal(value('KUBERNETES_CLUSTER_NAME'), 'local')
    assert.equal(value('KUBERNETES_CLUSTER_DOMAIN'), 'localhost')
    assert.equal(value('APPLICATION_Z1A2B3C4D_NAME'), 'API')
    assert.equal(value('APPLICATION_Z1A2B3C4D_ENVIRONMENT_NAME'), 'dev')
    assert.equal(value('APPLICATION_Z1A2B3C4D_PORT'), '8080')
    assert.equal(value('APPLICATION_Z1A2B3C4D_GIT_BRANCH'), 'main')
    assert.equal(value('APPLICATION_Z1A2B3C4D_GIT_COMMIT_ID'), commit)
    assert.equal(value('POSTGRESQL_ZFFEEDDCC_GIT_BRANCH'), undefined)
  }
})

test('ids are UUIDs that differ by key and stay the same', () => {
  const ids = builtInVariables(context).map(({ id }) => id)
  assert.equal(new Set(ids).size, ids.length)
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  assert.deepEqual(
    builtInVariables(context).map(({ id }) => id),
    ids,
  )
})

test('wider places see only what holds for them, with the same ids', () => {
  const project = table({ ...context, environment: null, services: [], serviceId: null })
  assert.deepEqual(Object.keys(project).sort(), [
    'QOVERY_ORGANIZATION_ID',
    'QOVERY_PROJECT_ID',
    'SLIPWAY_ORGANIZATION_ID',
    'SLIPWAY_PROJECT_ID',
  ])
  const environment = table({ ...context, serviceId: null })
  assert.equal(environment.SLIPWAY_SERVICE_ID, undefined)
  assert.equal(environment.SLIPWAY_PROJECT_ID?.id, table(context).SLIPWAY_PROJECT_ID?.id)
})

test('services that share eight digits share a key: the first one in the list has it', () => {
  const twin = { ...api, id: '1a2b3c4d-9999-4000-8000-000000000009', name: 'Twin', internalHost: 'twin' }
  const all = builtInVariables({ ...context, services: [api, twin] })
  assert.equal(all.filter(({ key }) => key === 'SLIPWAY_APPLICATION_Z1A2B3C4D_HOST_INTERNAL').length, 1)
  assert.equal(table({ ...context, services: [api, twin] }).SLIPWAY_APPLICATION_Z1A2B3C4D_HOST_INTERNAL?.value, 'api')
})
