/**
 * Keeps what a revision leaves in its data directory, for old-installation.e2e.test.ts:
 *
 * git worktree add --detach /tmp/old <revision> && cp -al node_modules /tmp/old/ node_modules/.bin/node
 * server/test/installations/make.ts /tmp/old <revision>
 *
 * writes `server/test/data/<revision>/`: `dump.sql.gz` (that revision's migrations, then its rows), `master` (the key
 * of this installation and of no other), `engine.json.gz` (networks and containers of what runs) and `answers.json.gz`
 * (what it answered to every GET that is about its own rows). The rows are made by the API of that revision, on Docker.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { readOwnerId } from '../../src/store/installation.ts'
import { testDatabase } from '../support/database.ts'
import { ensureBusybox } from '../support/docker/busybox-image.ts'
import { engine } from '../support/docker/docker.ts'
import { type Json, prepareSlipway } from '../support/slipway/slipway.ts'
import { until } from '../support/until.ts'
import { dumpRows } from './dump.ts'
import { makeEverything } from './story.ts'

const [checkout = '', revision = ''] = process.argv.slice(2)
const folder = new URL(`../data/${revision}/`, import.meta.url).pathname

/** Those of a GET that has only parameters we know, is about them, and answers the same again and again. */
const readAnswers = async (slipway: Awaited<ReturnType<typeof prepareSlipway>>, ids: Record<string, string>) => {
  const { paths }: { paths: Record<string, Record<string, unknown>> } = JSON.parse(
    readFileSync(join(checkout, 'openapi.json'), 'utf8'),
  )
  const answers: Record<string, Json> = {}
  for (const [path, methods] of Object.entries(paths)) {
    const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!)
    const isOurs = methods.get !== undefined && names.length > 0 && names.every((name) => name in ids)
    // Current answers of the engine, a name server or a receiver are not rows.
    if (
      !isOurs ||
      /\/ws\b|stream|heck|epository|anch|\/log$|\/cluster|\/checkCustomDomain$|\/webhook\/.*\/event$|\/commit$/.test(
        path,
      )
    )
      continue
    const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => ids[name]!)
    const late = AbortSignal.timeout(3000)
    const tooLate = new Promise<null>((resolve) => late.addEventListener('abort', () => resolve(null)))
    const read = () => Promise.race([slipway.api('GET', filled).catch(() => null), tooLate])
    const [first, second] = [await read(), await read()]
    // What is not JSON, or not the same twice, is not looked at.
    const isSteady = first?.status === 200 && JSON.stringify(first.body) === JSON.stringify(second?.body)
    if (isSteady) answers[filled] = first.body
  }
  return answers
}

const readEngine = async (ownerId: string): Promise<Json> => {
  const query = { all: true, filters: JSON.stringify({ label: [`slipway.owner=${ownerId}`] }) }
  const rows = await engine.call<{ Id: string }[]>('GET', '/containers/json', { query })
  const containers = await Promise.all(rows.map(({ Id }) => engine.call<Json>('GET', `/containers/${Id}/json`)))
  const networks = await engine.call<Json[]>('GET', '/networks', { query })
  return {
    networks: networks.map(({ Name, Driver, IPAM, Internal, Labels, Options }) => ({
      ...{ Name, Driver, IPAM, Internal, Labels, Options },
    })),
    containers: containers.map(({ Name, Config, HostConfig, NetworkSettings }) => ({
      name: Name.slice(1),
      body: {
        ...{ ...Config, Image: 'busybox:1', Hostname: undefined },
        HostConfig,
        NetworkingConfig: {
          EndpointsConfig: Object.fromEntries(
            Object.entries<Json>(NetworkSettings.Networks).map(([name, { IPAMConfig, Aliases }]) => [
              name,
              { IPAMConfig, Aliases: (Aliases ?? []).filter((alias: string) => !/^[0-9a-f]{12}$/.test(alias)) },
            ]),
          ),
        },
      },
    })),
  }
}

const removeAll = async (ownerId: string): Promise<void> => {
  const query = { all: true, filters: JSON.stringify({ label: [`slipway.owner=${ownerId}`] }) }
  for (const { Id } of await engine.call<{ Id: string }[]>('GET', '/containers/json', { query }))
    await engine.call('DELETE', `/containers/${Id}`, { query: { force: true } })
  for (const { Id } of await engine.call<{ Id: string }[]>('GET', '/networks', { query }))
    await engine.call('DELETE', `/networks/${Id}`)
}

await ensureBusybox()
const database = await testDatabase()
await database.query('drop schema public cascade')
await database.query('create schema public')
const master = join(mkdtempSync(join(tmpdir(), 'slipway-keys-')), 'master')
const slipway = await prepareSlipway({
  server: [join(checkout, 'server/src/main.ts')],
  env: { DATABASE_URL: database.connectionString, SLIPWAY_MASTER_KEY_FILE: master },
})
try {
  // A busy machine may take its time.
  for (let tries = 1; ; tries += 1)
    try {
      await slipway.start()
      break
    } catch (error) {
      await slipway.kill('SIGKILL')
      if (tries === 5) throw error
    }
  const ids = await makeEverything(slipway)
  const calm = `select from deployment where state in ('QUEUED', 'RUNNING')`
  await until(async () => (await database.query(calm)).length === 0, { what: 'the end of all deployments' })
  const answers = await readAnswers(slipway, ids)
  await slipway.kill('SIGTERM')
  const migrations = join(checkout, 'server/src/store/migrations')
  const schema = readdirSync(migrations)
    .sort()
    .map((name) => readFileSync(join(migrations, name), 'utf8'))
  /** The next server listens elsewhere. */
  const withoutPlace = (text: string): string =>
    text.replaceAll(slipway.url, '{url}').replaceAll(`:${slipway.routerPort}`, ':{router}')
  const dump = [...schema, await dumpRows(database)].join('\n')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'dump.sql.gz'), gzipSync(dump, { level: 9 }))
  writeFileSync(join(folder, 'answers.json.gz'), gzipSync(withoutPlace(JSON.stringify({ ids, answers })), { level: 9 }))
  const onEngine = JSON.stringify(await readEngine(await readOwnerId(database)))
  writeFileSync(join(folder, 'engine.json.gz'), gzipSync(onEngine, { level: 9 }))
  writeFileSync(join(folder, 'master'), readFileSync(master))
  process.stdout.write(`${Object.keys(answers).length} answers, ${dump.length} characters of SQL\n`)
} finally {
  await slipway.kill('SIGTERM')
  // The reset of today need not understand the database of then.
  await removeAll(await readOwnerId(database))
  await slipway.remove()
  await engine.close()
  await database.close()
}
process.exit()
