/**
 * Ensures that programs/follow-routes.ts runs once this server is gone, however it ends: a script that waits for the
 * end of our side of a pipe.
 */
import { spawn } from 'node:child_process'
import { open } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import type { Log } from '../lib/log.ts'
import { pathsOf } from '../router/control/protocol.ts'

const script = fileURLToPath(new URL('./after-server.sh', import.meta.url))
const program = fileURLToPath(new URL('../programs/follow-routes.ts', import.meta.url))

/** Its own session: it must outlive us. Its settings are ours. */
export const leaveFollower = async (dataDir: string, log: Pick<Log, 'warn'>): Promise<void> => {
  const output = await open(pathsOf(dataDir).log, 'a', 0o600)
  const child = spawn(script, [process.execPath, program], {
    detached: true,
    stdio: ['pipe', output.fd, output.fd],
  })
  await output.close()
  const failed = (error: unknown): void =>
    log.warn({ err: error }, 'this router will not follow the other servers while this server is away')
  child.on('error', failed).on('exit', (code) => failed(new Error(`the waiting script ended with ${code}`)))
  child.unref()
  ;(child.stdin as Socket).on('error', () => {}).unref()
}
