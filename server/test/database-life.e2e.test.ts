// Runs alone: it measures, or takes what the machine has.
/** PostgreSQL, MySQL and Redis as Slipway runs them: data survive everything except a delete. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { ensureDatabaseImage } from './support/docker/database-image.ts'
import { engine as shared } from './support/docker/docker.ts'
import { type OwnEngine, ownEngineIsMissing, startOwnEngine } from './support/docker/own-engine.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createPlace, deploymentLog, isSettled } from './support/slipway/story.ts'
import { until } from './support/until.ts'

interface Database {
  type: string
  version: string
  image: 'postgres:16' | 'mysql:8' | 'redis:7'
  write: string
  read: string
}

const psql = 'PGPASSWORD=$POSTGRES_PASSWORD psql -h 127.0.0.1 -U postgres -v ON_ERROR_STOP=1 -qtAc'
const mysql = 'mysql -h 127.0.0.1 -u root -p"$MYSQL_ROOT_PASSWORD" --skip-column-names main -e'

const databases: Database[] = [
  {
    type: 'POSTGRESQL',
    version: '16',
    image: 'postgres:16',
    write: `${psql} "create table kept as select 'marker' as word"`,
    read: `${psql} 'select word from kept'`,
  },
  {
    type: 'MYSQL',
    version: '8',
    image: 'mysql:8',
    write: `${mysql} "create table kept as select 'marker' as word"`,
    read: `${mysql} 'select word from kept'`,
  },
  { type: 'REDIS', version: '7', image: 'redis:7', write: 'redis-cli set kept marker', read: 'redis-cli get kept' },
]

let own: OwnEngine
let slipway: Slipway

before(async () => {
  if (ownEngineIsMissing !== false) return
  own = await startOwnEngine()
  for (const { image } of databases) {
    await ensureDatabaseImage(image)
    await own.load(image)
  }
  slipway = await prepareSlipway({ env: { DOCKER_HOST: own.host } })
  await slipway.start()
})

after(async () => {
  await slipway?.remove()
  await own?.close()
  await shared.close()
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const run = async (container: string, command: string): Promise<string> => {
  const body = { Cmd: ['sh', '-c', command], AttachStdout: true, AttachStderr: true, Tty: true }
  const { Id } = await own.engine.call<{ Id: string }>('POST', `/containers/${container}/exec`, { body })
  const output = await own.engine.stream('POST', `/exec/${Id}/start`, { body: { Detach: false, Tty: true } })
  let text = ''
  for await (const chunk of output.setEncoding('utf8')) text += chunk
  return text.trim()
}

const labelled = (label: string) => ({ all: true, filters: JSON.stringify({ label: [label] }) })

const containersOf = (serviceId: string): Promise<{ Id: string; State: string }[]> =>
  own.engine.call('GET', '/containers/json', { query: labelled(`slipway.service=${serviceId}`) })

const act = async (environmentId: string, verb: string): Promise<string> => {
  const { deployment_request_id: id } = await send('POST', `/environment/${environmentId}/${verb}`)
  return until(
    async () => {
      const { environment } = await send('GET', `/environment/${environmentId}/statuses`)
      return environment.deployment_request_id !== id && isSettled(environment.state) ? environment.state : null
    },
    { timeoutMs: 120_000, what: `${verb} of the databases` },
  )
}

const runningStates = async (environmentId: string): Promise<string[]> =>
  (await send('GET', `/environment/${environmentId}/statuses`)).databases.map((one: Json) => one.running_state)

/** One container each, which returns the written data. */
const areBack = async (made: ReadonlyMap<string, Database>): Promise<boolean> => {
  for (const [id, { read }] of made) {
    const [container, ...others] = await containersOf(id)
    if (container?.State !== 'running' || others.length > 0) return false
    if (!/marker/.test(await run(container.Id, read))) return false
  }
  return true
}

test('PostgreSQL, MySQL and Redis keep their data over a redeploy, a stop, kill -9 of the server and a restart of the engine', {
  skip: ownEngineIsMissing,
}, async () => {
  const { environmentId } = await createPlace(slipway)
  const made = new Map<string, Database>()
  for (const database of databases) {
    const { type, version } = database
    const body = { name: type.toLowerCase(), type, version, mode: 'CONTAINER', accessibility: 'PRIVATE' }
    made.set((await send('POST', `/environment/${environmentId}/database`, body)).id, database)
  }
  const only = async (id: string): Promise<string> => {
    const all = await containersOf(id)
    assert.equal(all.length, 1)
    return all[0]!.Id
  }
  const assertKept = async (after: string): Promise<void> => {
    for (const [id, { type, read }] of made) assert.match(await run(await only(id), read), /marker/, `${type} ${after}`)
  }
  assert.equal(await act(environmentId, 'deploy'), 'DEPLOYED', await deploymentLog(slipway, environmentId))
  for (const [id, { write }] of made) await run(await only(id), write)
  await assertKept('at once')

  const before = await Promise.all([...made.keys()].map(only))
  // A redeploy does not touch unchanged services.
  for (const id of made.keys()) await send('PUT', `/database/${id}`, { memory: 640 })
  assert.equal(await act(environmentId, 'redeploy'), 'DEPLOYED', await deploymentLog(slipway, environmentId))
  await assertKept('after a redeploy')
  const replaced = (await Promise.all([...made.keys()].map(only))).filter((id) => !before.includes(id))
  assert.equal(replaced.length, databases.length)

  assert.equal(await act(environmentId, 'stop'), 'STOPPED')
  for (const id of made.keys()) assert.deepEqual(await containersOf(id), [])
  assert.equal(await act(environmentId, 'deploy'), 'DEPLOYED', await deploymentLog(slipway, environmentId))
  await assertKept('after stop and start')

  await slipway.kill('SIGKILL')
  await assertKept('while the server is away')
  await slipway.start()
  await assertKept('after kill -9 of the server')

  await own.restart()
  await until(() => areBack(made), { timeoutMs: 90_000, what: 'the databases to be back with their data' })
  await until(async () => (await runningStates(environmentId)).every((state) => state === 'RUNNING'), {
    timeoutMs: 70_000,
    what: 'statuses that say so',
  })

  await send('DELETE', `/environment/${environmentId}`)
  await until(async () => (await slipway.api('GET', `/environment/${environmentId}`)).status === 404, {
    timeoutMs: 60_000,
    what: 'the end of the environment',
  })
  const query = labelled(`slipway.environment=${environmentId}`)
  assert.deepEqual(await own.engine.call('GET', '/containers/json', { query }), [])
  const { Volumes } = await own.engine.call<{ Volumes: unknown[] | null }>('GET', '/volumes', { query })
  assert.deepEqual(Volumes ?? [], [])
})
