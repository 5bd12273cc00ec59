/** Starts the load generator's process and hands it orders, one at a time. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { HoldReport, LoadOrder, LoadReport, LoadTarget } from './load.ts'
import { cpuMicros } from './measure.ts'

export interface Load {
  run(target: LoadTarget, requests: number): Promise<LoadReport>
  /** Keeps all targets' clients busy, each pausing `pauseMs` after an answer. */
  hold(targets: LoadTarget[], pauseMs: number): Promise<void>
  /** What happened since `hold` or the last mark. */
  mark(): Promise<HoldReport>
  release(): Promise<HoldReport>
  close(): Promise<void>
}

const ask = async <Report>(child: ChildProcess, order: LoadOrder): Promise<Report> => {
  const settled = new AbortController()
  const { signal } = settled
  const ended = once(child, 'exit', { signal }).then(() => Promise.reject(new Error('the load generator ended')))
  try {
    child.send(order)
    const [answer] = (await Promise.race([once(child, 'message', { signal }), ended])) as [
      { report: Report } | { error: string },
    ]
    if ('error' in answer) throw new Error(answer.error)
    return answer.report
  } finally {
    settled.abort()
  }
}

export const startLoad = (): Load => {
  const child = fork(fileURLToPath(new URL('./load.ts', import.meta.url)), { stdio: 'inherit' })
  return {
    run: (target, requests) => ask<LoadReport>(child, { kind: 'run', target, requests }),
    hold: async (targets, pauseMs) => void (await ask<HoldReport>(child, { kind: 'hold', targets, pauseMs })),
    mark: () => ask<HoldReport>(child, { kind: 'mark' }),
    release: () => ask<HoldReport>(child, { kind: 'release' }),
    async close() {
      if (child.exitCode !== null || child.signalCode !== null) return
      if (child.connected) child.disconnect()
      await once(child, 'exit')
    },
  }
}

/** One window of requests against the process trees `pids`: CPU microseconds a request and requests a second. */
export const costOf = async (
  load: Load,
  pids: readonly number[],
  target: LoadTarget,
  requests: number,
): Promise<{ cpuMicros: number; perSecond: number }> => {
  const before = cpuMicros(pids)
  const report = await load.run(target, requests)
  const used = cpuMicros(pids) - before
  if (report.failed > 0) {
    throw new Error(`${report.failed} of ${requests} requests to ${target.path} failed: ${report.causes.join('; ')}`)
  }
  return { cpuMicros: used / requests, perSecond: (requests / report.ms) * 1000 }
}
