/** Key rotation while everything runs: at whatever moment it is killed, all secrets stay readable. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { copyFile, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { keyPlace } from '../src/certificates/rows.ts'
import { openRelease } from '../src/deployments/release/releases.ts'
import { newId } from '../src/lib/ids.ts'
import { type Rotated, rotateKeys } from '../src/programs/key-rotation.ts'
import { sealedKinds } from '../src/programs/sealed-texts.ts'
import type { Database, Queryable } from '../src/store/database.ts'
import { installationId, readFingerprintKey } from '../src/store/installation.ts'
import { createSealer, type Sealer } from '../src/store/keys/seal.ts'
import { newApplication, newPlace, startApi, type TestApi } from './support/api.ts'
import { loadEffectiveVariables } from './support/effective-variables.ts'
import { readSources, withoutComments } from './support/source-code.ts'
import { until } from './support/until.ts'

const program = new URL('../src/programs/rotate-keys.ts', import.meta.url).pathname

/** Secrets of every kind, `count` of them variables; and a check that all of them can be opened. */
const fill = async (api: TestApi, count: number) => {
  const { call, organizationId, database } = api
  const { projectId, environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  const expected: Record<string, string> = {}
  for (let n = 0; n < count; n += 1) {
    const owner = [`project/${projectId}`, `environment/${environmentId}`, `application/${id}`][n % 3]
    expected[`KEY_${n}`] = `secret ${n}`
    const made = await call('POST', `/${owner}/secret`, { key: `KEY_${n}`, value: `secret ${n}` })
    assert.equal(made.status, 201)
  }
  const git = { name: 'git', type: 'GITHUB', token: 'a git token' }
  const gitToken = await call('POST', `/organization/${organizationId}/gitToken`, git)
  const hook = { target_url: 'http://127.0.0.1:9/', events: ['DEPLOYMENT_STARTED'], target_secret: 'a hook secret' }
  assert.equal((await call('POST', `/organization/${organizationId}/webhook`, hook)).status, 201)
  const deployed = await call('POST', `/application/${id}/deploy`)
  const release = await until(
    async () => (await database.query<{ id: string }>('select id from release where service_id = $1', [id]))[0],
    { what: 'the release', timeoutMs: 20_000 },
  )
  const settled = async () => (await call('GET', `/application/${id}/status`)).body.deployment_state === 'DEPLOYED'
  await until(settled, { what: `the deployment ${deployed.body.deployment_request_id}`, timeoutMs: 20_000 })
  const tokens = `/organization/${organizationId}/apiToken`
  const replayed = { 'idempotency-key': 'the-one' }
  const shown = await call('POST', tokens, { name: 'shown once' }, replayed)
  assert.equal(shown.status, 201)
  const fingerprint = await readFingerprintKey(database, api.parts.sealer)
  const certificates = [organizationId, null].map((owner) => ({ owner, host: `${newId()}.example`, id: newId() }))
  for (const { owner, host, id: row } of certificates) {
    const sealed = await api.parts.sealer.seal(owner ?? installationId, keyPlace(row, 'chain_key'), host)
    await database.query('insert into certificate (id, host, organization_id, chain_key) values ($1, $2, $3, $4)', [
      ...[row, host, owner, sealed],
    ])
  }

  const opens = async (sealer: Sealer): Promise<void> => {
    const variables = await loadEffectiveVariables(database, sealer, id)
    for (const [key, value] of Object.entries(expected)) assert.equal(variables.env[key], value)
    const opened = await openRelease(database, sealer, release.id)
    assert.equal(opened!.environment.env.KEY_0, 'secret 0')
    const place = { table: 'node', row: gitToken.body.id, column: 'token' }
    const [row] = await database.query<{ text: string }>(`select sealed ->> 'token' as text from node where id = $1`, [
      gitToken.body.id,
    ])
    assert.equal((await sealer.open(organizationId, place, row!.text)).reveal(), 'a git token')
    assert.deepEqual(await readFingerprintKey(database, sealer), fingerprint)
    for (const { owner, host, id: row } of certificates) {
      const [found] = await database.query<{ key: string }>('select chain_key as key from certificate where id = $1', [
        row,
      ])
      const key = await sealer.open(owner ?? installationId, keyPlace(row, 'chain_key'), found!.key)
      assert.equal(key.reveal(), host)
    }
  }
  const replays = async (): Promise<void> => {
    const again = await call('POST', tokens, { name: 'shown once' }, replayed)
    assert.deepEqual([again.status, again.body], [shown.status, shown.body])
  }
  return { opens, replays, projectId }
}

/** Every row of every table but the keys themselves, as text. */
const dump = async (database: Queryable): Promise<string> => {
  const tables = await database.query<{ name: string }>(
    `select table_name as name from information_schema.tables where table_schema = 'public' and table_name <> 'data_key'`,
  )
  const rows = await Promise.all(tables.map(({ name }) => database.query(`select t::text as row from "${name}" t`)))
  return JSON.stringify(rows)
}

const dataKeys = async (database: Queryable): Promise<string[]> =>
  (await database.query<{ id: string }>('select id from data_key')).map(({ id }) => id)

const keyFileOf = (api: TestApi): string => join(api.parts.settings.dataDir, 'master')

/** A sealer of another process that gets no notifications: the worst replica. */
const deafReplica = ({ database, parts }: TestApi): Promise<Sealer> => {
  const deaf: Database = { ...database, listen: async () => () => {} }
  return createSealer({ database: deaf, masterKeyFile: join(parts.settings.dataDir, 'master') })
}

const runProgram = (
  api: TestApi,
  killAfterBatches = Number.POSITIVE_INFINITY,
): Promise<{ code: number | null; text: string }> =>
  new Promise((resolve) => {
    const env = {
      PATH: process.env.PATH,
      DATABASE_URL: api.database.connectionString,
      SLIPWAY_DATA_DIR: api.parts.settings.dataDir,
      SLIPWAY_MASTER_KEY_FILE: keyFileOf(api),
    }
    const child = spawn(process.execPath, [program], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    let text = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (more: string) => {
        text += more
        if (text.split(' sealed again ...').length > killAfterBatches) child.kill('SIGKILL')
      })
    child.on('close', (code) => resolve({ code, text }))
  })

test('a rotation under readers and writers, killed halfway and started again, fails no read and leaves no old key in use', async () => {
  const api = await startApi()
  const { opens, replays, projectId } = await fill(api, 600)
  const deaf = await deafReplica(api)
  await opens(deaf)
  const before = await dataKeys(api.database)
  const keys = await readFile(keyFileOf(api), 'utf8')

  let running = true
  let reads = 0
  const reader = async (work: () => Promise<unknown>): Promise<void> => {
    while (running) {
      await work()
      reads += 1
    }
  }
  let written = 0
  const write = async (): Promise<void> => {
    written += 1
    const body = { key: `NEW_${written % 50}`, value: 'written meanwhile' }
    assert.equal((await api.call('POST', `/project/${projectId}/secret`, body)).status, 201)
  }
  const readers = Promise.all([
    reader(() => opens(api.parts.sealer)),
    reader(() => opens(deaf)),
    reader(replays),
    reader(write),
  ])
  try {
    const killed = await runProgram(api, 2)
    assert.equal(killed.code, null, killed.text)
    const whole = await runProgram(api)
    assert.equal(whole.code, 0, whole.text)
    assert.match(whole.text, /had not finished[\s\S]*variable +\d+ sealed again/)
  } finally {
    running = false
    await readers
  }
  assert.ok(reads > 20, `only ${reads} reads`)
  await opens(await deafReplica(api))

  // The running server now writes with the new keys: it was notified.
  const after = (await readFile(keyFileOf(api), 'utf8')).trim().split('\n')
  assert.equal(after.length, 2)
  assert.equal((await stat(keyFileOf(api))).mode & 0o777, 0o600)
  const text = await dump(api.database)
  for (const id of before) assert.ok(!text.includes(id), 'something is sealed under an old data key')
  await writeFile(keyFileOf(api), `${after[0]}\n`)
  await opens(await deafReplica(api))
  await writeFile(keyFileOf(api), keys)
  await assert.rejects(deafReplica(api), /does not have the key/)
})

/** Fails all later calls when it has run so many statements. */
const mortal = (database: Database, statements: number): { database: Database; died: () => boolean } => {
  let left = statements
  const count = (): void => {
    left -= 1
    if (left < 0) throw new Error('killed')
  }
  const counted: Database = {
    ...database,
    query: async (text, values) => {
      count()
      return database.query(text, values)
    },
    transaction: (work) =>
      database.transaction(async (tx) => {
        const result = await work({
          query: async (text, values) => {
            count()
            return tx.query(text, values)
          },
        })
        count()
        return result
      }),
  }
  return { database: counted, died: () => left < 0 }
}

test('whichever statement is its last, a killed rotation leaves everything readable and resumes to the same end', async () => {
  const api = await startApi()
  const { opens } = await fill(api, 9)
  const file = keyFileOf(api)
  const begun = new Set<string>()
  for (let statements = 0, ended = false; !ended; statements += 1) {
    const { database, died } = mortal(api.database, statements)
    const last = await rotateKeys(database, file).then(
      (result): Rotated | null => result,
      () => null,
    )
    ended = !died()
    assert.equal(last !== null, ended)
    await opens(await deafReplica(api))
    begun.add((await readFile(file, 'utf8')).split('\n')[0]!)
    assert.ok(statements < 200)
  }
  // The key that the first attempt put there, and the first one of all.
  assert.equal(begun.size, 2)
  assert.equal((await readFile(file, 'utf8')).trim().split('\n').length, 2)
  await opens(api.parts.sealer)
})

test('a second rotation encrypts everything again; nothing starts with a wrong key file', async () => {
  const api = await startApi({ idle: true })
  const { database } = api
  const { projectId } = await newPlace(api)
  await api.call('POST', `/project/${projectId}/secret`, { key: 'A', value: 'b' })
  const file = keyFileOf(api)
  await copyFile(file, `${file}.kept`)
  for (const lines of [2, 3]) {
    const { texts, resumed } = await rotateKeys(database, file)
    assert.deepEqual([texts.variable, texts.installation, resumed], [1, 1, false])
    assert.equal((await readFile(file, 'utf8')).trim().split('\n').length, lines)
  }
  await api.call('POST', `/project/${projectId}/secret`, { key: 'DAMAGED', value: 'b' })
  await database.query(`update variable set sealed = sealed || 'x' where key = 'DAMAGED'`)
  const same = await rotateKeys(database, file, { newMasterKey: false })
  assert.deepEqual([same.texts.variable, same.broken], [1, 1])
  assert.equal((await readFile(file, 'utf8')).trim().split('\n').length, 3)
  const told = await database.query(
    `select origin, actor_type from event where triggered_by = 'rotate-keys' and sub_target_type = 'SECRET'`,
  )
  assert.deepEqual(told, Array(3).fill({ origin: 'QOVERY_INTERNAL', actor_type: 'OPERATOR' }))
  await assert.rejects(rotateKeys(database, `${file}.kept`), /does not have the key/)
  await assert.rejects(rotateKeys(database, `${file}.missing`), /is missing/)
})

test('every table with secrets in the sources is among those that a rotation rewrites', () => {
  const root = new URL('../../', import.meta.url).pathname
  const sources = readSources(root, ['server/src']).filter(({ path }) => !path.endsWith('.test.ts'))
  const named = sources.flatMap(({ text }) =>
    [...withoutComments(text).matchAll(/\btable: '(\w+)',\s*row\b/g)].map(([, table]) => table!),
  )
  // Records of services are not in the database: the next deployment writes a new one.
  const tables = named.filter((table) => table !== 'record')
  assert.deepEqual([...new Set(tables)].sort(), [...new Set(sealedKinds.map(({ table }) => table))].sort())
})
