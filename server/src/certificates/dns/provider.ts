/** A DNS provider, as challenges of a certificate authority need it. Every call may be repeated, also by another process. */

export interface TxtRecord {
  /** Lower case, without the root's dot. */
  name: string
  value: string
}

export interface DnsProvider {
  /** Rejects if records of this name cannot be changed. */
  check(name: string, signal: AbortSignal): Promise<void>
  /** Adds the record to others of its name; an existing one is kept. */
  set(record: TxtRecord, signal: AbortSignal): Promise<void>
  /** Removes this record only; a missing one is not an error. */
  remove(record: TxtRecord, signal: AbortSignal): Promise<void>
}

/**
 * `denied`: the credentials are not accepted, or lack this permission; `zone`: no zone of the account contains the
 * name; `silent`: no useful answer; `hidden`: the record was set, but is not answered; `limited`: a rate limit, to be
 * retried later; `refused`: anything else.
 */
export type DnsProblemKind = 'denied' | 'zone' | 'silent' | 'hidden' | 'limited' | 'refused'

const sentences: Record<DnsProblemKind, string> = {
  denied: 'The DNS provider refuses the credentials of this server: the operator has to look at SLIPWAY_ACME_DNS_….',
  zone: "The DNS provider has no zone for this name that this server's credentials may change.",
  silent: 'The DNS provider did not answer.',
  hidden: 'The name servers of the domain do not answer the DNS record that was set five minutes ago.',
  limited: 'The DNS provider limits requests.',
  refused: 'The DNS provider refused the record.',
}

/** Every call rejects with this. Its message is a sentence for people, without words of the provider. */
export class DnsProblem extends Error {
  readonly kind: DnsProblemKind
  readonly retryAfterMs: number | undefined

  constructor(
    kind: DnsProblemKind,
    { retryAfterMs, cause }: { retryAfterMs?: number | undefined; cause?: string } = {},
  ) {
    super(cause === undefined ? sentences[kind] : `${sentences[kind].slice(0, -1)} (${cause}).`)
    this.kind = kind
    this.retryAfterMs = retryAfterMs
  }
}

/** A name and its parents, the longest first, without the top level: one of them is its zone. */
export const zoneNames = (name: string): string[] => {
  const labels = name.split('.')
  return labels.slice(0, -1).map((_, index) => labels.slice(index).join('.'))
}
