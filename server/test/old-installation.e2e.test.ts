/**
 * The data directory of an older version, as installations/make.ts stored it: this version migrates it, returns the
 * same responses, and keeps its services running.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { copyFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, type TestContext, test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { newId } from '../src/lib/ids.ts'
import { migrate } from '../src/store/database.ts'
import { takeDump } from './installations/dump.ts'
import { secretValue } from './installations/story.ts'
import { type TestDatabase, testDatabase } from './support/database.ts'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import { leftoversOf } from './support/docker/leftovers.ts'
import { send } from './support/planes.ts'
import { choose, namesIn, readOrphans, saysHeld, untilHeld } from './support/slipway/copies.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createPlace, hostOf, isSettled, visit } from './support/slipway/story.ts'
import { until } from './support/until.ts'

interface Old {
  database: TestDatabase
  ownerId: string
  ids: Record<string, string>
  /** Its responses, with the addresses of the new server. */
  answers: Record<string, Json>
  /** Its objects on the engine, with this test's mark. */
  onEngine: { networks: Json[]; containers: { name: string; body: Json }[] }
  slipway: Slipway
  /** Restores the database of that version, while the server is stopped. */
  putBack(): Promise<void>
}

const keysOf = (revision: string): URL => new URL(`./data/${revision}/`, import.meta.url)
const textOf = (revision: string, name: string): string => {
  const bytes = readFileSync(new URL(name, keysOf(revision)))
  return (name.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8')
}

/** Of `busybox:1`, which each machine makes for itself. */
const busyboxId = async (): Promise<string> =>
  (await engine.call<{ Id: string }>('GET', `/images/${await ensureBusybox('busybox:1')}/json`)).Id

/** Returns its old mark. */
const fill = async (database: TestDatabase, dump: string, ownerId: string): Promise<string> => {
  await database.query('drop schema public cascade')
  await database.query('create schema public')
  await database.transaction((tx) => takeDump(tx, dump))
  const [{ value: before } = { value: '' }] = await database.query<{ value: string }>(
    `select value from installation where name = 'owner'`,
  )
  await database.query(`update installation set value = $1 where name = 'owner'`, [ownerId])
  return before
}

/** As it was, except for its mark (several tests may have it on one engine at a time) and the id of its image. */
const restore = async (t: TestContext, revision: string, fake: boolean): Promise<Old> => {
  const keys = mkdtempSync(join(tmpdir(), 'slipway-keys-'))
  const master = join(keys, 'master')
  await copyFile(new URL('master', keysOf(revision)), master)
  const database = await testDatabase()
  const dump = textOf(revision, 'dump.sql.gz')
  const image = /"image":"(sha256:[0-9a-f]{64})"/.exec(dump)![1]!
  const imageHere = fake ? image : await busyboxId()
  const dumpHere = dump.replaceAll(image, imageHere)
  const ownerId = newId()
  const before = await fill(database, dumpHere, ownerId)
  const slipway = await prepareSlipway({
    fake,
    env: {
      DATABASE_URL: database.connectionString,
      SLIPWAY_MASTER_KEY_FILE: master,
      // Its containers are made from this name.
      SLIPWAY_ENGINE_IMAGES: 'busybox',
    },
  })
  t.after(async () => {
    await slipway.remove()
    if (!fake) assert.deepEqual(await leftoversOf(ownerId), [])
    rmSync(keys, { recursive: true, force: true })
  })
  const asHere = textOf(revision, 'answers.json.gz')
    .replaceAll(image, imageHere)
    .replaceAll('{url}', slipway.url)
    .replaceAll('{router}', String(slipway.routerPort))
  const subnet = `10.${193 + Math.floor(Math.random() * 60)}.`
  const onEngine = textOf(revision, 'engine.json.gz')
    .replaceAll(before, ownerId)
    .replaceAll(/\b10\.\d+\./g, subnet)
  const putBack = async (): Promise<void> => void (await fill(database, dumpHere, ownerId))
  return { database, ownerId, ...JSON.parse(asHere), onEngine: JSON.parse(onEngine), slipway, putBack }
}

/** Makes the objects that it had on its engine. */
const placeOnEngine = async ({ onEngine }: Old): Promise<void> => {
  for (const body of onEngine.networks) await engine.call('POST', '/networks/create', { body })
  for (const { name, body } of onEngine.containers) {
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })
    await engine.call('POST', `/containers/${Id}/start`)
  }
}

