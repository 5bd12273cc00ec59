/**
 * The interface between the router process and its clients: paths in the data directory, exit codes, shapes of
 * responses.
 */
import { join, resolve } from 'node:path'
import type { ProcessNumbers } from '../processes/messages.ts'

/**
 * Raised when control API or table file change. A client replaces a router of another version; `POST /stop` and the
 * shape of `GET /health` must never change, because they are how it does that.
 */
export const PROTOCOL_VERSION = 5

export interface Health {
  version: number
  pid: number
  host: string
  port: number
  trustedProxies: string[]
  /** Null: TLS is off. */
  tlsPort: number | null
  hstsSeconds: number
  ownDomain: string
  processes: ProcessNumbers
}

export const exitCodes = { cannotListen: 3, alreadyRunning: 4 } as const

/** Absolute paths below a data directory. */
export const pathsOf = (dataDir: string) => {
  const folder = join(resolve(dataDir), 'router')
  return {
    folder,
    controlSocket: join(folder, 'control.sock'),
    table: join(folder, 'routes.json'),
    tls: join(folder, 'tls'),
    log: join(folder, 'router.log'),
    pid: join(folder, 'router.pid'),
    compileCache: join(folder, 'cache'),
  }
}

export type Paths = ReturnType<typeof pathsOf>
