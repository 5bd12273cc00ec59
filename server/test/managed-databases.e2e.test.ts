/**
 * A database in MANAGED mode, made by the real tool if there is one: the module of this test uses only resources built
 * into the tool, and outputs the address of a PostgreSQL of the test, which an application uses. Else by the stand-in
 * of the Terraform tests.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { after, before, test } from 'node:test'
import { findTool } from '../src/builds/tools.ts'
import { ensureDatabaseImage } from './support/docker/database-image.ts'
import { containersOf, engine, networksOf, removeContainer } from './support/docker/docker.ts'
import { withDatabase } from './support/docker/leftovers.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploymentLog, type Place, settleAt } from './support/slipway/story.ts'
import { until } from './support/until.ts'

const standIn = new URL('./terraform-tool/tofu', import.meta.url).pathname
const real = (await findTool('terraform', { terraform: process.env.SLIPWAY_TERRAFORM })) ?? undefined
const password = `word-${randomBytes(8).toString('hex')}`
const host = `outside-${randomBytes(4).toString('hex')}`
const file = join(tmpdir(), `slipway-database-modules-${process.pid}.json`)

let slipway: Slipway
let git: GitServer
let outside: string
let place: Place

const pathWithout = (name: string): string =>
  (process.env.PATH ?? '')
    .split(delimiter)
    .filter((folder) => !existsSync(join(folder, name)))
    .join(delimiter)

/** A server that has nothing to do with this installation. */
const startOutside = async (): Promise<string> => {
  await ensureDatabaseImage('postgres:16')
  const body = { Image: 'postgres:16', Env: [`POSTGRES_PASSWORD=${password}`] }
  const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { body })
  await engine.call('POST', `/containers/${Id}/start`)
  return Id
}

before(async () => {
  outside = await startOutside()
  git = await startGitServer()
  const POSTGRESQL = {
    engine: real === undefined ? 'tofu' : 'terraform',
    source: new URL('./database-module', import.meta.url).pathname,
    inputs: {
      ...{ id: '/id', size: '/instance_type', stopped: '/stopped' },
      ...{ host: { value: host }, word: { value: password } },
    },
    outputs: { host: 'host', password: 'word' },
    timeout_minutes: 5,
  }
  writeFileSync(file, JSON.stringify({ ON_PREMISE: { POSTGRESQL } }))
  const tool: Record<string, string> =
    real === undefined
      ? { SLIPWAY_TOFU: standIn, PATH: pathWithout('terraform') }
      : { SLIPWAY_TERRAFORM: real, PATH: pathWithout('tofu') }
  slipway = await prepareSlipway({ env: { ...tool, SLIPWAY_DATABASE_MODULES: file } })
  await slipway.start()
  place = await createPlace(slipway)
})

