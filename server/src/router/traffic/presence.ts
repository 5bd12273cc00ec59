/**
 * Whether anything exists at the address of a target. A program that does not listen refuses a connection at once; for
 * a container that has exited, nothing does: each connection to its address would wait for seconds, and with it the
 * request. So we probe the address ourselves, and send no requests while it stays silent.
 */
import { connect } from 'node:net'
import type { Target } from '../router.ts'
import type { Upstream } from './upstreams.ts'

const knockMs = 200
const pauseMs = 100
/** A busy machine may miss one. */
const silentKnocks = 2
/** Programs that close each connection after its response are not probed after every one. */
const leastGapMs = 250

/** Over loopback, an absent program refuses connections. */
const isOwn = ({ host }: Target): boolean => host.startsWith('127.') || host === '::1' || host === 'localhost'

/** True if it accepted or refused the connection, so something exists there. */
const probeTarget = ({ host, port }: Target): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect({ host, port }).unref()
    const end = (isThere: boolean): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(isThere)
    }
    // Answers that arrived while we were busy are read before they count as late.
    const timer = setTimeout(() => setImmediate(end, false), knockMs).unref()
    socket.once('connect', () => end(true))
    socket.once('error', ({ code }: NodeJS.ErrnoException) => end(code === 'ECONNREFUSED' || code === 'ECONNRESET'))
  })

const rest = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, pauseMs).unref())

const isOfUse = (upstream: Upstream): boolean => upstream.routed || upstream.inFlight > 0

const watch = async (upstream: Upstream): Promise<void> => {
  const since = performance.now()
  for (let silent = 0; isOfUse(upstream) && !(await probeTarget(upstream.target)); await rest()) {
    // A target whose queue is full is silent too, but still answers others.
    if (++silent >= silentKnocks && upstream.heardAt < since) upstream.isAbsent = true
  }
  upstream.isAbsent = false
}

/** Reports a failure: until the target is seen again, `isAbsent` is true. */
export const checkPresence = (upstream: Upstream): void => {
  if (upstream.isChecked || isOwn(upstream.target)) return
  upstream.isChecked = true
  const waitMs = Math.max(0, upstream.checkedAt + leastGapMs - performance.now())
  const begin = async (): Promise<void> => {
    upstream.checkedAt = performance.now()
    await watch(upstream)
    upstream.isChecked = false
  }
  setTimeout(() => void begin(), waitMs).unref()
}

export const absence = (): Error => new Error('nothing is listening')
