/** The shape that 1a to 1e share: a fixed number of requests against either subject, paid in CPU microseconds. */
import type { Bench } from '../bench.ts'
import type { Figure, RowSpec, Side } from '../figure.ts'
import type { LoadTarget } from '../load.ts'
import { costOf } from '../load-client.ts'
import type { Subject } from '../subject.ts'

export type TargetOf = (subject: Subject) => Promise<LoadTarget>

/** One side: each named target in turn, `requests` each. */
const apiSide = async (
  bench: Bench,
  subject: Subject,
  targets: Record<string, TargetOf>,
  requests: number,
): Promise<Side> => {
  const load = await bench.load()
  const ready = await Promise.all(
    Object.entries(targets).map(async ([key, make]) => [key, await make(subject)] as const),
  )
  return {
    async measure() {
      const sample: Record<string, number> = {}
      for (const [key, target] of ready) {
        const cost = await costOf(load, subject.pids, target, requests)
        sample[key] = cost.cpuMicros
        sample[`${key}PerSecond`] = cost.perSecond
      }
      return sample
    },
  }
}

/** Rows of one measured target: CPU, which has the goal, and requests a second, for the reader. */
export const apiRows = (id: string, what: string, ratio: number, key = 'cost'): RowSpec[] => [
  { id, what: `${what}, CPU`, unit: 'µs', goal: { kind: 'ratio', value: ratio }, key },
  { id: `${id}-rate`, what: `${what}, rate`, unit: 'req/s', goal: null, key: `${key}PerSecond` },
]

/** A figure whose two sides are asked the same, or differ only in what `ours` names. */
export const apiFigure = (
  id: string,
  rows: RowSpec[],
  requests: number,
  floor: Record<string, TargetOf>,
  ours: Record<string, TargetOf> = floor,
): Figure<Bench> => ({
  id,
  rows,
  floor: async (bench) => apiSide(bench, await bench.floorApi(), floor, requests),
  ours: async (bench) => apiSide(bench, await bench.ours(), ours, requests),
})
