import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { standIn } from '../../test/support/stand-in.ts'
import type { BuildRequest, Destination } from '../builds/builder.ts'
import type { ImageAccess } from '../images/images.ts'
import { DeploymentError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { Secret } from '../lib/secret.ts'
import { saveEngine } from '../store/installation.ts'
import type { Cluster } from './clusters.ts'
import { buildRefusal, createPushedBuilder, pushedName, type RegistryPlace } from './pushed-builder.ts'

const database = await testDatabase()
after(() => database.close())
/** Each test has its own. */
let organizationId = ''
const signal = AbortSignal.timeout(10_000)

const add = async (kind: string, spec: object, sealed: object = {}, id = newId()): Promise<string> => {
  await database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed)
     values ($1, $2, $3::text, $6, $3::text, $1::uuid::text, $4, $5)`,
    [
      id,
      organizationId,
      kind,
      JSON.stringify(spec),
      JSON.stringify(sealed),
      id === organizationId ? null : organizationId,
    ],
  )
  return id
}
const addCluster = async (credentials: { spec?: object; sealed?: object }, more: object = {}): Promise<string> => {
  const id = await add('onpremise_credentials', credentials.spec ?? {}, credentials.sealed)
  const own = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED' }
  return add('cluster', { ...own, cloud_provider_credentials: { credentials: { id } }, ...more })
}
const setArchitecture = (key: string, architecture: string) =>
  database.query(
    `insert into cluster_capacity (cluster, cpu_millicores, memory_mb, architecture, limits_volumes)
     values ($1, 1000, 1000, $2, false) on conflict (cluster) do update set architecture = excluded.architecture`,
    [key, architecture],
  )

const place: RegistryPlace = {
  url: 'https://Registry.example:5000/Team/',
  login: new Secret({ username: 'me', password: 'p' }),
}
const digests = ['a', 'b'].map((letter) => `sha256:${letter.repeat(64)}`)

/** Engines that build one image of one content, and a registry that keeps what is pushed. */
const start = async () => {
  organizationId = newId()
  await add('organization', {}, {}, organizationId)
  const request = { organizationId, serviceId: newId(), clusterId: 'unknown' } as BuildRequest
  const local = await add('cluster', { is_default: true })
  const engine = await addCluster({ spec: { engine_url: 'tcp://engine:2376' } })
  const registryId = await add('container_registry', {})
  const cluster = await addCluster({ sealed: { kubeconfig: 'x' } }, { container_registry_id: registryId })
  const built: string[] = []
  const pushed: string[] = []
  const there = new Set<string>()
  const registries = new Map([[registryId, place]])
  const of = async (clusterId: string): Promise<Cluster> => {
    const build = async (asked: BuildRequest, onLog: (text: string) => void, inner: AbortSignal, to?: Destination) => {
      assert.equal(asked.clusterId, clusterId, 'what an engine keeps is under its own cluster')
      const found = await to!.find('c0ffee', inner)
      if (found !== null) return { ...found, contentKey: 'c0ffee', skipped: true }
      built.push(clusterId)
      const image = { imageId: 'sha256:1', contentKey: 'c0ffee', save: () => Promise.reject(new Error('not read')) }
      return { ...image, ...(await to!.take(image, onLog, inner)), skipped: false }
    }
    const found = async (_asked: BuildRequest, inner: AbortSignal, to?: Destination) =>
      (await to!.find('c0ffee', inner))?.reference ?? null
    return standIn<Cluster>({ key: clusterId === local ? 'local' : clusterId, builder: { build, built: found } })
  }
  const nameOf = ({ repository, tag }: ImageAccess): string => `${repository}@${tag}`
  const builder = createPushedBuilder(
    {
      database,
      of,
      registry: async (_organization, id) => registries.get(id) ?? null,
      push: {
        isThere: async (image) => there.has(nameOf(image)),
        push: async (image) => {
          const digest = digests[pushed.length % 2]!
          pushed.push(`${image.repository}:${image.tag}`)
          there.add(nameOf({ ...image, tag: digest }))
          return digest
        },
      },
    },
    cluster,
  )
  return { request, local, engine, cluster, registryId, builder, built, pushed, there, registries }
}

test('an image of a service has one name below the path of the registry, or below the user at Docker Hub', () => {
  const login = new Secret({ username: 'Me', password: 'p' })
  const cases: [string, string][] = [
    ['https://ghcr.io/Acme', 'ghcr.io/acme/slipway-1'],
    ['https://registry.example:5000', 'registry.example:5000/slipway-1'],
    ['https://registry.example/a/b/', 'registry.example/a/b/slipway-1'],
    ['https://docker.io', 'docker.io/me/slipway-1'],
    ['https://hub.docker.com/acme', 'docker.io/acme/slipway-1'],
  ]
  for (const [url, name] of cases) assert.equal(pushedName({ url, login }, '1'), name)
})

test('the same content is built and pushed once, and again where the registry lost it or is another one', async () => {
  const { request, local, builder, built, pushed, there, registries, registryId } = await start()
  const lines: string[] = []
  const once = () => builder.build(request, (text) => lines.push(text), signal)
  assert.equal(await builder.built(request, signal), null)
  const first = await once()
  const repository = `registry.example:5000/team/slipway-${request.serviceId}`
  assert.deepEqual([first.reference, first.skipped], [`${repository}@${digests[0]}`, false])
  assert.deepEqual([built, pushed], [[local], [`${repository}:c0ffee`]])
  assert.deepEqual(lines, [`Pushed as ${repository}@${digests[0]}.\n`])
  assert.equal(await builder.built(request, signal), first.reference)
  assert.deepEqual([(await once()).skipped, pushed.length], [true, 1])
  const other = await builder.build({ ...request, serviceId: newId() }, () => {}, signal)
  assert.equal(other.reference, first.reference, 'another service with the same content has the same image')
  there.clear()
  assert.equal((await once()).reference, `${repository}@${digests[1]}`)
  registries.set(registryId, { ...place, url: 'https://other.example' })
  assert.match((await once()).reference, /^other\.example\/slipway-/)
  assert.equal(pushed.length, 3)
})

const code = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => assert.fail('it was built'),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof DeploymentError, String(error))
  return `${error.code}: ${error.message}`
}

test('the engine that builds has the architecture of the machines, and without one, or a registry, it is said what to do', async () => {
  const { request, local, engine, cluster, builder, built, registries, there } = await start()
  await setArchitecture('local', 'AMD64')
  await setArchitecture(cluster, 'ARM64')
  await setArchitecture(engine, 'ARM64')
  await builder.build(request, () => {}, signal)
  assert.deepEqual(built, [engine])
  await setArchitecture(engine, 'AMD64')
  assert.match(
    await code(builder.build(request, () => {}, signal)),
    /^builder_missing: The machines of the cluster are ARM64/,
  )
  await setArchitecture(cluster, 'AMD64')
  there.clear()
  await builder.build(request, () => {}, signal)
  assert.equal(built.at(-1), local)
  registries.clear()
  assert.match(await code(builder.build(request, () => {}, signal)), /^registry_missing: /)

  assert.equal(await buildRefusal(database, cluster), null)
  await database.query(`update node set spec = spec - 'container_registry_id' where id = $1`, [cluster])
  assert.match((await buildRefusal(database, cluster)) ?? '', /has no container registry/)
  assert.match(await code(builder.build(request, () => {}, signal)), /^registry_missing: /)
  for (const key of ['local', engine]) assert.equal(await buildRefusal(database, key), null)
})

test('without an engine of this machine another one of the organization builds, and without that it is said before', async (t) => {
  const { request, engine, cluster, builder, built } = await start()
  await setArchitecture(engine, 'AMD64')
  await setArchitecture(cluster, 'AMD64')
  await saveEngine(database, false)
  t.after(() => saveEngine(database, true))
  await builder.build(request, () => {}, signal)
  assert.deepEqual([built, await buildRefusal(database, cluster)], [[engine], null])
  await database.query('delete from node where id = $1', [engine])
  assert.match((await buildRefusal(database, cluster)) ?? '', /^There is no Docker engine that builds/)
  assert.match(await code(builder.build(request, () => {}, signal)), /^builder_missing: There is no Docker engine/)
})
