/** Several control planes on one database, one engine and behind no balancer: tests ask whichever they like. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readOwnerId } from '../../src/store/installation.ts'
import { type TestDatabase, testDatabase } from './database.ts'
import { engine } from './docker/docker.ts'
import { leftoversOf } from './docker/leftovers.ts'
import { type Json, prepareSlipway, type Slipway } from './slipway/slipway.ts'

export interface Planes {
  database: TestDatabase
  planes: readonly [Slipway, Slipway]
  /** The plane that is the holder of the machine's engine; undefined while none is. */
  holder(): Promise<Slipway | undefined>
  /** Who works on deployments now. */
  workers(): Promise<Slipway[]>
  remove(): Promise<void>
}

export const startPlanes = async (): Promise<Planes> => {
  const keys = mkdtempSync(join(tmpdir(), 'slipway-keys-'))
  const database = await testDatabase()
  const env = {
    DATABASE_URL: database.connectionString,
    SLIPWAY_MASTER_KEY_FILE: join(keys, 'master'),
    SLIPWAY_LOG_LEVEL: 'info',
  }
  const planes = [await prepareSlipway({ env }), await prepareSlipway({ env })] as const
  await Promise.all(planes.map((plane) => plane.start()))
  // A worker's name has its process in it.
  const planesOf = (rows: { worker: string }[]): Slipway[] =>
    planes.filter((plane) => rows.some(({ worker }) => worker.includes(`-${plane.pid()}-`)))
  return {
    database,
    planes,
    async holder() {
      const held = `select worker from cluster_work where id = 'local' and lease_until > clock_timestamp()`
      return planesOf(await database.query(held))[0]
    },
    workers: async () => planesOf(await database.query(`select worker from deployment where state = 'RUNNING'`)),
    async remove() {
      const owner = await readOwnerId(database)
      for (const plane of planes) await plane.kill('SIGTERM')
      for (const plane of planes) await plane.remove()
      assert.deepEqual(await leftoversOf(owner), [])
      rmSync(keys, { recursive: true, force: true })
    },
  }
}

export interface Happened {
  /** `create`, `start`, `die` … */
  action: string
  container: string
  service: string
}

/** The engine's events about containers of a service since then. */
export const happenedTo = async (serviceId: string, since: Date): Promise<Happened[]> => {
  const query = {
    since: (since.getTime() / 1000).toFixed(3),
    until: (Date.now() / 1000).toFixed(3),
    filters: JSON.stringify({ type: ['container'], label: [`slipway.service=${serviceId}`] }),
  }
  let text = ''
  for await (const chunk of await engine.stream('GET', '/events', { query })) text += chunk
  const lines = text.split('\n').filter((line) => line !== '')
  return lines.map((line) => {
    const { Action, Actor }: Json = JSON.parse(line)
    return { action: Action, container: Actor.ID, service: serviceId }
  })
}

export const countOf = async (serviceId: string, since: Date, action: string): Promise<number> =>
  (await happenedTo(serviceId, since)).filter((each) => each.action === action).length

/** Asks one of them; fails unless it agrees. */
export const send = async (plane: Slipway, method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await plane.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}
