import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench } from '../bench.ts'
import type { Figure, Side } from '../figure.ts'
import { cpuMicros, proportionalMb } from '../measure.ts'
import type { Another } from '../ours.ts'

const settleMs = 1000
const idleMs = 10_000

/** Percent of one core over ten quiet seconds. */
const idleCpu = async (pids: number[]): Promise<number> => {
  const before = cpuMicros(pids)
  await sleep(idleMs)
  return (cpuMicros(pids) - before) / (idleMs * 10)
}

const footprintSide = (start: () => Promise<Another>): Side => ({
  async measure(round) {
    const another = await start()
    try {
      await sleep(settleMs)
      const all = [...new Set([...another.pids, ...another.routerPids])]
      const router = proportionalMb(another.routerPids)
      const server = proportionalMb(all) - router
      const postgres = proportionalMb([another.postgresPid])
      const sample = { start: another.readyMs, server, router, postgres, all: server + router + postgres }
      return round === 1 ? { ...sample, idle: await idleCpu(all) } : sample
    } finally {
      await another.stop()
    }
  },
})

/** A server started on a PostgreSQL that is up and migrated: memory (PSS), time to the first 200, CPU when idle. */
export const figure: Figure<Bench> = {
  id: '6',
  rows: [
    {
      id: '6',
      what: 'memory at rest, all three below',
      unit: 'MB',
      goal: { kind: 'atMost', value: 200 },
      key: 'all',
      floorKey: null,
    },
    { id: '6-server', what: 'memory at rest, API + workers', unit: 'MB', goal: null, key: 'server' },
    { id: '6-router', what: 'memory at rest, router', unit: 'MB', goal: null, key: 'router', floorKey: null },
    { id: '6-postgres', what: 'memory at rest, PostgreSQL', unit: 'MB', goal: null, key: 'postgres', floorKey: null },
    { id: '6-start', what: 'start to first 200', unit: 'ms', goal: { kind: 'ratio', value: 2.5 }, key: 'start' },
    {
      id: '6-idle',
      what: 'idle CPU over 10 s',
      unit: '% of a core',
      goal: { kind: 'atMost', value: 0.5 },
      key: 'idle',
    },
  ],
  async floor(bench) {
    const floor = await bench.floorApi()
    const { pid: postgresPid } = await bench.postgres()
    return footprintSide(async () => {
      const { pid, readyMs, stop } = await floor.startAnother()
      return { pids: [pid], routerPids: [], postgresPid, readyMs, stop }
    })
  },
  async ours(bench) {
    const ours = await bench.ours()
    return footprintSide(() => ours.startAnother())
  },
}
