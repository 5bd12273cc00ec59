import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { until } from '../../test/support/until.ts'
import { newId } from '../lib/ids.ts'
import { createLog } from '../lib/log.ts'
import { systemClock } from '../lib/time/clock.ts'
import { createFakeRuntime } from '../runtimes/fake/fake.ts'
import { createSealer } from '../store/keys/seal.ts'
import { createWorkRegistry } from '../work/registry.ts'
import { createClusters } from './clusters.ts'
import type { EngineTarget } from './engines.ts'
import { noBuilder } from './no-runtime.ts'

const database = await testDatabase()
const folder = mkdtempSync(join(tmpdir(), 'slipway-clusters-'))
const sealer = await createSealer({ database, masterKeyFile: join(folder, 'master') })
const opened: EngineTarget[] = []
const closed: string[] = []
const cleared: string[] = []
const silent = { host: 'silent.example', answered: Promise.withResolvers<void>() }

/** A server over the database: it connects to runtimes that record when they are closed. */
const startServer = async () => {
  const runtime = createFakeRuntime({ ownerId: newId() })
  const clusters = createClusters({
    database,
    runtime,
    others: {
      database,
      sealer,
      engines: {
        identify: () => Promise.reject(new Error('not asked')),
        ownId: async () => null,
        pin: async (host) => {
          if (host === silent.host) await silent.answered.promise
          return { address: '192.0.2.1' }
        },
        sockets: [],
        open(target) {
          opened.push(target)
          const there = createFakeRuntime({ ownerId: newId() })
          const name = `${target.clusterId} ${opened.length}`
          const close = async () => {
            closed.push(name)
            await there.close()
          }
          return {
            runtime: { ...there, close },
            builder: noBuilder,
            clear: async () => void cleared.push(target.clusterId),
          }
        },
      },
      openKubernetes: () => {
        throw new Error('not asked')
      },
      services: undefined as never,
      clock: systemClock,
      log: createLog('silent'),
      work: createWorkRegistry(systemClock),
    },
  })
  await clusters.start()
  return clusters
}

const [one, two] = [await startServer(), await startServer()]
after(async () => {
  await Promise.all([one.close(), two.close()])
  await database.close()
  rmSync(folder, { recursive: true, force: true })
})

const add = async (kind: string, organizationId: string, spec: object, sealed: object = {}, id = newId()) => {
  await database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed)
     values ($1, $2, $3::text, $4, $3::text, $1::uuid::text, $5, $6)`,
    [
      id,
      organizationId,
      kind,
      kind === 'organization' ? null : organizationId,
      JSON.stringify(spec),
      JSON.stringify(sealed),
    ],
  )
  return id
}

const seal = (organizationId: string, row: string, text: string) =>
  sealer.seal(organizationId, { table: 'node', row, column: 'engine_ssh_key' }, text)

/** An organization with a cluster that is an engine behind SSH. */
const addEngine = async (host = 'engine.example') => {
  const organizationId = newId()
  await add('organization', organizationId, {}, {}, organizationId)
  const credentialsId = newId()
  const sealed = { engine_ssh_key: await seal(organizationId, credentialsId, 'the key') }
  const spec = { engine_url: `ssh://deploy@${host}:2222`, engine_ssh_host_keys: 'ssh-ed25519 AAAA' }
  await add('onpremise_credentials', organizationId, spec, sealed, credentialsId)
  const described = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED' }
  const info = { cloud_provider_credentials: { credentials: { id: credentialsId } } }
  return {
    organizationId,
    credentialsId,
    described,
    clusterId: await add('cluster', organizationId, { ...described, ...info }),
  }
}

const keys = (clusters: typeof one) => clusters.all().map(({ key }) => key)

test('every server connects to a cluster that comes, anew when its credentials change, and lets go of one that goes', async () => {
  const { organizationId, credentialsId, clusterId } = await addEngine()
  for (const clusters of [one, two])
    await until(() => keys(clusters).includes(clusterId), { what: 'the cluster to be connected' })
  const first = await one.of(clusterId)
  assert.deepEqual([first.isConnected, first.key, first], [true, clusterId, one.all().at(-1)])
  const target = opened.find((each) => each.clusterId === clusterId)!
  assert.equal(target.connection.kind, 'ssh')
  if (target.connection.kind !== 'ssh') return
  const { key, pin, ...rest } = target.connection
  assert.deepEqual(
    [rest, key.reveal(), target.organizationId],
    [
      {
        kind: 'ssh',
        host: 'engine.example',
        port: 2222,
        user: 'deploy',
        hostKeys: 'ssh-ed25519 AAAA',
        socketPath: '/var/run/docker.sock',
      },
      'the key',
      organizationId,
    ],
  )
  assert.ok(!JSON.stringify(opened).includes('the key'))
  const sealed = { engine_ssh_key: await seal(organizationId, credentialsId, 'another key') }
  await database.query('update node set sealed = $2, version = version + 1 where id = $1', [credentialsId, sealed])
  await until(async () => (await one.of(clusterId)) !== first, { what: 'the connection to be replaced' })
  assert.equal(keys(one).filter((each) => each === clusterId).length, 1)
  await database.query('delete from node where id = $1', [clusterId])
  for (const clusters of [one, two])
    await until(() => !keys(clusters).includes(clusterId), { what: 'the cluster to be let go' })
  assert.equal((await one.of(clusterId)).isConnected, false)
})

test('a cluster is connected as soon as it is asked for, once; one with foreign credentials or none is not', async () => {
  const { clusterId, described, credentialsId } = await addEngine()
  const before = opened.length
  const found = await Promise.all([one.of(clusterId), one.of(clusterId)])
  assert.equal(found[0].isConnected, true)
  assert.equal(found[0], found[1])
  const ofOne = opened.slice(before).filter((each) => each.clusterId === clusterId)
  assert.ok(ofOne.length <= 2, 'each server connects once')
  const other = newId()
  await add('organization', other, {}, {}, other)
  const stolen = await add('cluster', other, {
    ...described,
    cloud_provider_credentials: { credentials: { id: credentialsId } },
  })
  const plain = await add('cluster', other, described)
  const managed = await add('cluster', other, { ...described, kubernetes: 'MANAGED' })
  for (const id of [stolen, plain, managed]) assert.equal((await one.of(id)).isConnected, false)
})

test('a connection whose server stops is closed', async () => {
  const server = await startServer()
  const { clusterId } = await addEngine()
  await server.of(clusterId)
  const name = `${clusterId} `
  const before = closed.filter((each) => each.startsWith(name)).length
  await server.close()
  assert.equal(closed.filter((each) => each.startsWith(name)).length, before + 1)
})

test('a cluster that does not answer delays no other, neither at the start nor later', async () => {
  const before = await addEngine(silent.host)
  const known = await addEngine()
  const server = await startServer()
  try {
    assert.ok(keys(server).includes(known.clusterId), 'what answers is connected when the server has started')
    const late = await addEngine()
    await until(() => keys(server).includes(late.clusterId), { what: 'a cluster that comes later' })
    const asked = await addEngine()
    assert.equal((await server.of(asked.clusterId)).isConnected, true)
    assert.ok(!keys(server).includes(before.clusterId))
    silent.answered.resolve()
    await until(() => keys(server).includes(before.clusterId), { what: 'the silent one to be connected' })
  } finally {
    silent.answered.resolve()
    await server.close()
  }
})
