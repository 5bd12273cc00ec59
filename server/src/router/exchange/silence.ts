/**
 * The longest silence of a client's connection in the middle of a request: the default, or longer if a service's
 * settings allow its program or its clients more time.
 */
import type { Http2Session } from 'node:http2'

/** So that a silent side gets the answer of the configured limit instead of a lost connection. */
const graceMs = 30_000

/** 0: no limit. */
export const silenceFor = (usualMs: number, silenceMs: number): number => {
  if (!Number.isFinite(silenceMs)) return 0
  return silenceMs < usualMs ? usualMs : silenceMs + graceMs
}

interface Allowance {
  readonly usualMs: number
  allowedMs: number
}

const allowances = new WeakMap<Http2Session, Allowance>()

/** For new streams, until one may be silent for longer. */
export const allowUsualSilence = (session: Http2Session, usualMs: number): void =>
  void allowances.set(session, { usualMs, allowedMs: usualMs })

/** A stream has begun; its limit may be known already. */
export const endSilence = (session: Http2Session): void => void session.setTimeout(allowances.get(session)!.allowedMs)

/** For one of its streams, and so for all others in progress on the connection. */
export const allowStreamSilence = (session: Http2Session | undefined, silenceMs: number): void => {
  const allowance = session && allowances.get(session)
  if (allowance === undefined || session!.destroyed) return
  const wantedMs = silenceFor(allowance.usualMs, silenceMs)
  if (allowance.allowedMs === 0 || (wantedMs !== 0 && wantedMs <= allowance.allowedMs)) return
  allowance.allowedMs = wantedMs
  session!.setTimeout(wantedMs)
}
