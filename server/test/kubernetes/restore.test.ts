/**
 * A data directory that is restored from a copy, and one that is copied while the original stays in use, on a real
 * cluster: nothing that was made since is touched before an operator has chosen, and adopted services serve from their
 * old volumes.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { send } from '../support/planes.ts'
import {
  choose,
  copyFolder,
  makeCopy,
  namesIn,
  newCopyPlace,
  prepareCopied,
  putBack,
  readOrphans,
  runOn,
  saysHeld,
  untilHeld,
} from '../support/slipway/copies.ts'
import { type Json, openSlipways, type Slipway } from '../support/slipway/slipway.ts'
import { settleAt } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Admin } from './cluster/admin.ts'
import {
  type Place,
  pageOf,
  registerCluster,
  servingContainer,
  servingScript,
  needsOwnNode as skip,
} from './cluster/place.ts'
import { outsideAddress, startNodeRegistry } from './cluster/registry.ts'
import { host, openCluster, port, revokeAccess } from './cluster/scene.ts'

const patience = { timeoutMs: 180_000 }
const admin = (skip === false ? await openCluster() : {}) as Admin
const registry = (skip === false ? await startNodeRegistry() : {}) as Place['registry']
const environments: string[] = []
const options = { fake: true, env: { SLIPWAY_OUTBOUND_ALLOW: `loopback,${host}:${port},${outsideAddress()}` } }
after(async () => {
  if (skip !== false) return
  for (const slipway of openSlipways) await slipway.remove()
  for (const id of environments)
    await admin.remove({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: `slipway-${id}` } })
  await revokeAccess(admin)
  admin.close()
  await registry.close()
})

type Must = Place['must']

interface Scene {
  slipway: Slipway
  must: Must
  organizationId: string
  clusterId: string
  newEnvironment(name: string): Promise<string>
  /** A container that serves the word that its volume was first given, deployed; its id. */
  keeping(environmentId: string, name: string): Promise<string>
  /** One without a volume. */
  plain(environmentId: string, name: string): Promise<string>
  deploy(path: string): Promise<void>
}

/** The word is written once: another version finds it. */
const scriptOf = (word: string, version: string): string =>
  `[ -f /data/index.html ] || echo ${word} > /data/index.html; echo ${version}; exec httpd -f -p 8080 -h /data`

const begin = async (): Promise<Scene> => {
  const slipway = await prepareCopied(options)
  await slipway.start()
  const must: Must = (...asked) => send(slipway, ...asked)
  const { id: organizationId } = await must('GET', '/organization')
  const { clusterId, registryId } = await registerCluster(must, organizationId, admin, registry)
  const project = await must('POST', `/organization/${organizationId}/project`, { name: 'restored' })
  const deploy = async (path: string): Promise<void> => {
    await must('POST', `${path}/deploy`, { image_tag: '1' })
    const state = await settleAt(slipway, path, patience.timeoutMs)
    if (state !== 'DEPLOYED') assert.fail(`${path}: ${JSON.stringify(await must('GET', `${path}/status`))}`)
  }
  const make = async (environmentId: string, name: string, more: Json): Promise<string> => {
    const body = servingContainer({ registryId }, name, more)
    const { id } = await must('POST', `/environment/${environmentId}/container`, body)
    await deploy(`/container/${id}`)
    await serves(environmentId, id, name)
    return id
  }
  const storage = [{ type: 'FAST_SSD', size: 4, mount_point: '/data' }]
  return {
    ...{ slipway, must, organizationId, clusterId, deploy },
    async newEnvironment(name) {
      const { id } = await must('POST', `/project/${project.id}/environment`, { name, cluster: clusterId })
      environments.push(id)
      return id
    },
    keeping: (environmentId, name) => make(environmentId, name, { arguments: [scriptOf(name, 'one')], storage }),
    plain: (environmentId, name) => make(environmentId, name, { arguments: [servingScript.replace('$PAGE', name)] }),
  }
}

const serves = (environmentId: string, id: string, word: string): Promise<unknown> =>
  until(async () => (await pageOf({ admin }, environmentId, id)).startsWith(`200 ${word}`), {
    ...patience,
    what: `${word} to be served`,
  })

const kinds = [
  ...['api/v1/*/persistentvolumeclaims', 'api/v1/*/pods', 'api/v1/*/services'],
  ...['apis/apps/v1/*/statefulsets', 'apis/apps/v1/*/deployments', 'apis/networking.k8s.io/v1/*/ingresses'],
]

/** What there is of these environments, as the cluster made it: what is made again is another one. */
const standing = async (...environmentIds: string[]): Promise<string[]> => {
  const found: string[] = []
  for (const id of environmentIds) {
    const { metadata } = await admin.get(`/api/v1/namespaces/slipway-${id}`)
    found.push(`${metadata.name} ${metadata.uid}`)
    for (const kind of kinds) {
      const { items } = await admin.get(`/${kind.replace('*', `namespaces/slipway-${id}`)}`)
      found.push(...items.map((each: Json) => `${kind} ${each.metadata.name} ${each.metadata.uid}`).sort())
    }
  }
  return found
}

