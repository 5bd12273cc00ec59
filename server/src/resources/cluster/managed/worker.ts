/**
 * Runs requested actions on clusters at cloud providers. Promises that a run continues whatever dies: its row has a
 * lease, and the execution of its tool is joined by the next server. A cancel reaches it on any server.
 */
import type { Parts } from '../../../api/parts.ts'
import { Canceled } from '../../../deployments/progress/canceled.ts'
import { isUuid } from '../../../lib/ids.ts'
import { expireLeases, heldByLease, LeaseLost, renewLeases } from '../../../work/lease.ts'
import { createWorker, workerName } from '../../../work/worker.ts'
import { claimRuns, isCanceled, managedChannel, managedLeases, type RunClaim } from './rows.ts'
import { type RunTimes, runClaim } from './run.ts'

/** For this server; claimRuns decides which of them begin. */
const concurrency = 12
const periodMs = 10_000

/** `alone`: no other server can work on this database, so that leases of a dead process end at once. */
export const startManagedClusters = async (
  parts: Parts,
  { alone, ...times }: { alone: boolean } & RunTimes,
): Promise<{ stop(): Promise<void> }> => {
  const { database } = parts
  const worker = workerName()
  if (alone) await expireLeases(database, managedLeases)
  const { renew, release } = heldByLease(database, managedLeases, worker)
  /** Which of these end here, and why. */
  const ended = async (ids: readonly string[]): Promise<ReadonlyMap<string, Error>> => {
    const rows = new Map((await renewLeases(database, managedLeases, worker, ids)).map((row) => [row.id, row]))
    return new Map(
      ids.flatMap((id): [string, Error][] => {
        const row = rows.get(id)
        if (row === undefined) return [[id, new LeaseLost()]]
        return row.isCanceled ? [[id, new Canceled()]] : []
      }),
    )
  }
  const runs = createWorker<RunClaim>(parts, {
    name: 'cloud clusters',
    concurrency,
    periodMs,
    idOf: ({ id }) => id,
    about: ({ id, action }) => ({ cluster: id, action }),
    claim: async (room) => ({ claimed: await claimRuns(database, worker, room), more: false }),
    run: (claim, held) => runClaim(parts, claim, held, times),
    renew: { ...renew, renew: ended },
    release,
    failed: 'a run of a cluster was interrupted and waits for its next claim',
  })
  const cancel = async (id: string): Promise<void> => {
    if (isUuid(id) && (await isCanceled(database, id))) runs.abort(id, new Canceled())
  }
  const leave = await database.listen(managedChannel, (id) => {
    runs.wake()
    // Otherwise the next renewal detects it.
    cancel(id).catch(() => {})
  })
  return {
    async stop() {
      leave()
      await runs.stop()
    },
  }
}
