/** Starts the floor's API program over a database with the product's own tables. */
import { type ChildProcess, fork } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { newId } from '../../server/src/lib/ids.ts'
import { createLog } from '../../server/src/lib/log.ts'
import { connect, type Database, migrate } from '../../server/src/store/database.ts'
import type { Bench } from '../bench.ts'
import { freePort } from '../free-port.ts'
import { plantTemplates } from '../seed.ts'
import { makeSubject, type Subject } from '../subject.ts'

export interface FloorApi extends Subject {
  database: Database
  token: string
  /** Another process of the same program, up when its first answer from the database is there. */
  startAnother(): Promise<{ pid: number; readyMs: number; stop(): Promise<void> }>
  stop(): Promise<void>
}

const end = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null) return
  child.kill('SIGTERM')
  await once(child, 'exit')
}

/** Asks every 2 ms until the answer is 200; gives the milliseconds since `since`. */
export const firstAnswer = async (url: string, token: string, since: number, timeoutMs = 60_000): Promise<number> => {
  while (performance.now() - since < timeoutMs) {
    try {
      const answer = await fetch(url, { headers: { authorization: `Token ${token}` } })
      await answer.arrayBuffer()
      if (answer.status === 200) return performance.now() - since
    } catch {
      // Not listening yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  throw new Error(`no 200 from ${url} within ${timeoutMs / 1000} s`)
}

const program = fileURLToPath(new URL('./api.mjs', import.meta.url))

const launch = async (url: string, path: string, token: string) => {
  const port = await freePort()
  const since = performance.now()
  const child = fork(program, {
    env: { FLOOR_DATABASE_URL: url, FLOOR_PORT: String(port), NODE_ENV: 'production' },
    execArgv: [],
    stdio: 'inherit',
  })
  const origin = `http://127.0.0.1:${port}`
  return { child, origin, readyMs: await firstAnswer(origin + path, token, since) }
}

export const startFloorApi = async (bench: Bench): Promise<FloorApi> => {
  const postgres = await bench.postgres()
  const url = await postgres.database('floor')
  const database = connect(url, createLog('silent'), { max: 2 })
  await migrate(database)
  const templates = await plantTemplates(database)
  const token = `slip_${randomBytes(24).toString('base64url')}`
  await database.query(
    `insert into api_token (id, organization_id, name, prefix, hash, scopes) values ($1, $2, 'bench', 'slip_', $3, '{Admin}')`,
    [newId(), templates.organizationId, createHash('sha256').update(token).digest()],
  )
  const path = `/environment/${templates.environmentId}`
  const { child, origin } = await launch(url, path, token)
  return {
    ...makeSubject({ origin, token, pids: [child.pid!, postgres.pid], db: database, templates }),
    database,
    token,
    async startAnother() {
      const another = await launch(url, path, token)
      return { pid: another.child.pid!, readyMs: another.readyMs, stop: () => end(another.child) }
    },
    async stop() {
      await end(child)
      await database.close()
    },
  }
}
