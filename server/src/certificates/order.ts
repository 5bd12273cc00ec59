/**
 * One order, from any state to a certificate or a reason. Each step is stored before the next depends on it, so that
 * another process can resume after it; requests to the CA whose results were not stored are repeated.
 */

import { LeaseHandedOff } from '../lib/lease-handed-off.ts'
import type { Log } from '../lib/log.ts'
import { type Outbound, OutboundFailed } from '../lib/net/outbound.ts'
import type { Clock } from '../lib/time/clock.ts'
import { limitSentence } from '../limits/limits.ts'
import { isWildcard } from '../router/table/wildcard.ts'
import { readChain, refuseCertificate } from '../router/tls/check-certificate.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import {
  AuthorityProblem,
  type CertificateAuthority,
  type ChallengeKind,
  type HostChallenge,
  type OrderView,
} from './authority.ts'
import type { DnsChallenges } from './dns/challenges.ts'
import { DnsProblem } from './dns/provider.ts'
import {
  forgetOrder,
  keyPlace,
  noteChallenge,
  noteFailed,
  noteIssued,
  noteKey,
  noteOrder,
  noteOrdering,
  type Problem,
  readUsage,
  sealerOf,
  type Wanted,
} from './rows.ts'

export interface OrderParts {
  database: Database
  sealer: Sealer
  authority: CertificateAuthority
  outbound: Pick<Outbound, 'addressesOf'>
  /** Resolves when the routers that a CA may ask have the stored challenge of this host. */
  notifyRouters(host: string): Promise<void>
  challenge: HostChallenge
  /** For wildcards; null without a DNS provider. */
  dns: Pick<DnsChallenges, 'check' | 'publish'> | null
  /** Certificates of one organization, and its orders in a day; 0: no limit. */
  mostCertificates: number
  clock: Clock
  log: Pick<Log, 'info' | 'warn'>
  /** Between 0 and 1. */
  random(): number
}

const second = 1000
const minute = 60 * second
const hour = 60 * minute
const day = 24 * hour

const orderDeadlineMs = 10 * minute
const dnsPauseMs = minute
const limitPauseMs = hour
const pollsMs = [1, 1, 2, 3, 5, 10].map((seconds) => seconds * second)

/** Ends an attempt, with the reason that is reported. */
class Unfinished extends Error {
  readonly problem: Problem
  /** The least pause; without, it counts as a failure and the pause grows. */
  readonly pauseMs: number | undefined
  readonly retryAfterMs: number | undefined
  readonly isOver: boolean

  constructor(problem: Problem, more: { pauseMs?: number; retryAfterMs?: number | undefined; isOver?: boolean } = {}) {
    super(problem.message)
    this.problem = problem
    this.pauseMs = more.pauseMs
    this.retryAfterMs = more.retryAfterMs
    this.isOver = more.isOver ?? false
  }
}

/** Names under localhost resolve to each client's own machine. */
const isLocal = (host: string): boolean => host.endsWith('.localhost')

const checkAddress = async ({ outbound }: OrderParts, host: string): Promise<void> => {
  if (isLocal(host)) return
  try {
    await outbound.addressesOf(host)
  } catch (error) {
    const code = error instanceof OutboundFailed ? (error.cause as { code?: string } | undefined)?.code : undefined
    const hasNone = code === 'ENOTFOUND' || code === 'ENODATA'
    const message = hasNone
      ? 'The host name has no address yet: add a DNS record that leads to this server.'
      : 'No name server answered for the host name.'
    throw new Unfinished({ code: 'dns', message }, { pauseMs: dnsPauseMs })
  }
}

const kindFor = ({ challenge }: OrderParts, host: string): ChallengeKind => (isWildcard(host) ? 'dns-01' : challenge)

const noProvider = 'A certificate for a wildcard needs a DNS provider: the operator sets SLIPWAY_ACME_DNS_PROVIDER.'

/** Whether the CA can find what it will ask for, before an order is used up. */
const checkReachable = async (parts: OrderParts, host: string, signal: AbortSignal): Promise<void> => {
  if (!isWildcard(host)) return checkAddress(parts, host)
  if (parts.dns === null) throw new Unfinished({ code: 'provider', message: noProvider }, { pauseMs: limitPauseMs })
  await parts.dns.check(host, signal)
}

