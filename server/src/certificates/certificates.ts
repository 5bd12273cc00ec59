/**
 * Certificates for the hosts of services, from a certificate authority. Promises that each host is ordered by one
 * server at a time; that a CA which refuses, limits us or does not answer leaves the served certificate as it is, and
 * that the row says why; and that limits of the CA and pauses after failures outlast restarts, and changes of domains.
 * Does not know: services. When the process dies: the lease of a row ends, and another process resumes the order.
 */
import { createKeyedLock, withLock } from '../lib/concurrency/keyed-lock.ts'
import type { HostTls, Router } from '../router/router.ts'
import { isWildcard } from '../router/table/wildcard.ts'
import { tlsDigest } from '../router/tls/digest.ts'
import type { Database } from '../store/database.ts'
import { expireLeases, heldByLease } from '../work/lease.ts'
import { createLoop, type Loop, type WorkParts } from '../work/loop.ts'
import { createWorker, workerName } from '../work/worker.ts'
import type { DnsChallenges } from './dns/challenges.ts'
import { attempt, type OrderParts } from './order.ts'
import {
  certificateLeases,
  claimDue,
  followHosts,
  forgetOrders,
  keyPlace,
  readServed,
  type Served,
  sealerOf,
  uploadedKeyPlace,
  type Wanted,
} from './rows.ts'

const never = new AbortController().signal

/**
 * Gives the router of this server the certificates with their keys, and the answers to challenges, for each host.
 * Promises that a router which missed an update has it within minutes, and that a host without a row is no longer
 * served.
 */
const createPublisher = ({ database, sealer, router, log, authority }: CertificateParts) => {
  const turns = createKeyedLock()
  /** Certificates of challenges, by the value that they prove: each is made once, and not kept. */
  const alpnPairs = new Map<string, Promise<{ certificate: string; key: string }>>()

  const alpnPair = ({ host }: Served, answer: string) => {
    const found = alpnPairs.get(host + answer) ?? authority.alpnPair(host, answer)
    if (alpnPairs.size > 200) alpnPairs.clear()
    alpnPairs.set(host + answer, found)
    return found
  }
  const challengeOf = async (served: Served): Promise<Pick<HostTls, 'challenge' | 'alpn'>> => {
    if (served.challenge === null || served.challenge.kind === 'dns-01') return {}
    const { kind, token, answer } = served.challenge
    return kind === 'http-01' ? { challenge: { token, answer } } : { alpn: await alpnPair(served, answer) }
  }
  const tlsOf = async (served: Served): Promise<HostTls> => {
    const { table, id, chain, chainKey } = served
    const challenge = await challengeOf(served)
    if (chain === null || chainKey === null) return challenge
    const place = table === 'certificate' ? keyPlace(id, 'chain_key') : uploadedKeyPlace(id)
    const key = await sealer.open(sealerOf(served), place, chainKey)
    return { certificate: chain, key: key.reveal(), ...challenge }
  }
  const publish = (host: string): Promise<void> =>
    withLock(turns, host, never, async () => {
      const [served] = await readServed(database, host)
      await router.setTls(host, served === undefined ? {} : await tlsOf(served))
    })

  return {
    publish,
    async publishAll(): Promise<void> {
      const [known, all] = await Promise.all([router.tls(), readServed(database, null)])
      const wanted = new Set(all.map(({ host }) => host))
      for (const served of all) {
        try {
          if (known[served.host]?.digest !== tlsDigest(await tlsOf(served))) await publish(served.host)
        } catch (error) {
          log.warn({ err: error, host: served.host }, 'the certificate of a host cannot be served')
        }
      }
      for (const host of Object.keys(known)) if (!wanted.has(host)) await publish(host)
    },
  }
}

interface CertificateParts
  extends WorkParts,
    Pick<OrderParts, 'sealer' | 'outbound' | 'authority' | 'challenge' | 'mostCertificates'> {
  database: Database
  router: Pick<Router, 'setTls' | 'tls'>
  /** Null without a DNS provider. */
  dns: DnsChallenges | null
  /** The domain of the names of services. */
  domain: string | undefined
  apiHost: string | undefined
  /** Whether no other server works on this database. */
  alone: boolean
  /** Resolves when the routers of other servers have a host's stored challenge and certificate, or after a while. */
  notifyOthers(host: string): Promise<void>
  /** Registers the function that runs when another server has called `notifyOthers`. */
  onNotified(learn: (host: string) => Promise<void>): void
}

const concurrency = 4
const periodMs = 60_000
const followMs = 10 * 60_000

const startOrders = (parts: CertificateParts, orderParts: OrderParts, ended: (wanted: Wanted) => void) => {
  const { database, clock } = parts
  const worker = workerName()
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

/** Finished challenges leave records at the DNS provider. */
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
  const { database, clock, log } = parts
  const publisher = createPublisher(parts)
  parts.onNotified(publisher.publish)
  const notifyRouters = async (host: string): Promise<void> => {
    await Promise.all([publisher.publish(host), parts.notifyOthers(host)])
  }
  if (parts.alone) await expireLeases(database, certificateLeases)
  const records = startSweep(parts)
  const orders = startOrders(parts, { ...parts, notifyRouters, random: Math.random }, ({ host }) => {
    if (!isWildcard(host)) return
    records?.wake()
    // The certificates that replace them.
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