const standingClaims = async (...environmentIds: string[]): Promise<string[]> =>
  (await standing(...environmentIds)).filter((each) => each.includes('persistentvolumeclaims'))

const isGone = async (environmentId: string): Promise<boolean> =>
  (await admin.ask('GET', `/api/v1/namespaces/slipway-${environmentId}`)).status === 404

/** The hosts that Ingresses of an environment lead. */
const hostsLed = async (environmentId: string): Promise<string[]> => {
  const { items } = await admin.get(`/apis/networking.k8s.io/v1/namespaces/slipway-${environmentId}/ingresses`)
  return items.flatMap(({ spec }: Json) => spec.rules.map((rule: Json) => rule.host))
}

const changeTo = async ({ must }: Scene, id: string, word: string, version: string): Promise<void> => {
  await must('PUT', `/container/${id}`, { arguments: [scriptOf(word, version)] })
}

test('a restored copy touches nothing that was made since; adopted services serve as before, removed ones are deleted', {
  skip,
}, async (t) => {
  const scene = await begin()
  const { slipway, must, organizationId, clusterId, deploy, keeping, newEnvironment } = scene
  const known = await newEnvironment('known')
  const before = await keeping(known, 'before')
  const old = newCopyPlace()
  await makeCopy(slipway, old)

  const since = await newEnvironment('since')
  const made = await keeping(since, 'since')
  const plain = await scene.plain(since, 'plain')
  const late = await keeping(known, 'late')
  await changeTo(scene, before, 'before', 'two')
  await deploy(`/container/${before}`)
  const stopped = await keeping(known, 'stopped')
  await must('POST', `/container/${stopped}/stop`)
  assert.equal(await settleAt(slipway, `/container/${stopped}`), 'STOPPED')
  const all = await standing(known, since)
  t.diagnostic(`on the cluster: ${all.length} objects of two environments`)

  await putBack(slipway, old)
  const found = await untilHeld(slipway, clusterId)
  assert.equal(found.conflict.code, 'older_database')
  const unknown = [
    `ENVIRONMENT ${since}`,
    `VERSION ${before}`,
    ...[made, plain, late, stopped].map((id) => `SERVICE ${id}`),
  ]
  assert.deepEqual(namesIn(found).sort(), unknown.sort())
  for (const { id, kind, volumes, created_at } of found.results)
    if (kind === 'SERVICE') assert.deepEqual([volumes.length, typeof created_at], [id === plain ? 0 : 1, 'string'])
  t.diagnostic(`held: ${JSON.stringify(found)}`)
  await saysHeld(slipway, `/container/${before}`)
  const { results: clusters } = await must('GET', `/organization/${organizationId}/cluster/status`)
  const status = clusters.find(({ cluster_id }: Json) => cluster_id === clusterId)
  assert.match(status.error_message, /until an operator decides/)
  assert.deepEqual(await standing(known, since), all)

  const { adopted, left } = await choose(slipway, clusterId, 'adopt')
  assert.deepEqual([adopted.toSorted(), left], [[since, before, made, plain, late, stopped].sort(), []])
  await until(async () => (await readOrphans(slipway, clusterId)).results.length === 0, {
    ...patience,
    what: 'an empty list',
  })
  // A pass of the reconciler has found everything as it should be.
  assert.deepEqual(await standing(known, since), all)
  for (const [environmentId, id, word] of [
    [since, made, 'since'],
    [since, plain, 'plain'],
    [known, late, 'late'],
    [known, before, 'before'],
  ] as const) {
    await serves(environmentId, id, word)
    assert.equal(await settleAt(slipway, `/container/${id}`), 'DEPLOYED')
    const links = (await must('GET', `/container/${id}/link`)).results.map(({ url }: Json) => new URL(url).hostname)
    const led = await hostsLed(environmentId)
    for (const each of links) assert.ok(led.includes(each), `${each} of ${led.join()}`)
  }
  assert.match((await must('GET', `/container/${before}`)).arguments[0], /echo two/)
  assert.equal(await settleAt(slipway, `/container/${stopped}`), 'STOPPED')

  const claims = await standingClaims(since)
  await changeTo(scene, made, 'since', 'two')
  for (const path of [`/container/${made}`, `/container/${stopped}`, `/container/${plain}`]) await deploy(path)
  await serves(since, made, 'since')
  await serves(known, stopped, 'stopped')
  assert.deepEqual(await standingClaims(since), claims)

  await putBack(slipway, old)
  const again = await untilHeld(slipway, clusterId)
  assert.deepEqual(namesIn(again).sort(), unknown)
  await choose(slipway, clusterId, 'remove')
  await until(() => isGone(since), { ...patience, what: 'the namespace of the orphans to be gone' })
  await until(async () => (await standingClaims(known)).length === 1, { ...patience, what: 'one claim to be left' })
  await until(async () => (await readOrphans(slipway, clusterId)).results.length === 0, { what: 'an empty list' })
  await deploy(`/container/${before}`)
  await serves(known, before, 'before')

  const { metadata } = await admin.get(`/api/v1/namespaces/slipway-${known}`)
  const marked = `/api/v1/namespaces/default/configmaps?labelSelector=slipway.generation-of=${metadata.labels['slipway.owner']}`
  const marks = async (): Promise<number> => (await admin.get(marked)).items.length
  assert.equal(await marks(), 1)
  await must('DELETE', `/environment/${known}`)
  await until(async () => (await slipway.api('GET', `/environment/${known}`)).status === 404, {
    ...patience,
    what: 'the end of the environment',
  })
  assert.equal(await isGone(known), true)
  await must('DELETE', `/organization/${organizationId}/cluster/${clusterId}`)
  await until(async () => (await marks()) === 0, { timeoutMs: 60_000, what: 'the marks to go with the cluster' })
  await slipway.remove()
})

