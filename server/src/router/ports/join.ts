import type { Socket } from 'node:net'

const aliveProbeMs = 30_000

interface JoinOptions {
  /** How long one side may stay silent after the other has ended. */
  halfClosedMs: number
  /** Ends a side whose partner broke. Default: `destroy`. */
  breakOff?(socket: Socket): void
  /** Called once, when the first side is gone. */
  onEnd(): void
}

/**
 * Joins two connections. The end of one side's data is passed on, the other direction continues until it ends too; if
 * a side closes altogether the other follows as soon as it has everything. An error ends both at once.
 */
export const join = (one: Socket, other: Socket, { halfClosedMs, breakOff, onEnd }: JoinOptions): void => {
  const endBoth = (): void => {
    for (const socket of [one, other])
      if (breakOff === undefined) socket.destroy()
      else breakOff(socket)
  }
  const closeAfter = (socket: Socket): void => {
    if (!socket.writableEnded) socket.end()
    socket.setTimeout(halfClosedMs, endBoth)
  }
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.setTimeout(0)
    from.setNoDelay(true)
    from.setKeepAlive(true, aliveProbeMs)
    from.on('error', endBoth)
    from.once('end', () => from.setTimeout(halfClosedMs, endBoth))
    from.once('close', () => closeAfter(to))
    from.pipe(to)
  }
  one.once('close', onEnd)
}
