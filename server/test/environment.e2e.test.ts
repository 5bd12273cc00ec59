/**
 * One environment of every kind that a Docker engine can run: a database, a migration, a container from a registry with
 * a login, two applications of which one asks the other, and a cron job. All on a real engine.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { ensureBusybox } from './busybox-image.ts'
import { ensureDatabaseImage } from './database-image.ts'
import { containersOf, engine, networksOf, volumesOf } from './docker.ts'
import { type GitServer, startGitServer } from './git-server.ts'
import { login, type Registry, registryIsMissing, startRegistry } from './registry.ts'
import { type Json, prepareSlipway, type Slipway } from './slipway.ts'
import { createApplication, createPlace, deploymentLog, hostOf, isSettled, type Place, visit } from './story.ts'
import { until } from './until.ts'

let slipway: Slipway
let git: GitServer
let registry: Registry

before(async () => {
  await ensureBusybox()
  await ensureDatabaseImage('postgres:16')
  git = await startGitServer()
  if (registryIsMissing === false) registry = await startRegistry()
  slipway = await prepareSlipway()
  await slipway.start()
})

after(async () => {
  await slipway?.remove()
  await registry?.close()
  await git?.close()
  await engine.close()
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

/** Asks for an action on a whole environment and waits for its end. */
const act = async (environmentId: string, verb: string): Promise<string> => {
  const { deployment_request_id: id } = await send('POST', `/environment/${environmentId}/${verb}`)
  return until(
    async () => {
      const { environment } = (await slipway.api('GET', `/environment/${environmentId}/statuses`)).body
      const isOver = environment.deployment_request_id !== id && isSettled(environment.state)
      return isOver ? environment.state : null
    },
    { timeoutMs: 120_000, what: `${verb} of the environment` },
  )
}

/** A program of a web server: what `command` prints. */
const program = (command: string): string => `#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\n${command}\n`

/** A web server of busybox on an image that has psql. */
const web = (name: string, command: string): Record<string, string> => ({
  Dockerfile: [
    'FROM busybox:1 AS tools',
    'FROM postgres:16',
    'COPY --from=tools /bin/busybox /usr/local/bin/busybox',
    `COPY ${name} /www/cgi-bin/${name}`,
    `RUN ["/usr/local/bin/busybox", "chmod", "755", "/www/cgi-bin", "/www/cgi-bin/${name}"]`,
    'EXPOSE 8080',
    'ENTRYPOINT ["/usr/local/bin/busybox"]',
    'CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]',
    '',
  ].join('\n'),
  [name]: program(command),
})

const repository = async (name: string, files: Record<string, string>): Promise<string> => {
  await git.createRepository(name)
  await git.commit(name, files, 'first')
  return git.url(name)
}

/** Gives a service another name for a built-in variable of a neighbour. */
const nameBuiltIn = async (
  service: string,
  family: 'secret' | 'environmentVariable',
  ending: RegExp,
  key: string,
): Promise<void> => {
  const { results } = await send('GET', `/${service}/${family}`)
  const found = results.find((one: Json) => one.scope === 'BUILT_IN' && ending.test(one.key))
  assert.ok(found, `no ${ending} among ${results.map((one: Json) => one.key)}`)
  await send('POST', `/${service}/${family}/${found.id}/alias`, { key })
}

const newDatabase = (place: Place): Promise<Json> =>
  send('POST', `/environment/${place.environmentId}/database`, {
    name: 'main',
    type: 'POSTGRESQL',
    version: '16',
    mode: 'CONTAINER',
  })

const newRegistry = (place: Place): Promise<Json> =>
  send('POST', `/organization/${place.organizationId}/containerRegistry`, {
    name: 'private',
    kind: 'GENERIC_CR',
    url: registry.url,
    config: login,
  })

const databaseUrl = /^SLIPWAY_POSTGRESQL_.*_DATABASE_URL_INTERNAL$/

const newMigration = async (place: Place, registryId: string): Promise<void> => {
  const image = { registry_id: registryId, image_name: 'team/psql', tag: '16' }
  const sql = 'create table if not exists visit (id bigserial primary key)'
  const job = await send('POST', `/environment/${place.environmentId}/job`, {
    name: 'migrate',
    source: { image },
    schedule: { on_start: { entrypoint: 'sh', arguments: ['-c', `psql "$URL" -c "${sql}" && echo migrated`] } },
    healthchecks: {},
  })
  await nameBuiltIn(`job/${job.id}`, 'secret', databaseUrl, 'URL')
}

const newCron = (place: Place, registryId: string): Promise<Json> =>
  send('POST', `/environment/${place.environmentId}/job`, {
    name: 'nightly',
    source: { image: { registry_id: registryId, image_name: 'team/tools', tag: '1' } },
    schedule: { cronjob: { scheduled_at: '0 3 * * *', entrypoint: 'echo', arguments: ['the night is quiet'] } },
    healthchecks: {},
  })

