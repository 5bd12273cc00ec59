/** The addresses that the server opens, and one sentence if one cannot be opened. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { listenProblem } from '../lib/net/listen-errors.ts'
import type { Settings } from '../settings/settings.ts'

const sayWhyNot = (what: string, place: string, setting: string, error: unknown): never => {
  const problem = listenProblem(error, { host: `${setting}_HOST`, port: `${setting}_PORT` })
  throw problem === null ? error : new Error(`${what} cannot listen on ${place}: ${problem}`)
}

/** The API's, with its sentence. */
export const refuseListen = ({ host, port }: Pick<Settings, 'host' | 'port'>, error: unknown): never =>
  sayWhyNot('the API', `${host}:${port}`, 'SLIPWAY', error)

const tryListen = async (host: string, port: number): Promise<void> => {
  const server = createServer()
  try {
    server.listen({ host, port })
    await once(server, 'listening')
  } finally {
    server.close()
  }
}

/** For a router that does not run yet. */
export const tryRouterPorts = async (settings: Settings): Promise<void> => {
  const { routerHost, routerPort, routerTlsPort } = settings
  await tryListen(routerHost, routerPort).catch((error) =>
    sayWhyNot('the router', `${routerHost}:${routerPort}`, 'SLIPWAY_ROUTER', error),
  )
  if (routerTlsPort !== undefined)
    await tryListen(routerHost, routerTlsPort).catch((error) =>
      sayWhyNot('the router', `${routerHost}:${routerTlsPort}`, 'SLIPWAY_ROUTER_TLS', error),
    )
}

/**
 * Before anything is started that would keep running. The router's port may be open already: a router keeps serving
 * while its server is down.
 */
export const tryAddresses = async (settings: Settings): Promise<void> => {
  const { host, port, routerHost, routerPort } = settings
  await tryListen(host, port).catch((error) => refuseListen(settings, error))
  await tryListen(routerHost, 0).catch((error) =>
    sayWhyNot('the router', `${routerHost}:${routerPort}`, 'SLIPWAY_ROUTER', error),
  )
}