const checkLimits = async (parts: OrderParts, wanted: Wanted): Promise<void> => {
  if (wanted.organizationId === null) return
  const { certificates, orders } = await readUsage(parts.database, wanted, parts.clock.now())
  const most = parts.mostCertificates
  if (most === 0) return
  if (certificates >= most && !wanted.isServed)
    throw new Unfinished(
      {
        code: 'limit',
        message: limitSentence('certificates', most, certificates + 1),
      },
      { pauseMs: limitPauseMs },
    )
  // Leaves room at the CA for orders of other organizations.
  if (orders >= most)
    throw new Unfinished(
      { code: 'limit', message: `An organization may order ${most} certificates in a day: this one waits.` },
      { pauseMs: limitPauseMs },
    )
}

const begin = async (parts: OrderParts, wanted: Wanted, signal: AbortSignal): Promise<string> => {
  const { database, authority, clock } = parts
  await checkLimits(parts, wanted)
  await checkReachable(parts, wanted.host, signal)
  const id = await noteOrdering(database, wanted, clock.now())
  const url = await authority.order(wanted.host, signal).catch(async (error: unknown) => {
    // A CA that did not answer has counted nothing.
    if (error instanceof AuthorityProblem && error.kind === 'silent') await forgetOrder(database, id)
    throw error
  })
  await noteOrder(database, wanted, url, clock.now())
  Object.assign(wanted, { orderUrl: url, orderedAt: clock.now(), orderKey: null, challenge: null })
  return url
}

const publishRecord = async ({ dns }: OrderParts, host: string, value: string, signal: AbortSignal): Promise<void> => {
  if (dns === null) throw new Unfinished({ code: 'provider', message: noProvider }, { pauseMs: limitPauseMs })
  await dns.publish(host, value, signal)
}

/** The challenge that this attempt has answered. */
interface Answered {
  url: string | null
  refusal: AuthorityProblem | null
}

const answer = async (
  parts: OrderParts,
  wanted: Wanted,
  { challenge }: OrderView,
  answered: Answered,
  signal: AbortSignal,
): Promise<void> => {
  if (challenge === null) {
    const message = `The certificate authority does not offer the challenge ${kindFor(parts, wanted.host)} for this host.`
    throw new Unfinished({ code: 'refused', message }, { isOver: true })
  }
  if (challenge.isAnswered) return
  if (answered.url === challenge.url) {
    if (answered.refusal !== null) throw answered.refusal
    return
  }
  const { kind, token, answer: proof } = challenge
  await noteChallenge(parts.database, wanted, { kind, token, answer: proof })
  if (kind === 'dns-01') await publishRecord(parts, wanted.host, proof, signal)
  else await parts.notifyRouters(wanted.host)
  answered.url = challenge.url
  await parts.authority.answer(challenge.url, signal).catch((error: unknown) => {
    if (!(error instanceof AuthorityProblem && error.kind === 'refused')) throw error
    // A challenge that another process has answered may have ended since it was read: the next read shows it.
    answered.refusal = error
  })
}

const openKey = async ({ sealer }: OrderParts, wanted: Wanted): Promise<string> =>
  (await sealer.open(sealerOf(wanted), keyPlace(wanted.id, 'order_key'), wanted.orderKey!)).reveal()

const finalize = async (parts: OrderParts, wanted: Wanted, url: string, signal: AbortSignal): Promise<void> => {
  if (wanted.orderKey === null) {
    const key = await parts.authority.createKey()
    const sealed = await parts.sealer.seal(sealerOf(wanted), keyPlace(wanted.id, 'order_key'), key)
    await noteKey(parts.database, wanted, sealed)
    wanted.orderKey = sealed
  }
  await parts.authority.finalize(url, wanted.host, await openKey(parts, wanted), signal)
}

/** At two thirds of its lifetime, and a little earlier at random: those of the same age are not renewed together. */
export const renewalAt = (notBefore: Date, notAfter: Date, random: number): Date => {
  const lifeMs = notAfter.getTime() - notBefore.getTime()
  return new Date(notBefore.getTime() + lifeMs * (2 / 3 - random * 0.05))
}

