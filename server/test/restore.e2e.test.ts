/**
 * A data directory that is put back from a copy, and one that is copied while the original is at work, on a real engine:
 * nothing that was made since is touched before an operator has chosen.
 */
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { exec } from '../src/lib/exec.ts'
import { page } from './support/docker/apps.ts'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, type Place, settle } from './support/slipway/story.ts'
import { until } from './support/until.ts'

const program = (name: string) => new URL(`../src/programs/${name}.ts`, import.meta.url).pathname
const copies = mkdtempSync(join(tmpdir(), 'slipway-copies-'))
// The database's user reaches it there, as in a home folder that others may enter.
chmodSync(copies, 0o711)
await ensureBusybox()
const git: GitServer = await startGitServer()
after(async () => {
  await git.close()
  await engine.close()
  rmSync(copies, { recursive: true, force: true })
})

const run = async (what: string, env: Record<string, string>, ...words: string[]): Promise<string> => {
  const all = { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '/root', ...env }
  const { code, stdout, stderr } = await exec(process.execPath, [program(what), ...words], {
    env: all,
    timeoutMs: 60_000,
  })
  assert.equal(code, 0, stdout + stderr)
  return stdout
}

const place = ({ dataDir, routerPort }: Slipway) => ({
  SLIPWAY_DATA_DIR: dataDir,
  SLIPWAY_ROUTER_PORT: String(routerPort),
})

const copy = async (from: string, to: string): Promise<void> => {
  rmSync(to, { recursive: true, force: true })
  const { code, stderr } = await exec('cp', ['-aL', from, to], { env: { PATH: process.env.PATH ?? '' } })
  assert.equal(code, 0, stderr)
}

let made = 0

const begin = async (): Promise<Slipway> => {
  const slipway = await prepareSlipway()
  chmodSync(slipway.dataDir, 0o711)
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

/** The default cluster, and what is known of it. */
const orphansOf = async (slipway: Slipway, { organizationId }: Place): Promise<Json> => {
  const clusters = await slipway.api('GET', `/organization/${organizationId}/cluster`)
  const { id } = clusters.body.results.find((each: Json) => each.is_default)
  const { body } = await slipway.api('GET', `/cluster/${id}/orphans`)
  return { clusterId: id, ...body }
}

const choose = async (slipway: Slipway, clusterId: string, action: string): Promise<Json> => {
  const answer = await slipway.api('POST', `/cluster/${clusterId}/conflict`, { action, confirm: true })
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  return answer.body
}

const hold = (slipway: Slipway, known: Place): Promise<Json> =>
  until(
    async () => {
      const found = await orphansOf(slipway, known)
      return found.conflict !== null && found.results.length > 0 ? found : null
    },
    { timeoutMs: 60_000, what: 'the conflict to be reported' },
  )

const reset = async (slipway: Slipway): Promise<void> => {
  await slipway.remove()
}

test('a copy that is put back touches nothing that was made since, and does what the operator chooses', async () => {
  const slipway = await begin()
  try {
    const before = await make(slipway)
    await run('stop', place(slipway))
    await copy(slipway.dataDir, join(copies, 'old'))
    await slipway.start()
    const since = await make(slipway)
    for (const action of ['adopt', 'remove']) {
      await run('stop', place(slipway))
      await copy(join(copies, 'old'), slipway.dataDir)
      await slipway.start()
      const found = await hold(slipway, before.place)
      assert.equal(found.conflict.code, 'older_database')
      assert.deepEqual(
        found.results.map(({ id, kind }: Json) => `${kind} ${id}`),
        [`ENVIRONMENT ${since.place.environmentId}`, `SERVICE ${since.id}`],
      )
      assert.equal(found.results[1].organization_id, before.place.organizationId)
      assert.equal(found.results[1].volumes.length, 1)
      for (const { id } of [before, since]) await holdsItsWord(id)
      const refused = await slipway.api('POST', `/application/${before.id}/deploy`)
      assert.equal(refused.status, 409, JSON.stringify(refused.body))
      assert.equal(refused.body.code, 'cluster_conflict')
      await until(async () => ((await (await fetch(`${slipway.url}/readyz`)).json()) as Json).cluster_conflicts === 1, {
        what: 'the conflict in /readyz',
      })
      assert.match(slipway.output(), /Nothing is changed on this cluster until an operator decides/)
      await choose(slipway, found.clusterId, action)
      await deploy(slipway, before.id)
      assert.equal(await settle(slipway, before.id), 'DEPLOYED')
      await holdsItsWord(before.id)
      if (action === 'remove') break
      // It is listed as what it is, and runs on: a sweep has passed when the deletion below is done.
      await holdsItsWord(since.id)
    }
    await until(async () => (await volumesOf(since.id)) + (await containersOf(since.id)).length === 0, {
      timeoutMs: 150_000,
      what: 'the orphan to be removed from its record',
    })
    await until(async () => (await orphansOf(slipway, before.place)).results.length === 0, { what: 'an empty list' })
    await holdsItsWord(before.id)
  } finally {
    await reset(slipway)
  }
})

test('a second control plane on a copy of the data directory holds, and the first one goes on', async () => {
  const slipway = await begin()
  try {
    const before = await make(slipway)
    await run('stop', place(slipway))
    const second = await prepareSlipway()
    await copy(slipway.dataDir, second.dataDir)
    await slipway.start()
    const since = await make(slipway)
    await second.start()
    const found = await hold(second, before.place)
    assert.ok(found.results.some(({ id }: Json) => id === since.id))
    await deploy(slipway, before.id)
    assert.equal(await settle(slipway, before.id), 'DEPLOYED')
    assert.equal((await orphansOf(slipway, before.place)).conflict, null)
    await second.kill('SIGTERM')
    // The copy is thrown away as a whole: what runs is not its own.
    assert.match(await run('reset', place(second), '--yes'), /What runs there is left as it is/)
    for (const { id } of [before, since]) await holdsItsWord(id)
  } finally {
    await reset(slipway)
  }
})
