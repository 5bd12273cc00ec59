/**
 * The load generator, a process of its own so that its CPU is not counted with the server's. Takes orders by IPC:
 * `run` sends a fixed number of requests and reports; `hold` sends until `release`. Refuses to know any API.
 */
import { Pool } from 'undici'
import { percentile } from './measure.ts'

/** `{n}` in a body becomes a number that no other request of this process has. */
export interface LoadTarget {
  origin: string
  path: string
  method: 'GET' | 'POST'
  headers: Record<string, string>
  body?: string
  clients: number
  expected: number
}

export type LoadOrder =
  | { kind: 'run'; target: LoadTarget; requests: number }
  | { kind: 'hold'; targets: LoadTarget[]; pauseMs: number }
  | { kind: 'mark' }
  | { kind: 'release' }

export interface LoadReport {
  requests: number
  failed: number
  ms: number
  p50Ms: number
  p99Ms: number
  /** First few causes of failures, for the reader. */
  causes: string[]
}

/** What happened since the last mark, or since the start. */
export interface HoldReport {
  requests: number
  failed: number
  /** Longest time between two good answers, in milliseconds. */
  longestGapMs: number
  causes: string[]
}

let serial = 0
const nonce = process.pid.toString(36)

const send = async (pool: Pool, target: LoadTarget): Promise<string | null> => {
  const body = target.body?.replaceAll('{n}', `${nonce}-${serial++}`)
  try {
    const answer = await pool.request({
      path: target.path,
      method: target.method,
      headers: target.headers,
      body: body ?? null,
    })
    const text = await answer.body.text()
    return answer.statusCode === target.expected ? null : `${answer.statusCode} ${text.slice(0, 120)}`
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    return code ?? message
  }
}

const noteCause = (causes: string[], cause: string): void => {
  if (causes.length < 5 && !causes.includes(cause)) causes.push(cause)
}

const poolFor = ({ origin, clients }: LoadTarget): Pool =>
  new Pool(origin, { connections: clients, pipelining: 1, headersTimeout: 15_000, bodyTimeout: 15_000 })

const runLoad = async (target: LoadTarget, requests: number): Promise<LoadReport> => {
  const pool = poolFor(target)
  const latencies: number[] = []
  const causes: string[] = []
  let left = requests
  let failed = 0
  const client = async () => {
    while (left-- > 0) {
      const start = performance.now()
      const cause = await send(pool, target)
      latencies.push(performance.now() - start)
      if (cause === null) continue
      failed++
      noteCause(causes, cause)
    }
  }
  const start = performance.now()
  await Promise.all(Array.from({ length: target.clients }, client))
  const ms = performance.now() - start
  await pool.close()
  return { requests, failed, ms, p50Ms: percentile(latencies, 0.5), p99Ms: percentile(latencies, 0.99), causes }
}

const freshHold = (): HoldReport => ({ requests: 0, failed: 0, longestGapMs: 0, causes: [] })
let held = freshHold()
let lastGood = 0
let holding = false

const recordHeld = (cause: string | null): void => {
  held.requests++
  if (cause !== null) {
    held.failed++
    noteCause(held.causes, cause)
    return
  }
  const now = performance.now()
  held.longestGapMs = Math.max(held.longestGapMs, now - lastGood)
  lastGood = now
}

const hold = async (targets: LoadTarget[], pauseMs: number): Promise<void> => {
  holding = true
  held = freshHold()
  lastGood = performance.now()
  const clients = targets.flatMap((target) => {
    const pool = poolFor(target)
    return Array.from({ length: target.clients }, async () => {
      while (holding) {
        recordHeld(await send(pool, target))
        if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs))
      }
      await pool.close().catch(() => {})
    })
  })
  await Promise.all(clients)
}

let running: Promise<void> = Promise.resolve()

/** Answers what was seen so far and begins a new window. */
const turnWindow = (): HoldReport => {
  const report = { ...held, longestGapMs: Math.max(held.longestGapMs, performance.now() - lastGood) }
  held = freshHold()
  lastGood = performance.now()
  return report
}

const obey = async (order: LoadOrder): Promise<LoadReport | HoldReport> => {
  if (order.kind === 'run') return runLoad(order.target, order.requests)
  if (order.kind === 'hold') running = hold(order.targets, order.pauseMs)
  if (order.kind === 'release') {
    holding = false
    await running
  }
  return turnWindow()
}

if (process.send !== undefined) {
  process.on('message', (order: LoadOrder) => {
    obey(order).then(
      (report) => process.send?.({ report }),
      (error: Error) => process.send?.({ error: error.message }),
    )
  })
  // A Ctrl-C is for the bench, which ends us when the round is over.
  process.on('SIGINT', () => {})
  process.on('disconnect', () => process.exit(0))
}
