/** Waits for the end of a test run, then ends and removes its throw-away PostgreSQL: also when the run was killed. */
import { rm } from 'node:fs/promises'
import { createLog } from '../../src/lib/log.ts'
import { removePostgres } from '../../src/store/postgres/postgres.ts'
import { until } from './until.ts'

const [dataDir = '', runner = ''] = process.argv.slice(2)

const isGone = (): boolean => {
  try {
    process.kill(Number(runner), 0)
    return false
  } catch {
    return true
  }
}

/** That of a night takes longest. */
const longestRunMs = 6 * 3600_000

process.on('SIGINT', () => {})
await until(isGone, { timeoutMs: longestRunMs, what: 'the end of the test run' }).catch(() => {})
await removePostgres({ dataDir, log: createLog('error') })
await rm(dataDir, { recursive: true, force: true })
