/** Counts of several processes, as one. */
import type { State } from '../serving.ts'

type Counts = State['counts']

/** Those of one that has ended are still counted, but for what ended with it. */
export const pastOf = (counts: Counts): Counts => ({
  ...{ ...counts, inFlight: 0 },
  upgrades: { ...counts.upgrades, open: 0 },
  connections: { ...counts.connections, open: 0 },
  flows: { ...counts.flows, open: 0 },
})

export const sumOf = (one: Counts, other: Counts): Counts => {
  const both = (name: 'upgrades' | 'connections' | 'flows') => ({
    total: one[name].total + other[name].total,
    open: one[name].open + other[name].open,
  })
  return {
    requests: one.requests + other.requests,
    failures: one.failures + other.failures,
    retries: one.retries + other.retries,
    inFlight: one.inFlight + other.inFlight,
    ...{ upgrades: both('upgrades'), connections: both('connections'), flows: both('flows') },
    internalErrors: one.internalErrors + other.internalErrors,
  }
}
