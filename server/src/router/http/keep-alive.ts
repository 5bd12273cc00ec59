/** How long a client's connection may be used: as the service says that it was used for last. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Rules } from '../access/rules.ts'
import { usual } from '../policy.ts'

const births = new WeakMap<Socket, number>()

export const noteBirth = (socket: Socket): void => void births.set(socket, performance.now())

/** Adds to a response's headers what its connection may still do. */
export const limitConnection = (rules: Rules, req: IncomingMessage, res: ServerResponse, headers: string[]): void => {
  const { keepAliveMs, connectionMs } = rules
  const isOld = connectionMs > 0 && performance.now() - (births.get(req.socket) ?? 0) > connectionMs
  if (isOld || keepAliveMs === 0) headers.push('connection', 'close')
  else if (keepAliveMs !== usual.keepAliveMs && res.shouldKeepAlive) {
    headers.push('connection', 'keep-alive', 'keep-alive', `timeout=${Math.floor(keepAliveMs / 1000)}`)
    // After Node has set the usual time.
    res.once('finish', () => req.socket.setTimeout(keepAliveMs))
  }
}