/** Reading changes these: reads are in the audit log, and a token was used. The rest comes from the engine. */
const changesByItself = (path: string): boolean =>
  /\/events$|\/limits$|\/last_used_at$|\/maximum_(cpu|memory)$/.test(path)

/** Intended differences of this version. */
const onPurpose: readonly RegExp[] = [
  // A git token is not an account.
  /\/gitAuthProvider /,
  // Durations are rounded once, and stages have theirs.
  /\/steps\/.*duration_sec: /,
  // The engine's vocabulary.
  /\/logs .*\/stage\/step: /,
  // More runs are stored.
  /\/cronjob\.(failed|success)_jobs_history_limit: /,
]

/** Lists of statuses have no order. */
const byId = (list: Json[]): Json[] => list.toSorted((a, b) => String(a?.id ?? '').localeCompare(String(b?.id ?? '')))

/** Where the first differs from the second, which may contain more. */
const differences = (old: Json, now: Json, path = ''): string[] => {
  if (Array.isArray(old) && Array.isArray(now) && old.length < now.length)
    return old
      .filter((each) => !now.some((other) => differences(each, other).length === 0))
      .map((each) => `${path}: ${JSON.stringify(each)} is missing`)
  if (Array.isArray(old) && Array.isArray(now) && old.length === now.length)
    return byId(old).flatMap((each, index) => differences(each, byId(now)[index], `${path}/${index}`))
  if (old !== null && now !== null && typeof old === 'object' && typeof now === 'object' && !Array.isArray(old))
    return Object.entries(old).flatMap(([name, value]) => differences(value, now[name], `${path}/${name}`))
  return old === now || changesByItself(path) ? [] : [`${path}: ${JSON.stringify(old)} is ${JSON.stringify(now)}`]
}

const settled = (slipway: Slipway, path: string): Promise<string> =>
  until(
    async () => {
      const { state } = await send(slipway, 'GET', `${path}/status`)
      return isSettled(state) ? state : null
    },
    { timeoutMs: 30_000, what: `${path} to settle` },
  )

const runningState = async ({ slipway, ids }: Old): Promise<string> =>
  (await send(slipway, 'GET', `/container/${ids.containerId}/status`)).running_state

/** A container that serves the first content of its volume. */
const keeping = (ids: Record<string, string>) => ({
  ...{ name: 'keeping', registry_id: ids.containerRegistryId, image_name: 'busybox', tag: '1', entrypoint: 'sh' },
  arguments: [
    '-c',
    "[ -f /data/index.html ] || echo of this version > /data/index.html; trap 'exit 0' TERM; httpd -p 8080 -h /data; while :; do sleep 0.2; done",
  ],
  ...{ cpu: 100, memory: 64, healthchecks: {}, storage: [{ type: 'FAST_SSD', size: 4, mount_point: '/data' }] },
  ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
})

const data = readdirSync(new URL('./data/', import.meta.url), { withFileTypes: true })
const revisions = data.filter((each) => each.isDirectory()).map(({ name }) => name)

test('there is a data directory of an older version', () => assert.ok(revisions.length > 0))