test('a deleted environment leaves the volume of an orphan in it, and is removed with that', { skip }, async () => {
  const { slipway, must, clusterId, keeping, plain, newEnvironment } = await begin()
  const known = await newEnvironment('half known')
  await plain(known, 'plain')
  const old = newCopyPlace()
  await makeCopy(slipway, old)
  const unknown = await keeping(known, 'unknown')
  await must('POST', `/container/${unknown}/stop`)
  assert.equal(await settleAt(slipway, `/container/${unknown}`), 'STOPPED')
  const claims = await standingClaims(known)
  assert.equal(claims.length, 1)

  await putBack(slipway, old)
  assert.deepEqual(namesIn(await untilHeld(slipway, clusterId)), [`SERVICE ${unknown}`])
  await choose(slipway, clusterId, 'ignore')
  await must('DELETE', `/environment/${known}`)
  await until(async () => (await slipway.api('GET', `/environment/${known}`)).status === 404, {
    ...patience,
    what: 'the end of the environment',
  })
  // Nothing runs in it, and its record asks for the namespace.
  assert.deepEqual(await standingClaims(known), claims)
  const listed = await readOrphans(slipway, clusterId)
  assert.deepEqual(namesIn(listed), [`SERVICE ${unknown}`])
  assert.notEqual(listed.results[0].ignored_at, null)
  await must('POST', `/cluster/${clusterId}/orphans/remove`, { ids: [unknown] })
  await until(() => isGone(known), { ...patience, what: 'the namespace to be gone' })
  await slipway.remove()
})

const conflictOf = async (slipway: Slipway, clusterId: string): Promise<string | null> =>
  (await readOrphans(slipway, clusterId)).conflict?.code ?? null

const untilConflict = (slipway: Slipway, clusterId: string, code: string | null): Promise<unknown> =>
  until(async () => (await conflictOf(slipway, clusterId)) === code, { timeoutMs: 60_000, what: `${code}` })

test('of two control planes on copies of a data directory one continues and the other waits, until an operator chooses that', {
  skip,
}, async () => {
  const scene = await begin()
  const { slipway, must, clusterId, deploy, keeping, newEnvironment } = scene
  const known = await newEnvironment('shared')
  const before = await keeping(known, 'shared')
  const second = await prepareCopied(options)
  await runOn(slipway, 'stop')
  await copyFolder(slipway.dataDir, second.dataDir)
  await slipway.start()
  await second.start()
  await untilConflict(second, clusterId, 'older_database')
  await saysHeld(second, `/container/${before}`)

  const since = await newEnvironment('of the first')
  const made = await keeping(since, 'first')
  await changeTo(scene, before, 'shared', 'two')
  await deploy(`/container/${before}`)
  assert.equal(await conflictOf(slipway, clusterId), null)
  await until(async () => namesIn(await readOrphans(second, clusterId)).includes(`SERVICE ${made}`), {
    ...patience,
    what: 'the copy to list what it does not know',
  })
  const claims = await standingClaims(known, since)

  // Choosing there makes the first one hold, and the other way round.
  await choose(second, clusterId, 'ignore')
  await untilConflict(slipway, clusterId, 'other_server')
  await saysHeld(slipway, `/container/${before}`)
  assert.ok(namesIn(await readOrphans(second, clusterId)).includes(`SERVICE ${made}`))
  await serves(since, made, 'first')
  await choose(slipway, clusterId, 'adopt')
  await untilConflict(second, clusterId, 'other_server')
  await deploy(`/container/${made}`)
  await deploy(`/container/${before}`)
  for (const [id, service, word] of [
    [since, made, 'first'],
    [known, before, 'shared'],
  ] as const)
    await serves(id, service, word)
  assert.deepEqual(await standingClaims(known, since), claims)

  await second.remove()
  for (const id of [known, since]) await must('DELETE', `/environment/${id}`)
  for (const id of [known, since]) await until(() => isGone(id), { ...patience, what: 'the namespace to be gone' })
  await until(async () => (await slipway.api('GET', `/environment/${since}`)).status === 404, { what: 'its end' })
  await slipway.remove()
})