const newContainer = (place: Place, registryId: string): Promise<Json> =>
  send('POST', `/environment/${place.environmentId}/container`, {
    name: 'tools',
    registry_id: registryId,
    image_name: 'team/tools',
    tag: '1',
    arguments: ['httpd', '-f', '-p', '8080'],
    healthchecks: {},
    ports: [{ internal_port: 8080, protocol: 'HTTP', publicly_accessible: false }],
  })

const newApplications = async (place: Place): Promise<void> => {
  const counted = 'psql "$URL" -qtAc "insert into visit default values" -c "select count(*) from visit" 2>&1'
  const counter = await createApplication(slipway, place, 'counter', await repository('counter', web('visit', counted)))
  await nameBuiltIn(`application/${counter.id}`, 'secret', databaseUrl, 'URL')
  const asked = 'echo "visitors: $(busybox wget -qO- "http://$COUNTER:8080/cgi-bin/visit")"'
  const front = await createApplication(slipway, place, 'front', await repository('front', web('page', asked)))
  const host = new RegExp(`^SLIPWAY_APPLICATION_Z${counter.id.slice(0, 8).toUpperCase()}_HOST_INTERNAL$`)
  await nameBuiltIn(`application/${front.id}`, 'environmentVariable', host, 'COUNTER')
}

const page = async (place: Pick<Place, 'environmentName'>): Promise<string> =>
  (await visit(slipway, hostOf(place as Place, 'front'), '/cgi-bin/page')).text

const stages = async (environmentId: string): Promise<string[]> => {
  const { results } = await send('GET', `/environment/${environmentId}/deploymentHistoryV2`)
  return results[0].stages.flatMap(({ name, services }: Json) => (services.length > 0 ? [name] : []))
}

/** What the engine holds of an environment. */
const leftovers = async (environmentId: string): Promise<number> => {
  const containers = await engine.call<unknown[]>('GET', '/containers/json', {
    query: { all: true, filters: JSON.stringify({ label: [`slipway.environment=${environmentId}`] }) },
  })
  return containers.length + (await volumesOf(environmentId)).length + (await networksOf(environmentId)).length
}

const isGone = async (environmentId: string): Promise<boolean> =>
  (await slipway.api('GET', `/environment/${environmentId}`)).status === 404

test('one deploy brings up a database, its migration, a private image, two applications and a cron job; all can be stopped, restarted, cloned and deleted', {
  skip: registryIsMissing,
}, async () => {
  await registry.publish('postgres:16', 'team/psql', '16')
  await registry.publish('busybox:1', 'team/tools', '1')
  const place = await createPlace(slipway)
  const { id: registryId } = await newRegistry(place)
  const database = await newDatabase(place)
  await newMigration(place, registryId)
  const container = await newContainer(place, registryId)
  await newApplications(place)
  const cron = await newCron(place, registryId)
  const { environmentId } = place

  assert.equal(await act(environmentId, 'deploy'), 'DEPLOYED', await deploymentLog(slipway, environmentId))
  assert.deepEqual(await stages(environmentId), [
    'DATABASE DEFAULT',
    'JOB DEFAULT',
    'CONTAINER DEFAULT',
    'APPLICATION DEFAULT',
  ])
  assert.match(await deploymentLog(slipway, environmentId), /migrated/)
  assert.equal((await containersOf(container.id)).length, 1)
  assert.deepEqual([await page(place), await page(place)], ['visitors: 1', 'visitors: 2'])

  await send('POST', `/job/${cron.id}/redeploy?forceEvent=CRON`)
  await until(async () => (await deploymentLog(slipway, environmentId)).includes('the night is quiet'), {
    timeoutMs: 30_000,
    what: 'the run of the cron job',
  })

  await slipway.kill('SIGKILL')
  assert.equal(await page(place), 'visitors: 3')
  await slipway.start()

  assert.equal(await act(environmentId, 'stop'), 'STOPPED')
  assert.equal((await containersOf(database.id)).length, 0)
  assert.equal(await act(environmentId, 'deploy'), 'DEPLOYED', await deploymentLog(slipway, environmentId))
  assert.equal(await page(place), 'visitors: 4')

  const clone = await send('POST', `/environment/${environmentId}/clone`, { name: 'beside' })
  assert.equal(await act(clone.id, 'deploy'), 'DEPLOYED', await deploymentLog(slipway, clone.id))
  assert.equal(await page({ environmentName: 'beside' }), 'visitors: 1')
  assert.equal(await page(place), 'visitors: 5')

  for (const id of [environmentId, clone.id]) {
    await send('DELETE', `/environment/${id}`)
    await until(() => isGone(id), { timeoutMs: 60_000, what: 'the end of the environment' })
    assert.equal(await leftovers(id), 0)
  }
})
