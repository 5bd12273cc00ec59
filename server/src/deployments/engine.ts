/**
 * The workers: they claim deployments, keep their leases, and hand cancels on. Promises that every accepted deployment
 * ends in a final state, whatever instant a process dies at. Work is found by NOTIFY, with a slow sweep behind it.
 */
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { Handover } from '../lib/handover.ts'
import { usualLimits } from '../limits/limits.ts'
import { type Claim, claim, expireLeases, heartbeat, LeaseLost, leaseMs, releaseLeases } from '../work/queue.ts'
import { releaseRuns } from '../work/schedule.ts'
import { cancelDeployments } from './cancel.ts'
import { Canceled } from './canceled.ts'
import type { Deployments } from './deployments.ts'
import { type EngineParts, kindOf } from './engine-parts.ts'
import { planDeployment } from './plan-facts.ts'
import { startReconcilers } from './reconcile.ts'
import { requestDeployment } from './request.ts'
import { releaseFor, releasesOf } from './rollback.ts'
import { withRoom } from './room.ts'
import { runDeployment } from './run-deployment.ts'
import { startScheduler } from './scheduler.ts'
import { createStatuses } from './status.ts'

export interface Engine extends Deployments {
  start(): Promise<void>
  /** Ends at a step's border and gives the leases back; the next start goes on. */
  stop(): Promise<void>
}

const sweepMs = 5000
const heartbeatMs = 4000
const stopTimeoutMs = 10_000

class Shutdown extends Handover {}

interface Active {
  claim: Claim
  controller: AbortController
  done: Promise<void>
}

interface Workers {
  wake(): void
  cancel(deploymentId: string): void
  beat(): Promise<void>
  stop(): Promise<void>
}

const createWorkers = (parts: EngineParts, worker: string): Workers => {
  const active = new Map<string, Active>()
  /** Ended here without a final state: their leases are given back, so that nobody waits for them to run out. */
  const abandoned = new Set<string>()
  /** Organizations in the order of their last claim: nobody's thousand deployments keep another's waiting. */
  const served = new Set<string>()
  let stopping = false
  let pumping = false
  let again = false
  let renewedMs = parts.clock.monotonicMs()

  const begin = (claimed: Claim): void => {
    const controller = new AbortController()
    if (claimed.cancelRequested) controller.abort(new Canceled())
    const done = runDeployment(parts, claimed, controller.signal)
      .catch((error: unknown) => {
        if (controller.signal.reason instanceof Shutdown) return
        abandoned.add(claimed.id)
        if (!(error instanceof LeaseLost))
          parts.log.warn({ err: error, deploymentId: claimed.id }, 'a deployment is left to its next claim')
      })
      .finally(() => {
        active.delete(claimed.id)
        wake()
      })
    active.set(claimed.id, { claim: claimed, controller, done })
  }
  const pump = async (): Promise<void> => {
    while (!stopping && active.size < parts.concurrency) {
      const claimed = await claim(parts.database, worker, [...served])
      if (claimed === null) return
      served.delete(claimed.organizationId)
      served.add(claimed.organizationId)
      // A deployment that failed to run to its end here (the database was away) is claimed again after its lease.
      if (!active.has(claimed.id)) begin(claimed)
    }
  }
  const wake = (): void => {
    again = true
    if (pumping || stopping) return
    pumping = true
    const turn = async (): Promise<void> => {
      while (again) {
        again = false
        await pump()
      }
    }
    turn()
      .catch((error: unknown) => parts.log.warn({ err: error }, 'claiming waits for the database'))
      .finally(() => {
        pumping = false
      })
  }
  const abortAll = (reason: Error): void => {
    for (const { controller } of active.values()) controller.abort(reason)
  }
  const giveBack = async (): Promise<void> => {
    const ids = [...abandoned].filter((id) => !active.has(id))
    if (ids.length === 0) return
    await releaseLeases(parts.database, worker, ids)
    for (const id of ids) abandoned.delete(id)
    wake()
  }
  const beat = async (): Promise<void> => {
    await giveBack().catch(() => {})
    const ids = [...active.keys()]
    if (ids.length === 0) {
      renewedMs = parts.clock.monotonicMs()
      return
    }
    try {
      const held = new Map((await heartbeat(parts.database, worker, ids)).map((row) => [row.id, row]))
      renewedMs = parts.clock.monotonicMs()
      for (const id of ids) {
        if (!held.has(id)) active.get(id)?.controller.abort(new LeaseLost())
        else if (held.get(id)!.cancelRequested) active.get(id)?.controller.abort(new Canceled())
      }
    } catch (error) {
      parts.log.warn({ err: error }, 'leases could not be renewed')
      // Nothing irreversible may happen without the lease, so work ends before it can have run out.
      if (parts.clock.monotonicMs() - renewedMs > leaseMs - heartbeatMs) abortAll(new LeaseLost())
    }
  }
  return {
    wake,
    beat,
    cancel: (id) => active.get(id)?.controller.abort(new Canceled()),
    async stop() {
      stopping = true
      const claimed = [...active.keys(), ...abandoned]
      abortAll(new Shutdown())
      const patience = new AbortController()
      const timeout = parts.clock.sleep(stopTimeoutMs, patience.signal).catch(() => {})
      await Promise.race([Promise.all([...active.values()].map(({ done }) => done)), timeout])
      patience.abort()
      await releaseLeases(parts.database, worker, claimed).catch(() => {})
    },
  }
}