const take = async (parts: OrderParts, wanted: Wanted, url: string, signal: AbortSignal): Promise<void> => {
  const wrong = (why: string): Unfinished =>
    new Unfinished({ code: 'certificate', message: `The issued certificate cannot be used: ${why}.` }, { isOver: true })
  if (wanted.orderKey === null) throw wrong('its key was lost')
  const chain = await parts.authority.certificate(url, signal)
  const key = await openKey(parts, wanted)
  const why = await refuseCertificate(wanted.host, { certificate: chain, key })
  if (why !== null) throw wrong(why)
  const [own] = readChain(chain)!
  const [notBefore, notAfter] = [new Date(own!.validFrom), new Date(own!.validTo)]
  if (notAfter <= parts.clock.now()) throw wrong('it has expired')
  const sealedKey = await parts.sealer.seal(sealerOf(wanted), keyPlace(wanted.id, 'chain_key'), key)
  const nextAt = renewalAt(notBefore, notAfter, parts.random())
  await noteIssued(parts.database, wanted, { chain, sealedKey, notBefore, notAfter, nextAt })
  await parts.notifyRouters(wanted.host)
  parts.log.info({ host: wanted.host, until: notAfter }, 'a certificate has been issued')
}

const goOn = async (parts: OrderParts, wanted: Wanted, signal: AbortSignal): Promise<void> => {
  const { authority, clock } = parts
  const url = wanted.orderUrl ?? (await begin(parts, wanted, signal))
  const deadline = (wanted.orderedAt?.getTime() ?? 0) + orderDeadlineMs
  const answered: Answered = { url: null, refusal: null }
  for (let turn = 0; ; turn += 1) {
    const view = await authority.look(url, kindFor(parts, wanted.host), signal)
    if (view.status === 'valid') return take(parts, wanted, url, signal)
    if (view.status === 'invalid') {
      const message = `The certificate authority could not verify the host: ${view.problem || 'it does not say why'}`
      throw new Unfinished({ code: 'refused', message }, { isOver: true })
    }
    if (clock.now().getTime() > deadline)
      throw new Unfinished(
        { code: 'silent', message: 'The certificate authority did not finish the order in time.' },
        { isOver: true },
      )
    if (view.status === 'pending') await answer(parts, wanted, view, answered, signal)
    if (view.status === 'ready') await finalize(parts, wanted, url, signal)
    await clock.sleep(pollsMs[Math.min(turn, pollsMs.length - 1)]!, signal)
  }
}

const unfinished = (error: unknown): Unfinished => {
  if (error instanceof Unfinished) return error
  if (error instanceof DnsProblem)
    return new Unfinished({ code: 'provider', message: error.message }, { retryAfterMs: error.retryAfterMs })
  if (error instanceof AuthorityProblem) {
    const { kind, message, retryAfterMs } = error
    const code = kind === 'gone' ? 'refused' : kind
    // A CA that is silent or limits us may know the order later.
    return new Unfinished({ code, message }, { retryAfterMs, isOver: kind === 'gone' || kind === 'refused' })
  }
  return new Unfinished({ code: 'silent', message: "The certificate could not be ordered: see the server's log." })
}

/** Twice as long after each failure, up to a day, and up to a fifth longer by chance. */
const backoffMs = (failures: number, random: number): number =>
  Math.min(2 * minute * 2 ** Math.min(failures, 20), day) * (1 + random * 0.2)

/** Does what is due for a host, and stores the reason if it fails. Rejects only if the lease is lost or ended. */
export const attempt = async (parts: OrderParts, wanted: Wanted, signal: AbortSignal): Promise<void> => {
  try {
    await goOn(parts, wanted, signal)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    const why = unfinished(error)
    const isKnown = [Unfinished, AuthorityProblem, DnsProblem].some((kind) => error instanceof kind)
    parts.log.warn(
      { ...(isKnown ? {} : { err: error }), host: wanted.host, why: why.message },
      'a certificate has to wait',
    )
    const isFailure = why.pauseMs === undefined
    const failures = wanted.failures + (isFailure ? 1 : 0)
    const pauseMs = Math.max(why.pauseMs ?? backoffMs(failures - 1, parts.random()), why.retryAfterMs ?? 0)
    const nextAt = new Date(parts.clock.now().getTime() + pauseMs)
    await noteFailed(parts.database, wanted, { problem: why.problem, nextAt, failures, isOver: why.isOver })
    if (why.isOver) await parts.notifyRouters(wanted.host)
  }
}
