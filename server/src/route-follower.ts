/** The server's side of programs/follow-routes.ts: starts it, and notices its end. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { open } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Companion } from './keep-alive.ts'
import { pathsOf } from './router/control/protocol.ts'

const readyMs = 15_000

const program = fileURLToPath(new URL('./programs/follow-routes.ts', import.meta.url))

/** Its own session: it must outlive us. Its settings are ours. */
const launch = async (dataDir: string): Promise<ChildProcess> => {
  const log = await open(pathsOf(dataDir).log, 'a', 0o600)
  const child = spawn(process.execPath, ['--max-semi-space-size=1', program], {
    detached: true,
    stdio: ['ignore', log.fd, log.fd, 'ipc'],
  })
  await log.close()
  return child
}

/** When it has started, the one that an earlier server has left does nothing any more. */
export const createRouteFollower = (dataDir: string): Companion => {
  let child: ChildProcess | undefined
  return {
    name: 'the route follower',
    async ping() {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null)
        throw new Error('the route follower has ended')
    },
    async start() {
      const started = await launch(dataDir)
      const deadline = AbortSignal.timeout(readyMs)
      const ended = once(started, 'exit').then(() => Promise.reject(new Error('the route follower did not start')))
      await Promise.race([once(started, 'message', { signal: deadline }), ended])
      ended.catch(() => {})
      started.unref()
      started.channel?.unref()
      child = started
    },
  }
}
