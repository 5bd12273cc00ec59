import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { test } from 'node:test'
import { mainTask, type Source, type TaskSpec, type WorkloadSpec } from '../deployments.ts'
import { inStages } from '../request/stages.ts'
import {
  aliasesOf,
  canonical,
  dnsLabel,
  type FrozenWorkload,
  fingerprint,
  hasNoImage,
  thawWorkload,
} from './workload.ts'

const build: Extract<Source, { from: 'git' }> = {
  from: 'git',
  git: { url: 'https://git.example/app.git', branch: 'main', gitTokenId: null },
  rootPath: '/',
  dockerfilePath: 'Dockerfile',
  targetStage: null,
}
const spec: WorkloadSpec = {
  entrypoint: null,
  arguments: null,
  cpuMillicores: 500,
  memoryMb: 256,
  instances: 1,
  ports: [],
  volumes: [],
  readiness: null,
  liveness: null,
  readyTimeoutMs: 1000,
  stopGraceMs: 1000,
}
const key = Buffer.alloc(32, 1)
const variables = (env: Record<string, string>, scope = 'APPLICATION') => ({
  env,
  files: [],
  origins: Object.fromEntries(Object.keys(env).map((name) => [name, { scope }])),
})

test('a fingerprint is equal exactly for equal configurations, whatever the order of keys', () => {
  const base = fingerprint(key, build, spec, variables({ A: '1', B: '2' }))
  assert.equal(fingerprint(key, { ...build }, { ...spec }, variables({ B: '2', A: '1' })), base)
  const different = [
    fingerprint(key, { ...build, rootPath: '/web' }, spec, variables({ A: '1', B: '2' })),
    fingerprint(key, build, { ...spec, memoryMb: 512 }, variables({ A: '1', B: '2' })),
    fingerprint(key, build, spec, variables({ A: '1', B: '3' })),
    fingerprint(Buffer.alloc(32, 2), build, spec, variables({ A: '1', B: '2' })),
  ]
  assert.equal(new Set([base, ...different]).size, 5)
})

test('a task alone counts as it did before tasks had names: an update of ours makes nothing out of date', () => {
  const task: TaskSpec = { on: {}, cron: null, maxRestarts: 0, timeoutMs: 1000 }
  const text = canonical({ source: build, spec: { ...spec, task }, env: {}, files: [] })
  const before = createHmac('sha256', key).update(text).digest('hex')
  assert.equal(fingerprint(key, build, { ...spec, tasks: { [mainTask]: task } }, variables({})), before)
  assert.equal(
    fingerprint(key, build, { ...spec, tasks: {} }, variables({})),
    fingerprint(key, build, spec, variables({})),
  )
  assert.notEqual(fingerprint(key, build, { ...spec, tasks: { backup: task } }, variables({})), before)
})

test('a built-in variable that nothing refers to does not make a service out of date', () => {
  const without = fingerprint(key, build, spec, variables({}))
  assert.equal(fingerprint(key, build, spec, variables({ SLIPWAY_X_HOST: 'other' }, 'BUILT_IN')), without)
})

test('what a stored release is follows from what it has always said, also where it does not say what it was made from', () => {
  const ids = { organizationId: 'o', projectId: 'p', environmentId: 'e', serviceId: 's', revision: 'r', aliases: ['a'] }
  const chart = { waitSeconds: 1, allowClusterWide: false }
  const app = { repository: 'https://git.example/app', path: '', argoNamespace: 'argocd' }
  const sealed = { chart: { archive: '', values: [] }, app: { commit: 'c', login: null } }
  const module: Source = { from: 'module', provider: 'AWS', type: 'POSTGRESQL', fields: {} }
  const cases: [Partial<FrozenWorkload>, string, boolean][] = [
    [{}, 'image', false],
    [{ from: build }, 'image', false],
    [{ from: module }, 'image', true],
    [{ chart }, 'chart', true],
    [{ app }, 'app', true],
  ]
  for (const [stored, artifact, isWithout] of cases) {
    const frozen = { ...ids, ...spec, ...stored }
    const thawed = thawWorkload(frozen, 'i', { env: {}, files: [], ...sealed })
    assert.deepEqual([thawed.artifact, thawed.revision, hasNoImage(frozen)], [artifact, 'r', isWithout])
    assert.equal('image' in thawed, artifact === 'image')
  }
})

test('names become DNS labels', () => {
  const cases: [string, string][] = [
    ['Hello World', 'hello-world'],
    ['--API--', 'api'],
    ['Größe', 'gro-e'],
    ['日本', ''],
    ['a'.repeat(80), 'a'.repeat(63)],
    [`${'a'.repeat(62)} b`, 'a'.repeat(62)],
  ]
  for (const [name, label] of cases) assert.equal(dnsLabel(name), label, name)
  assert.deepEqual(aliasesOf('日本', 'id'), ['service-id'])
})

test('stages go up to deploy and down to stop and delete', () => {
  const services = [
    { id: 'app', stage: 3 },
    { id: 'db', stage: 0 },
    { id: 'web', stage: 3 },
  ]
  const order = (action: 'DEPLOY' | 'STOP' | 'DELETE' | 'RESTART') =>
    inStages(action, services).map((stage) => stage.map((service) => service.id))
  assert.deepEqual(order('DEPLOY'), [['db'], ['app', 'web']])
  assert.deepEqual(order('RESTART'), [['db'], ['app', 'web']])
  assert.deepEqual(order('STOP'), [['app', 'web'], ['db']])
  assert.deepEqual(order('DELETE'), [['app', 'web'], ['db']])
})