for (const revision of revisions)
  describe(`the data directory of ${revision}`, () => {
    after(() => engine.close())

    test('is migrated, and all its data read as before; running services run, stopped ones are stopped, and it deploys', async (t) => {
      const old = await restore(t, revision, true)
      const { slipway, ids, answers, database } = old
      await slipway.start()
      assert.deepEqual(await migrate(database), [])
      await until(async () => (await runningState(old)) === 'RUNNING', { timeoutMs: 20_000, what: 'what ran to run' })
      const wrong: string[] = []
      for (const [path, answer] of Object.entries(answers).filter(([path]) => !changesByItself(path))) {
        const { status, body } = await slipway.api('GET', path)
        if (status !== 200) wrong.push(`${path}: ${status}`)
        else wrong.push(...differences(answer, body).map((difference) => `${path} ${difference}`))
      }
      assert.deepEqual(
        wrong.filter((difference) => !onPurpose.some((expected) => expected.test(difference))),
        [],
      )
      // Every deployment opens its secrets.
      await send(slipway, 'POST', `/environment/${ids.environmentId}/redeploy`)
      for (const path of [`/container/${ids.containerId}`, `/job/${ids.jobId}`, `/job/${ids.lifecycleId}`])
        assert.match(await settled(slipway, path), /^(DEPLOYED|RESTARTED)$/, path)
      await send(slipway, 'POST', `/database/${ids.databaseId}/deploy`)
      assert.equal(await settled(slipway, `/database/${ids.databaseId}`), 'DEPLOYED')
    })

    test('is taken over on the engine: running services are not touched, and the next version has the secrets', async (t) => {
      const old = await restore(t, revision, false)
      const { slipway, ids } = old
      await placeOnEngine(old)
      const look = async () => {
        const [row, ...others] = await containersOf(ids.containerId!)
        assert.equal(others.length, 0)
        const { State } = await engine.call<{ State: { StartedAt: string } }>('GET', `/containers/${row!.Id}/json`)
        return { id: row!.Id, startedAt: State.StartedAt }
      }
      const before = await look()
      await slipway.start()
      const serves = (host: string) =>
        until(async () => (await visit(slipway, host)).text === secretValue, {
          timeoutMs: 20_000,
          what: `${host} to serve`,
        })
      for (const host of ['web-old.localhost', 'old.example']) await serves(host)
      assert.deepEqual([await look(), await runningState(old)], [before, 'RUNNING'])
      assert.deepEqual(await containersOf(ids.stoppedId!), [])
      assert.equal(await settled(slipway, `/container/${ids.stoppedId}`), 'STOPPED')
      await send(slipway, 'POST', `/container/${ids.containerId}/redeploy`)
      assert.match(await settled(slipway, `/container/${ids.containerId}`), /^(DEPLOYED|RESTARTED)$/)
      await serves('web-old.localhost')
      assert.notEqual((await look()).id, before.id)
    })

    test('restored over what this version has deployed since, it touches nothing, and adopted services serve', async (t) => {
      const old = await restore(t, revision, false)
      const { slipway, ids } = old
      await placeOnEngine(old)
      await slipway.start()
      const place = await createPlace(slipway)
      const { id } = await send(slipway, 'POST', `/environment/${place.environmentId}/container`, keeping(ids))
      const path = `/container/${id}`
      await send(slipway, 'POST', `${path}/deploy`, {})
      assert.equal(await settled(slipway, path), 'DEPLOYED')
      const serves = () =>
        until(async () => (await visit(slipway, hostOf(place, 'keeping'))).text === 'of this version', {
          timeoutMs: 20_000,
          what: 'it to serve',
        })
      await serves()
      const running = async () =>
        (await Promise.all([ids.containerId!, id].map(containersOf))).flat().map(({ Id }) => Id)
      const before = await running()
      await slipway.kill('SIGTERM')

      await old.putBack()
      await slipway.start()
      const found = await untilHeld(slipway, ids.clusterId!)
      assert.equal(found.conflict.code, 'older_database')
      assert.deepEqual(namesIn(found), [`ENVIRONMENT ${place.environmentId}`, `SERVICE ${id}`])
      assert.equal(found.results[1].volumes.length, 1)
      await saysHeld(slipway, `/container/${ids.containerId}`)
      assert.deepEqual(await running(), before)
      const { adopted, left } = await choose(slipway, ids.clusterId!, 'adopt')
      assert.deepEqual([adopted.toSorted(), left], [[place.environmentId, id].toSorted(), []])
      await until(async () => (await readOrphans(slipway, ids.clusterId!)).results.length === 0, {
        timeoutMs: 90_000,
        what: 'an empty list',
      })
      assert.deepEqual(await running(), before)
      await serves()
      await send(slipway, 'POST', `${path}/redeploy`)
      assert.match(await settled(slipway, path), /^(DEPLOYED|RESTARTED)$/)
      await serves()
    })
  })