after(async () => {
  if (outside !== undefined) await removeContainer(outside)
  await slipway?.remove()
  await git?.close()
  rmSync(file, { force: true })
  await engine.close()
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const newDatabase = async (name: string): Promise<string> => {
  const size = { instance_type: 'small' }
  const body = { name, type: 'POSTGRESQL', version: '16', mode: 'MANAGED', ...size }
  return (await send('POST', `/environment/${place.environmentId}/database`, body)).id
}

const settled = async (id: string, state: string): Promise<void> => {
  const found = await settleAt(slipway, `/database/${id}`, 120_000)
  assert.equal(found, state, await deploymentLog(slipway, place.environmentId))
}

const deployDatabase = async (id: string, body?: Json): Promise<void> => {
  await send('POST', `/database/${id}/deploy`, body)
  await settled(id, 'DEPLOYED')
}

/** Every row of the database, as text. */
const everyRow = (): Promise<string> =>
  withDatabase(slipway.dataDir, async (database) => {
    const tables = await database.query<{ name: string }>(
      `select table_name as name from information_schema.tables where table_schema = 'public'`,
    )
    const rows = await Promise.all(tables.map(({ name }) => database.query(`select t::text as row from "${name}" t`)))
    return JSON.stringify(rows)
  })

/** Writes a row into the database, and retries until the database is reached. */
const client = {
  Dockerfile: [
    'FROM postgres:16',
    `ENTRYPOINT ["sh", "-c", "until psql \\"$DATABASE_URL\\" -c 'create table if not exists seen as select 1'; do sleep 1; done; exec sleep 100000"]`,
    '',
  ].join('\n'),
}

const inOutside = async (statement: string): Promise<string> => {
  const body = { Cmd: ['psql', '-U', 'postgres', '-tAc', statement], AttachStdout: true, AttachStderr: true }
  const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${outside}/exec`, { body })
  const output = await engine.stream('POST', `/exec/${Id}/start`, { body: { Detach: false, Tty: true } })
  let text = ''
  for await (const chunk of output.setEncoding('utf8')) text += chunk
  return text.trim()
}

test('a database is planned, made, used by an application, changed, stopped, started and destroyed, and its secrets are nowhere', async () => {
  const id = await newDatabase('data')
  const log = () => deploymentLog(slipway, place.environmentId)
  await send('POST', `/database/${id}/deploy`, { action: 'PLAN' })
  await until(async () => /Plan: 2 to add, 0 to change, 0 to destroy\./.test(await log()), {
    ...{ timeoutMs: 60_000, what: 'the plan' },
  })
  await git.createRepository('client')
  await git.commit('client', client, 'a client')
  const more = { ports: [], healthchecks: {} }
  const { id: application } = await createApplication(slipway, place, 'client', git.url('client'), more)
  const all = (await send('GET', `/application/${application}/secret`)).results
  const { id: told } = all.find(({ key }: Json) => key.endsWith('_DATABASE_URL'))
  await send('POST', `/application/${application}/secret/${told}/alias`, { key: 'DATABASE_URL' })
  await send('POST', `/environment/${place.environmentId}/deploy`)
  await until(async () => (await containersOf(application)).length > 0, { timeoutMs: 180_000, what: 'the application' })
  const [network] = await networksOf(place.environmentId)
  const endpoint = { Container: outside, EndpointConfig: { Aliases: [host] } }
  await engine.call('POST', `/networks/${network!.Id}/connect`, { body: endpoint })
  try {
    await settled(id, 'DEPLOYED')
    assert.match(await log(), /Apply complete!|2 added/)
    await until(async () => (await inOutside('select count(*) from seen').catch(() => '')) === '1', {
      ...{ timeoutMs: 60_000, what: 'the application in the database' },
    })
    const access = await send('GET', `/database/${id}/masterCredentials`)
    assert.deepEqual(access, { host, port: 5432, login: 'postgres', password })
    await send('PUT', `/database/${id}`, { instance_type: 'large' })
    await deployDatabase(id)
    assert.match(await log(), /0 added, 1 changed, 0 destroyed/)
    await send('POST', `/database/${id}/stop`)
    await settled(id, 'STOPPED')
    await deployDatabase(id)
    const kept = `${await everyRow()} ${await log()} ${slipway.output()}`
    for (const text of [password, 'terraform_data.database.output', 'lineage']) assert.ok(!kept.includes(text), text)
  } finally {
    await engine.call('POST', `/networks/${network!.Id}/disconnect`, { body: { Container: outside, Force: true } })
  }
  await send('DELETE', `/database/${id}`)
  await settled(id, 'DELETED')
  assert.match(await log(), /2 destroyed/)
  assert.deepEqual([await containersOf(id), await networksOf(id)], [[], []])
  await send('DELETE', `/application/${application}`)
  await settleAt(slipway, `/application/${application}`)
})

test('a kill -9 in the middle of an apply loses nothing, and the tool has run once', async () => {
  const id = await newDatabase('killed')
  const log = () => deploymentLog(slipway, place.environmentId)
  const said = async () => (await log()).match(/\): the provider is slow/g)?.length ?? 0
  const earlier = await said()
  await send('POST', `/database/${id}/deploy`)
  await until(async () => (await said()) > earlier, { timeoutMs: 90_000, what: 'the slow one' })
  const [container] = await containersOf(id)
  await slipway.kill('SIGKILL')
  await slipway.start()
  assert.deepEqual(
    (await containersOf(id)).map(({ Id }) => Id),
    [container!.Id],
  )
  await settled(id, 'DEPLOYED')
  await send('DELETE', `/database/${id}`)
  await settled(id, 'DELETED')
  assert.match(await log(), /2 destroyed/)
  assert.deepEqual([await containersOf(id), await networksOf(id)], [[], []])
})
