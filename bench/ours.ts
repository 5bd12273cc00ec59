/**
 * Our server as its users start it: a process of its own, driven by its HTTP API. Only bulk rows are written past it,
 * and only times that it records itself are read from its database. Everything it made on the engine is removed.
 */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Agent, request } from 'undici'
import { createLog } from '../server/src/lib/log.ts'
import { connect, type Database } from '../server/src/store/database.ts'
import { adminToken, bundledServer, prepareSlipway, type Slipway } from '../server/test/support/slipway/slipway.ts'
import type { Bench } from './bench.ts'
import { firstAnswer } from './floors/api-process.ts'
import { commandLine, processesNaming } from './measure.ts'
import { applicationBody } from './ours-application.ts'
import { startBenchPostgres } from './postgres.ts'
import type { Templates } from './seed.ts'
import { makeSubject, once, type Subject } from './subject.ts'

/** Another server that the bench started, with what it is made of. */
export interface Another {
  pids: number[]
  /** Processes of the tree that are counted by themselves. */
  routerPids: number[]
  /** Root of the PostgreSQL that is its alone. */
  postgresPid: number
  readyMs: number
  stop(): Promise<void>
}

export interface Ours extends Subject {
  database: Database
  routerPort: number
  /** Sends one request; rejects with status and message unless the answer is 2xx. */
  call<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<T>
  /** Makes an environment of the bench's project. */
  makeEnvironment(name: string): Promise<string>
  /** Another server on a PostgreSQL of its own, up when its first answer from the database is there. */
  startAnother(): Promise<Another>
  stop(): Promise<void>
}

/** So high that the services of every figure fit into one organization, and counted all the same. */
const limits = {
  SLIPWAY_LIMIT_SERVICES: '1000000',
  SLIPWAY_LIMIT_MEMORY_MB: '1000000000',
  SLIPWAY_LIMIT_CPU_MILLICORES: '1000000000',
}

/** The log is at its default level: what a user pays is measured. */
const prepare = async (databaseUrl: string, env: Record<string, string> = {}): Promise<Slipway> =>
  prepareSlipway({
    server: await bundledServer(),
    env: {
      ...limits,
      // As bin/run sets it.
      NODE_USE_SYSTEM_CA: '1',
      DATABASE_URL: databaseUrl,
      SLIPWAY_LOG_LEVEL: 'info',
      SLIPWAY_OUTBOUND_ALLOW: 'loopback,private',
      ...env,
    },
  })

