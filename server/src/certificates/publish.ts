/**
 * Gives the router of this server the certificates with their keys, and the answers to challenges, for each host.
 * Promises that a router which missed an update has it within minutes, and that a host without a row is no longer
 * served.
 */
import { createKeyedLock, withLock } from '../lib/concurrency/keyed-lock.ts'
import type { Log } from '../lib/log.ts'
import type { HostTls, Router } from '../router/router.ts'
import { tlsDigest } from '../router/tls/digest.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import type { CertificateAuthority } from './authority.ts'
import { keyPlace, readServed, type Served, sealerOf, uploadedKeyPlace } from './rows.ts'

export interface PublishParts {
  database: Database
  sealer: Sealer
  router: Pick<Router, 'setTls' | 'tls'>
  log: Pick<Log, 'warn'>
}

export interface Publisher {
  /** Brings one host up to date. */
  publish(host: string): Promise<void>
  /** All of them. */
  publishAll(): Promise<void>
}

const never = new AbortController().signal

export const createPublisher = (
  { database, sealer, router, log }: PublishParts,
  authority: Pick<CertificateAuthority, 'alpnPair'>,
): Publisher => {
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
    async publishAll() {
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
