/** What the engines and the services are built on: keys, routes and the ways out of this server. */
import { hostname } from 'node:os'
import { createServers, type ServersParts } from '../clusters/servers.ts'
import { createSharedRouter, type SharedRouter } from '../clusters/shared-router.ts'
import { markOf } from '../images/organization-images.ts'
import { type PullThrough, startPullThrough } from '../images/pull-through.ts'
import type { Log } from '../lib/log.ts'
import { createOutbound, type Outbound } from '../lib/net/outbound.ts'
import { systemClock } from '../lib/time/clock.ts'
import type { Router } from '../router/router.ts'
import type { Settings } from '../settings/settings.ts'
import type { Database } from '../store/database.ts'
import { readOwnerId, saveNames, savePublishedHost } from '../store/installation.ts'
import { createSealer, type Sealer } from '../store/keys/seal.ts'
import { createWorkRegistry, type WorkRegistry } from '../work/registry.ts'

/** Opened before the other parts: the directory, a running router and a running database. */
export interface Opened {
  settings: Settings
  log: Log
  database: Database
  /** The router of this machine alone. */
  own: Router
}

export interface Foundation extends Opened {
  work: WorkRegistry
  sealer: Sealer
  ownerId: string
  outbound: Outbound
  issuerOutbound: Outbound
  /** The same for the certificate authority. */
  acmeOutbound: Outbound
  pullThrough: PullThrough
  router: Router
  /** The same, where other servers may share its routes. */
  shared: SharedRouter | null
}

/** When the database is not the embedded one, other servers may work on it, and requests may come to any of them. */
const shareRouter = (own: Router, foundation: Omit<ServersParts, 'clock'>, { databaseUrl }: Settings) => {
  if (databaseUrl === undefined) return null
  const { database, log, work } = foundation
  const parts = { database, log, work, clock: systemClock }
  return createSharedRouter({ ...parts, own, servers: createServers(parts) })
}

export const createFoundation = async ({ settings, log, database, own }: Opened): Promise<Foundation> => {
  const { dataDir, routerPort: port } = settings
  const work = createWorkRegistry(systemClock)
  const shared = shareRouter(own, { database, log, work }, settings)
  await shared?.follow()
  const router = shared ?? own
  const sealer = await createSealer({ database, masterKeyFile: settings.masterKeyFile })
  const ownerId = await readOwnerId(database)
  await saveNames(database, settings)
  await savePublishedHost(database, router.address(port).slice(0, -`:${port}`.length))
  // Each server of an installation has its own mark: the pulls of another one must not be swept here.
  const pullThrough = await startPullThrough(markOf(`${ownerId} ${hostname()} ${dataDir}`))
  const addresses = [...ownAddresses(settings), pullThrough.address]
  const outbound = createOutbound({ allow: [...settings.outboundAllow], own: addresses })
  // The operator chose the issuer, so it may be anywhere; users cannot reach its network through this.
  const outboundTo = (places: readonly string[]): Outbound =>
    createOutbound({ allow: [...settings.outboundAllow, ...places], own: addresses })
  const issuerOutbound = outboundTo(settings.oidc === undefined ? [] : [placeOf(settings.oidc.issuer)])
  const acmeOutbound = outboundTo([placeOf(settings.acme.directory)])
  const outgoing = { outbound, issuerOutbound, acmeOutbound }
  return { settings, log, work, database, sealer, ownerId, router, own, shared, ...outgoing, pullThrough }
}

/**
 * `host:port` of our own database and engine, if they are reached over TCP: requests caused by users never go there.
 */
const ownAddresses = ({ databaseUrl, dockerHost }: Settings): string[] =>
  [
    { text: databaseUrl, port: 5432 },
    { text: dockerHost, port: 2375 },
  ].flatMap(({ text, port }) => {
    const url = text === undefined ? null : URL.parse(text)
    return url === null || url.hostname === '' ? [] : [`${url.hostname}:${url.port || port}`]
  })

const placeOf = (url: string): string => {
  const { hostname, port, protocol } = new URL(url)
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`
}
