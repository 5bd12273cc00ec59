import assert from 'node:assert/strict'
import { test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import { Secret } from '../../lib/secret.ts'
import type { DeploymentParts } from '../parts.ts'
import { createPolicies } from './policies.ts'

const hash = '$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC'

/** Releases that record when their sealed environment is opened. */
const createScene = () => {
  const opened: string[] = []
  const gone = new Set<string>()
  const parts = {
    database: {
      query: async (_text: string, [id]: string[]) => (gone.has(id!) ? [] : [{ id, sealed: id, workload: {} }]),
    },
    sealer: {
      open: async (_organizationId: string, _place: object, sealed: string) => {
        opened.push(sealed)
        return new Secret(JSON.stringify({ env: { USERS: `${sealed}:${hash}` }, files: [], secretValues: [] }))
      },
    },
  }
  const policies = createPolicies(standIn<Pick<DeploymentParts, 'database' | 'sealer'>>(parts))
  const usersOf = async (serviceId: string, releaseId: string) =>
    (await policies.of({ serviceId, releaseId, ingress: { 'network.ingress.basic_auth_env_var': 'USERS' } }))?.users
  return { policies, opened, gone, usersOf }
}

test('a release is opened once for its users, however often it is looked at; another one anew', async () => {
  const { policies, opened, usersOf } = createScene()
  for (let look = 0; look < 3; look += 1) assert.deepEqual(await usersOf('a', 'first'), [`first:${hash}`])
  assert.deepEqual(await usersOf('a', 'second'), [`second:${hash}`])
  assert.deepEqual(opened, ['first', 'second'])
  policies.keep(new Set(['b']))
  assert.deepEqual(await usersOf('a', 'second'), [`second:${hash}`])
  assert.deepEqual(opened, ['first', 'second', 'second'])
})

test('a policy without users opens nothing, and a release that is gone admits no user', async () => {
  const { policies, opened, gone, usersOf } = createScene()
  const ingress = { 'network.ingress.proxy_body_size_mb': 1 }
  assert.equal((await policies.of({ serviceId: 'a', releaseId: 'first', ingress }))?.bodyBytes, 2 ** 20)
  gone.add('first')
  assert.deepEqual(await usersOf('a', 'first'), [])
  assert.deepEqual(opened, [])
})
