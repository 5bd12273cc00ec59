/**
 * Certificates for the hosts of services, from a certificate authority. Promises that each host is ordered by one server
 * at a time; that a CA which refuses, limits us or says nothing leaves the certificate that is served as it is, and that
 * the row says why; and that limits of the CA and pauses after failures outlast restarts, and changes of domains.
 * Does not know: services. When the process dies: the lease of a row ends, and the order goes on where it was.
 */
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type { Outbound } from '../lib/net/outbound.ts'
import type { Router } from '../router/router.ts'
import { isWildcard } from '../router/table/wildcard.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { expireLeases, heldByLease } from '../work/lease.ts'
import { createLoop, type Loop, type WorkParts } from '../work/loop.ts'
import { createWorker } from '../work/worker.ts'
import type { CertificateAuthority, HostChallenge } from './authority.ts'
import type { DnsChallenges } from './dns/challenges.ts'
import { attempt, type OrderParts } from './order.ts'
import { createPublisher } from './publish.ts'
import { certificateLeases, claimDue, followHosts, forgetOrders, type Wanted } from './rows.ts'

export interface CertificateParts extends WorkParts {
  database: Database
  sealer: Sealer
  router: Pick<Router, 'setTls' | 'tls'>
  outbound: Pick<Outbound, 'addressesOf'>
  authority: CertificateAuthority
  challenge: HostChallenge
  /** Null without a DNS provider. */
  dns: DnsChallenges | null
  /** Below which every service has a name. */
  domain: string | undefined
  apiHost: string | undefined
  mostCertificates: number
  /** Whether no other server works on this database. */
  alone: boolean
  /** Resolves when the routers of other servers have what is written down for a host, or after a while. */
  tellOthers(host: string): Promise<void>
  /** What such a server calls here. */
  onTold(learn: (host: string) => Promise<void>): void
}

const concurrency = 4
const periodMs = 60_000
const followMs = 10 * 60_000

const startOrders = (parts: CertificateParts, orderParts: OrderParts, ended: (wanted: Wanted) => void) => {
  const { database, clock } = parts
  const worker = `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`
  return createWorker<Wanted>(parts, {
    name: 'certificates',
    concurrency,
    periodMs,
    idOf: ({ id }) => id,
    about: ({ host }) => ({ host }),
    async claim(room) {
      const { claimed, nextMs } = await claimDue(database, worker, room, clock.now())
      return { claimed, more: false, nextMs: Math.max(100, nextMs ?? periodMs) }
    },
    run: (wanted, { signal }) => attempt(orderParts, wanted, signal).finally(() => ended(wanted)),
    ...heldByLease(database, certificateLeases, worker),
    failed: 'the order of a certificate was interrupted and waits for its next claim',
  })
}

/** Challenges that are over leave records with the DNS provider. */
const startSweep = (parts: CertificateParts): Loop | null => {
  const { dns } = parts
  if (dns === null) return null
  return createLoop(parts, {
    name: 'leftover DNS records',
    periodMs: followMs,
    backoff: { firstMs: periodMs, longestMs: followMs },
    failed: 'DNS records of challenges that are over are left, and are removed later',
    run: (signal) => dns.sweep(signal),
  })
}

export const startCertificates = async (parts: CertificateParts): Promise<{ stop(): Promise<void> }> => {
  const { database, clock, log, authority } = parts
  const publisher = createPublisher(parts, authority)
  parts.onTold(publisher.publish)
  const tellRouters = async (host: string): Promise<void> => {
    await Promise.all([publisher.publish(host), parts.tellOthers(host)])
  }
  if (parts.alone) await expireLeases(database, certificateLeases)
  const records = startSweep(parts)
  const orders = startOrders(parts, { ...parts, tellRouters, random: Math.random }, ({ host }) => {
    if (!isWildcard(host)) return
    records?.wake()
    // The certificates that it replaces.
    hosts.wake()
  })
  const hosts = createLoop(parts, {
    name: 'hosts with certificates',
    periodMs: followMs,
    backoff: { firstMs: 1000, longestMs: periodMs },
    failed: 'new hosts may have to wait for their certificates',
    async run() {
      await followHosts(database, { ...parts, hasDns: parts.dns !== null })
      await forgetOrders(database, clock.now())
      orders.wake()
    },
  })
  const routers = createLoop(parts, {
    name: 'certificates of the router',
    periodMs: followMs,
    backoff: { firstMs: 1000, longestMs: periodMs },
    failed: 'the router may lack certificates',
    run: () => publisher.publishAll(),
  })
  const learn = (host: string): void => {
    if (host === '') routers.wake()
    else
      publisher.publish(host).catch((error: unknown) => {
        log.warn({ err: error, host }, 'the certificate of a host cannot be served')
        routers.wake(periodMs)
      })
  }
  const leaves = [
    await database.listen('slipway_certificate', learn),
    await database.listen('slipway_hosts', () => hosts.wake()),
  ]
  return {
    async stop() {
      for (const leave of leaves) leave()
      await Promise.all([orders.stop(), hosts.stop(), routers.stop(), records?.stop()])
    },
  }
}