/** Runs `work` every `everyMs`, never twice at once. */
const repeat = (everyMs: number, work: () => Promise<unknown>): (() => void) => {
  let timer: NodeJS.Timeout
  let ended = false
  const turn = async (): Promise<void> => {
    await work()
    if (!ended) timer = setTimeout(turn, everyMs)
  }
  timer = setTimeout(turn, everyMs)
  return () => {
    ended = true
    clearTimeout(timer)
  }
}

export const createEngine = (given: EngineParts): Engine => {
  const parts = given.disk === undefined ? given : { ...given, builder: withRoom(given.builder, given.disk) }
  const worker = `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`
  const workers = createWorkers(parts, worker)
  const { enqueue, limits = usualLimits, disk } = parts
  const requestParts = {
    enqueue,
    limits,
    disk,
    missingTool: (name: string) => parts.builder.missingTool(name),
    kindOf: (kind: string) => kindOf(parts, kind),
  }
  const ends: (() => void | Promise<void>)[] = []

  return {
    request: (tx, request) => requestDeployment(tx, request, requestParts),
    plan: (db, request) => planDeployment(parts, db, request),
    releaseFor: (db, serviceId, releaseId) => releaseFor(parts, db, serviceId, releaseId),
    releasesOf: (db, environmentId, executionId) => releasesOf(parts, db, environmentId, executionId),
    cancel: (tx, environmentId, deploymentId) => cancelDeployments(tx, environmentId, requestParts, deploymentId),
    ...createStatuses(parts),
    async start() {
      if (parts.alone) {
        await expireLeases(parts.database)
        await releaseRuns(parts.database, null)
      }
      const reconciler = startReconcilers(parts)
      ends.push(() => reconciler.stop())
      const scheduler = startScheduler(parts, worker)
      ends.push(() => scheduler.stop())
      ends.push(await parts.database.listen('slipway_schedule', () => scheduler.wake()))
      ends.push(await parts.database.listen('slipway_deployment', () => workers.wake()))
      ends.push(await parts.database.listen('slipway_routes', (id) => reconciler.soon(id)))
      ends.push(await parts.database.listen('slipway_cancel', (id) => workers.cancel(id)))
      ends.push(repeat(sweepMs, async () => workers.wake()))
      ends.push(repeat(heartbeatMs, () => workers.beat()))
      workers.wake()
    },
    async stop() {
      const ended = ends.reverse().map((end) => end())
      await workers.stop()
      await Promise.all(ended)
    },
  }
}
