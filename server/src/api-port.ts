/** The port of the API, and one sentence for why it cannot be opened. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { listenProblem } from './lib/net/listen-errors.ts'
import type { Settings } from './settings.ts'

type Place = Pick<Settings, 'host' | 'port'>

export const sayWhyNot = ({ host, port }: Place, error: unknown): never => {
  const problem = listenProblem(error, { host: 'SLIPWAY_HOST', port: 'SLIPWAY_PORT' })
  throw problem === null ? error : new Error(`the API cannot listen on ${host}:${port}: ${problem}`)
}

/** Before anything is started that would keep running. */
export const tryPort = async (settings: Place): Promise<void> => {
  const server = createServer()
  try {
    server.listen({ host: settings.host, port: settings.port })
    await once(server, 'listening')
  } catch (error) {
    sayWhyNot(settings, error)
  } finally {
    server.close()
  }
}
