/** A certificate authority, as an order for one host needs it. Every call may be repeated, also by another process. */

/** Answered by the router. */
export const hostChallenges = ['http-01', 'tls-alpn-01'] as const
export type HostChallenge = (typeof hostChallenges)[number]
export type ChallengeKind = HostChallenge | 'dns-01'

export interface Challenge {
  kind: ChallengeKind
  token: string
  /** The answer that the CA must find: the key authorization, or its digest in a DNS record. */
  answer: string
}

export interface OrderView {
  status: 'pending' | 'ready' | 'processing' | 'valid' | 'invalid'
  /** The challenge to answer; null if there is none, or if the CA does not offer this kind. */
  challenge: (Challenge & { url: string; isAnswered: boolean }) | null
  /** The CA's own words; null without. */
  problem: string | null
}

export interface CertificateAuthority {
  /** Begins an order; returns its address. */
  order(host: string, signal: AbortSignal): Promise<string>
  look(orderUrl: string, kind: ChallengeKind, signal: AbortSignal): Promise<OrderView>
  /** Asks the CA to verify the answer to a challenge. */
  answer(challengeUrl: string, signal: AbortSignal): Promise<void>
  /** A key in PEM, for a new certificate. */
  createKey(): Promise<string>
  finalize(orderUrl: string, host: string, key: string, signal: AbortSignal): Promise<void>
  /** The chain in PEM. */
  certificate(orderUrl: string, signal: AbortSignal): Promise<string>
  /** The certificate that answers a TLS-ALPN-01 connection. */
  alpnPair(host: string, answer: string): Promise<{ certificate: string; key: string }>
}

/**
 * `silent`: no answer, or no useful one; `limited`: a rate limit, to be retried later; `gone`: it no longer knows the
 * order; `refused`: anything else.
 */
type ProblemKind = 'silent' | 'limited' | 'gone' | 'refused'

/** Every call rejects with this. Its message is a sentence for people. */
export class AuthorityProblem extends Error {
  readonly kind: ProblemKind
  readonly retryAfterMs: number | undefined

  constructor(kind: ProblemKind, message: string, retryAfterMs?: number) {
    super(message)
    this.kind = kind
    this.retryAfterMs = retryAfterMs
  }
}
