import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, startApi } from '../../../test/support/api.ts'
import { features } from '../cluster/catalogue-features.ts'
import { instanceTypes } from './instance-types.ts'
import { regions } from './regions.ts'

const api = await startApi({ idle: true })
const list = async (path: string): Promise<Json[]> => {
  const { status, body } = await api.call('GET', path)
  assert.equal(status, 200, path)
  return body.results
}

test('no region, zone, instance type or feature is listed twice', () => {
  for (const names of [
    ...Object.values(regions).map((all) => all.map(({ name }) => name)),
    ...Object.values(regions).map((all) => all.flatMap(({ zones }) => zones)),
    ...Object.values(instanceTypes).map((all) => all.map(({ type }) => type)),
    features.map(({ id }) => id),
    features.map(({ vendor, word }) => `${vendor} ${word}`),
  ])
    assert.deepEqual(names, [...new Set(names)])
})

test('sizes are those of the data sheets', () => {
  const sizeOf = (vendor: keyof typeof instanceTypes, type: string) => {
    const { cpu, ramInGb, architecture } = instanceTypes[vendor].find((one) => one.type === type)!
    return [cpu, ramInGb, architecture]
  }
  assert.deepEqual(sizeOf('AWS', 't3.medium'), [2, 4, 'AMD64'])
  assert.deepEqual(sizeOf('AWS', 'm5.xlarge'), [4, 16, 'AMD64'])
  assert.deepEqual(sizeOf('AWS', 'c7g.2xlarge'), [8, 16, 'ARM64'])
  assert.deepEqual(sizeOf('AWS', 'r6g.large'), [2, 16, 'ARM64'])
  assert.deepEqual(sizeOf('AWS', 'g4dn.xlarge'), [4, 16, 'AMD64'])
  assert.deepEqual(sizeOf('GCP', 'e2-standard-4'), [4, 16, 'AMD64'])
  assert.deepEqual(sizeOf('GCP', 'e2-highcpu-8'), [8, 8, 'AMD64'])
  assert.deepEqual(sizeOf('SCW', 'GP1-XS'), [4, 16, 'AMD64'])
  assert.deepEqual(sizeOf('AZURE', 'Standard_D4ps_v5'), [4, 16, 'ARM64'])
  assert.deepEqual(sizeOf('AZURE', 'Standard_F8s_v2'), [8, 16, 'AMD64'])
})

test('GPUs are listed when they are asked for, and small machines can be left out', async () => {
  const path = '/aws/eks/instanceType/eu-west-3'
  const usual = await list(path)
  const only = await list(`${path}?gpu=ONLY`)
  assert.ok(usual.length > 50 && usual.every((one) => one.gpu_info === undefined))
  const gpus = new Map(only.map((one) => [one.type, one.gpu_info.count]))
  assert.deepEqual([gpus.get('g4dn.xlarge'), gpus.get('g5.12xlarge')], [1, 4])
  assert.ok(only.every((one) => one.gpu_info.count >= 1))
  assert.deepEqual(await list(`${path}?gpu=EXCLUDE`), usual)
  assert.equal((await list(`${path}?gpu=INCLUDE`)).length, usual.length + only.length)
  assert.equal((await list(`${path}?with_gpu=true`)).length, usual.length + only.length)
  const enough = await list(`${path}?only_meets_resource_reqs=true`)
  assert.ok(enough.length < usual.length && enough.every((one) => one.cpu >= 2 && one.ram_in_gb >= 4))
  assert.equal((await api.call('GET', `${path}?gpu=SOME`)).status, 400)
})

test('a region, zone or kind of database that a provider does not have is not found', async () => {
  for (const path of [
    '/aws/eks/instanceType/fr-par',
    '/gcp/instanceType/eu-west-3',
    '/gcp/instanceType/europe-west9-a',
    '/azure/aks/instanceType/nowhere',
    '/scaleway/instanceType/fr-par-9',
    '/aws/managedDatabase/instanceType/eu-west-3/ORACLE',
    '/aws/managedDatabase/instanceType/nowhere/REDIS',
    '/nobody/instanceType',
  ])
    assert.equal((await api.call('GET', path)).status, 404, path)
  const scaleway = (await list('/scaleway/instanceType/fr-par-2')).map(({ type }) => type)
  assert.ok(scaleway.includes('GP1-XS') && !scaleway.includes('m5.xlarge'), String(scaleway))
  const redis = await list('/aws/managedDatabase/instanceType/eu-west-3/redis')
  assert.ok(redis.length > 5 && redis.every(({ name }) => name.startsWith('cache.')))
})

test('instance types are found under every name of a provider, and any token reads them', async () => {
  const reader = api.as(await api.newToken(['Deploy']))
  for (const [word, vendor] of [
    ['AWS', 'AWS'],
    ['aws', 'AWS'],
    ['SCW', 'SCW'],
    ['scaleway', 'SCW'],
    ['GCP', 'GCP'],
    ['azure', 'AZURE'],
  ] as const) {
    const { body } = await reader('GET', `/${word}/instanceType`)
    const known = instanceTypes[vendor].filter(({ gpu }) => gpu === undefined).map(({ type }) => type)
    assert.deepEqual(
      body.results.map((one: Json) => one.type),
      known,
      word,
    )
  }
  assert.deepEqual(await list('/HETZNER/instanceType'), [])
})
