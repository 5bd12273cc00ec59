/**
 * How long nothing may move on a client's connection in the middle of a request: as long as is usual, or longer, where
 * a service's settings let its program or its clients take more time.
 */
import type { Http2Session } from 'node:http2'

/** So that whoever is silent is told by the limit that was set, not by the loss of the connection. */
const graceMs = 30_000

/** 0 is no limit. */
export const silenceFor = (usualMs: number, silenceMs: number): number => {
  if (!Number.isFinite(silenceMs)) return 0
  return silenceMs < usualMs ? usualMs : silenceMs + graceMs
}

interface Allowance {
  readonly usualMs: number
  allowedMs: number
}

const allowances = new WeakMap<Http2Session, Allowance>()

/** For streams to come, until one may be silent for longer. */
export const allowUsualSilence = (session: Http2Session, usualMs: number): void =>
  void allowances.set(session, { usualMs, allowedMs: usualMs })

/** A stream has begun; what is allowed for it may be known already. */
export const endSilence = (session: Http2Session): void => void session.setTimeout(allowances.get(session)!.allowedMs)

/** For one of its streams, and so for all that are in progress beside it. */
export const allowStreamSilence = (session: Http2Session | undefined, silenceMs: number): void => {
  const allowance = session && allowances.get(session)
  if (allowance === undefined || session!.destroyed) return
  const wantedMs = silenceFor(allowance.usualMs, silenceMs)
  if (allowance.allowedMs === 0 || (wantedMs !== 0 && wantedMs <= allowance.allowedMs)) return
  allowance.allowedMs = wantedMs
  session!.setTimeout(wantedMs)
}