/** Ends a server and whatever of its data directory outlives it (the router); what it recorded stays. */
const endProcesses = async (slipway: Slipway): Promise<void> => {
  await slipway.kill('SIGTERM')
  for (const pid of processesNaming(slipway.dataDir)) endProcess(pid)
  for (const deadline = performance.now() + 5000; performance.now() < deadline; ) {
    if (processesNaming(slipway.dataDir).length === 0) return
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

const endProcess = (pid: number): void => {
  try {
    process.kill(pid, 'SIGTERM')
  } catch {
    // It ended by itself.
  }
}

/** Ends it and removes what it made, on the engine and on disk, even where its own `reset` cannot. */
const removeAll = async (slipway: Slipway): Promise<void> => {
  try {
    await slipway.remove()
  } finally {
    await endProcesses(slipway)
    await rm(slipway.dataDir, { recursive: true, force: true })
  }
}

/** The router of a data directory, a process that outlives the server. */
const routerOf = ({ dataDir }: Slipway): number[] =>
  processesNaming(dataDir).filter((pid) => /router/.test(commandLine(pid)))

const caller = (origin: string): Ours['call'] => {
  const agent = new Agent({ connections: 64, pipelining: 1 })
  return async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const answer = await request(origin + path, {
      dispatcher: agent,
      method: method as 'GET',
      headers: {
        authorization: `Token ${adminToken}`,
        'x-state-vocabulary': 'deployment',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      body: body === undefined ? null : JSON.stringify(body),
    })
    const text = await answer.body.text()
    if (answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer.statusCode} ${text.slice(0, 300)}`)
    return (text === '' ? undefined : JSON.parse(text)) as T
  }
}

const makeTemplates = async (call: Ours['call'], gitUrl: string): Promise<Templates> => {
  const organization = await call<{ id: string }>('GET', '/organization')
  const project = await call<{ id: string }>('POST', `/organization/${organization.id}/project`, { name: 'bench' })
  const environment = await call<{ id: string }>('POST', `/project/${project.id}/environment`, {
    name: 'template',
    mode: 'DEVELOPMENT',
  })
  const application = await call<{ id: string }>(
    'POST',
    `/environment/${environment.id}/application`,
    applicationBody('template', gitUrl),
  )
  const variable = (kind: string, id: string, key: string) =>
    call<{ id: string }>('POST', `/${kind}/${id}/environmentVariable`, { key, value: 'a value of ordinary length' })
  const inProject = await variable('project', project.id, 'BENCH_PROJECT')
  const inEnvironment = await variable('environment', environment.id, 'BENCH_ENVIRONMENT')
  const own = await variable('application', application.id, 'BENCH_OWN')
  const above = `/application/${application.id}/environmentVariable`
  const alias = await call<{ id: string }>('POST', `${above}/${inEnvironment.id}/alias`, { key: 'BENCH_ALIAS' })
  const override = await call<{ id: string }>('POST', `${above}/${inProject.id}/override`, { value: 'another value' })
  return {
    organizationId: organization.id,
    projectId: project.id,
    environmentId: environment.id,
    applicationId: application.id,
    variables: {
      project: inProject.id,
      environment: inEnvironment.id,
      application: own.id,
      alias: alias.id,
      override: override.id,
    },
  }
}

/** Removes networks that carry one of these environments' ids in name or labels. */
const removeNetworks = async ({ engine }: Bench, environmentIds: readonly string[]): Promise<void> => {
  const networks = await engine.call<{ Id: string; Name: string; Labels: object | null }[]>('GET', '/networks')
  for (const { Id, Name, Labels } of networks) {
    const text = Name + JSON.stringify(Labels ?? {})
    if (environmentIds.some((id) => text.includes(id))) await engine.call('DELETE', `/networks/${Id}`).catch(() => {})
  }
}

/** Servers that are started only to see how long it takes, one after the other on the same data. */
const starter = (bench: Bench): Ours['startAnother'] => {
  const prepared = once(async () => {
    const postgres = await startBenchPostgres(join(bench.folder, 'database-of-start'))
    bench.onClose(postgres.stop)
    const slipway = await prepare(await postgres.database('ours_start'))
    bench.onClose(() => removeAll(slipway))
    return { slipway, postgresPid: postgres.pid }
  })
  return async () => {
    const { slipway, postgresPid } = await prepared()
    try {
      const since = performance.now()
      const [readyMs] = await Promise.all([
        firstAnswer(`${slipway.url}/organization`, adminToken, since),
        slipway.start(),
      ])
      const routerPids = routerOf(slipway)
      return { pids: [slipway.pid()], routerPids, postgresPid, readyMs, stop: () => endProcesses(slipway) }
    } catch (error) {
      await endProcesses(slipway)
      throw error
    }
  }
}

/** `name` of its database; further settings. */
export const startOurs = async (bench: Bench, name = 'ours', env: Record<string, string> = {}): Promise<Ours> => {
  const postgres = await bench.postgres()
  const sources = await bench.sources()
  const url = await postgres.database(name)
  const slipway = await prepare(url, env)
  const database = connect(url, createLog('silent'), { max: 2 })
  const environments: string[] = []
  const stop = async () => {
    try {
      await database.close()
      await removeAll(slipway)
    } finally {
      await bench.engine.removeOwn()
      await removeNetworks(bench, environments)
    }
  }
  try {
    await slipway.start()
    const call = caller(slipway.url)
    const templates = await makeTemplates(call, sources.url)
    const pids = [slipway.pid(), postgres.pid]
    return {
      ...makeSubject({ origin: slipway.url, token: adminToken, pids, db: database, templates }),
      database,
      routerPort: slipway.routerPort,
      call,
      async makeEnvironment(name) {
        const path = `/project/${templates.projectId}/environment`
        const { id } = await call<{ id: string }>('POST', path, { name, mode: 'DEVELOPMENT' })
        environments.push(id)
        return id
      },
      startAnother: starter(bench),
      stop,
    }
  } catch (error) {
    await stop().catch(() => {})
    throw error
  }
}
