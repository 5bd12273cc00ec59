/**
 * Time limits of connections that are long and nearly never reached: checking all of them periodically costs less than
 * a timer for each step of each request.
 */

export interface Limited {
  /** Monotonic milliseconds; 0: it has no limit now. */
  lateAt: number
  /** `lateAt` has passed. */
  onLate(now: number): void
}

export interface Sweep<One extends Limited> {
  add(one: One): void
  delete(one: One): void
  readonly all: ReadonlySet<One>
}

export const createSweep = <One extends Limited>(everyMs: number): Sweep<One> => {
  const all = new Set<One>()
  let isDue = false
  const look = (): void => {
    isDue = false
    const now = performance.now()
    for (const one of all) if (one.lateAt !== 0 && one.lateAt <= now) one.onLate(now)
    schedule()
  }
  const schedule = (): void => {
    if (isDue || all.size === 0) return
    isDue = true
    setTimeout(look, everyMs).unref()
  }
  return {
    all,
    add(one) {
      all.add(one)
      schedule()
    },
    delete: (one) => void all.delete(one),
  }
}
