/**
 * A data directory that is restored from a copy or a backup, and one that is copied while the original is in use, on a
 * real engine: nothing that was made since is touched before an operator has chosen.
 */
import assert from 'node:assert/strict'
import { join } from 'node:path'
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
  runWith,
  saysHeld,
  untilHeld,
} from './support/slipway/copies.ts'
import type { Json, Slipway } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, hostOf, type Place, settle, visit } from './support/slipway/story.ts'
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

const passphrase = { SLIPWAY_BACKUP_PASSPHRASE: 'a passphrase of tests' }

/** The file of a backup that is made while the server runs. */
const backUp = async (slipway: Slipway): Promise<string> => {
  const folder = join(newCopyPlace(), 'backups')
  return join(folder, (await runWith(slipway, passphrase, 'backup', '--to', folder)).trim())
}

/** A server on a data directory that was restored; not started. */
const restore = async (file: string): Promise<Slipway> => {
  const restored = await prepareCopied()
  await runWith(restored, passphrase, 'restore', '--from', file)
  return restored
}

test('a restored backup changes nothing while the first server lives, nor does its reset', async () => {
  const slipway = await begin()
  try {
    const before = await make(slipway)
    const clusterId = await clusterOf(slipway, before.place)
    const early = await backUp(slipway)
    const since = await make(slipway)
    const held = await restore(early)
    await held.start()
    const found = await untilHeld(held, clusterId)
    assert.ok(found.results.some(({ id }: Json) => id === since.id))
    await saysHeld(held, `/application/${before.id}`)
    await held.kill('SIGTERM')
    assert.match(await runOn(held, 'reset', '--yes'), /The services there are left as they are/)
    for (const { id } of [before, since]) await holdsItsWord(id)

    // The same without anything that the backup lacks: only the life of the first one shows that this is a copy.
    const late = await backUp(slipway)
    const second = await restore(late)
    await second.start()
    await until(async () => (await readOrphans(second, clusterId)).conflict !== null, {
      timeoutMs: 60_000,
      what: 'the first server to be noticed',
    })
    await deploy(slipway, before.id)
    assert.equal(await settle(slipway, before.id), 'DEPLOYED')
    await second.kill('SIGTERM')
    assert.match(await runOn(second, 'reset', '--yes'), /The services there are left as they are/)
    // Nor does one that never started.
    const idle = await restore(late)
    assert.match(await runOn(idle, 'reset', '--yes'), /The services there are left as they are/)
    for (const { id } of [before, since]) await holdsItsWord(id)
  } finally {
    await slipway.remove()
  }
})

test('restored where nothing is left, what has a source comes back by itself, and what has data waits for it', async () => {
  const slipway = await begin()
  const withData = await make(slipway)
  const place = await createPlace(slipway)
  await git.createRepository('light')
  await git.commit('light', page('light again'), 'first')
  const { id } = await createApplication(slipway, place, 'light', git.url('light'))
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id), 'DEPLOYED')
  const file = await backUp(slipway)
  await slipway.remove()
  const restored = await restore(file)
  try {
    await restored.start()
    await until(async () => (await visit(restored, hostOf(place, 'light'))).text === 'light again', {
      timeoutMs: 120_000,
      what: 'the service without data to serve',
    })
    assert.deepEqual(await containersOf(withData.id), [])
    await deploy(restored, withData.id)
    assert.equal(await settle(restored, withData.id), 'DEPLOYED')
  } finally {
    await restored.remove()
  }
})
