/**
 * A data directory that is restored from a copy, and one that is copied while the original is in use, on a real engine:
 * nothing that was made since is touched before an operator has chosen.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
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
} from './support/slipway/copies.ts'
import type { Json, Slipway } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, type Place, settle } from './support/slipway/story.ts'
import { until } from './support/until.ts'

await ensureBusybox()
const git: GitServer = await startGitServer()
after(async () => {
  await git.close()
  await engine.close()
})

let made = 0

const begin = async (): Promise<Slipway> => {
  const slipway = await prepareCopied()
  await slipway.start()
  return slipway
}

interface Made {
  place: Place
  id: string
}

/** An application with a volume and a word in it, in an environment of its own. */
const make = async (slipway: Slipway): Promise<Made> => {
  made += 1
  const name = `kept${made}`
  await git.createRepository(name)
  await git.commit(name, page(name), 'first')
  const environment = await createPlace(slipway)
  const storage = [{ type: 'FAST_SSD', size: 4, mount_point: '/data' }]
  const { id } = await createApplication(slipway, environment, name, git.url(name), { storage })
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id), 'DEPLOYED')
  await tell(id, `echo ${id} > /data/word`)
  return { place: environment, id }
}

const tell = async (serviceId: string, command: string): Promise<string> => {
  const [container] = await containersOf(serviceId)
  assert.ok(container, `${serviceId} has no container`)
  const body = { Cmd: ['sh', '-c', command], AttachStdout: true, Tty: true }
  const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${container.Id}/exec`, { body })
  const output = await engine.stream('POST', `/exec/${Id}/start`, { body: { Detach: false, Tty: true } })
  let text = ''
  for await (const chunk of output.setEncoding('utf8')) text += chunk
  return text.trim()
}

const holdsItsWord = async (serviceId: string): Promise<void> =>
  assert.equal(await tell(serviceId, 'cat /data/word'), serviceId)

const volumesOf = async (serviceId: string): Promise<number> => {
  const query = { filters: JSON.stringify({ label: [`slipway.service=${serviceId}`] }) }
  return ((await engine.call<{ Volumes: unknown[] | null }>('GET', '/volumes', { query })).Volumes ?? []).length
}

/** The id of the default cluster. */
const clusterOf = async (slipway: Slipway, { organizationId }: Place): Promise<string> => {
  const { body } = await slipway.api('GET', `/organization/${organizationId}/cluster`)
  return body.results.find((each: Json) => each.is_default).id
}

test('a restored copy touches nothing that was made since, and does what the operator chooses', async () => {
  const slipway = await begin()
  try {
    const before = await make(slipway)
    const clusterId = await clusterOf(slipway, before.place)
    const old = newCopyPlace()
    await makeCopy(slipway, old)
    const since = await make(slipway)
    for (const action of ['adopt', 'remove']) {
      await putBack(slipway, old)
      const found = await untilHeld(slipway, clusterId)
      assert.equal(found.conflict.code, 'older_database')
      assert.deepEqual(namesIn(found), [`ENVIRONMENT ${since.place.environmentId}`, `SERVICE ${since.id}`])
      assert.equal(found.results[1].organization_id, before.place.organizationId)
      assert.equal(found.results[1].volumes.length, 1)
      for (const { id } of [before, since]) await holdsItsWord(id)
      await saysHeld(slipway, `/application/${before.id}`)
      await choose(slipway, clusterId, action)
      await deploy(slipway, before.id)
      assert.equal(await settle(slipway, before.id), 'DEPLOYED')
      await holdsItsWord(before.id)
      if (action === 'remove') break
      // It is listed with its kind, and keeps running: a sweep has passed when the deletion below is done.
      await holdsItsWord(since.id)
    }
    await until(async () => (await volumesOf(since.id)) + (await containersOf(since.id)).length === 0, {
      timeoutMs: 150_000,
      what: 'the orphan to be removed from its record',
    })
    await until(async () => (await readOrphans(slipway, clusterId)).results.length === 0, { what: 'an empty list' })
    await holdsItsWord(before.id)
  } finally {
    await slipway.remove()
  }
})

test('a second control plane on a copy of the data directory waits, and the first one continues', async () => {
  const slipway = await begin()
  try {
    const before = await make(slipway)
    const clusterId = await clusterOf(slipway, before.place)
    const second = await prepareCopied()
    await runOn(slipway, 'stop')
    await copyFolder(slipway.dataDir, second.dataDir)
    await slipway.start()
    const since = await make(slipway)
    await second.start()
    const found = await untilHeld(second, clusterId)
    assert.ok(found.results.some(({ id }: Json) => id === since.id))
    await deploy(slipway, before.id)
    assert.equal(await settle(slipway, before.id), 'DEPLOYED')
    assert.equal((await readOrphans(slipway, clusterId)).conflict, null)
    await second.kill('SIGTERM')
    // The whole copy is thrown away: the running services are not its own.
    assert.match(await runOn(second, 'reset', '--yes'), /The services there are left as they are/)
    for (const { id } of [before, since]) await holdsItsWord(id)
  } finally {
    await slipway.remove()
  }
})
