/**
 * Abort signals of the services that running deployments work on in this process. A deletion of a service aborts its
 * own with `Canceled`; the deployment continues with its other services.
 */
import type { Database } from '../../store/database.ts'
import { Canceled } from '../progress/canceled.ts'
import { partKey } from '../request/cancel.ts'

export interface PartSignals {
  /** Runs `work` with a signal that `whole`, or a request to end this part, aborts; also a request made before. */
  during<T>(
    database: Database,
    part: { deploymentId: string; serviceId: string },
    whole: AbortSignal,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T>
  /** Aborts the part with this key (`partKey`) if it runs here. */
  end(key: string): void
  /** Aborts the parts of these deployments that should end; for requests whose notification was lost. */
  endRequested(database: Database, deploymentIds: readonly string[]): Promise<void>
}

const readEnded = async (database: Database, deploymentIds: readonly string[]): Promise<string[]> => {
  const rows = await database.query<{ deploymentId: string; serviceId: string }>(
    `select deployment_id as "deploymentId", service_id as "serviceId" from deployment_service
     where deployment_id = any($1) and end_requested_at is not null and finished_at is null`,
    [deploymentIds],
  )
  return rows.map(({ deploymentId, serviceId }) => partKey(deploymentId, serviceId))
}

export const createPartSignals = (): PartSignals => {
  const running = new Map<string, AbortController>()
  const end = (key: string): void => running.get(key)?.abort(new Canceled())
  return {
    end,
    async during(database, { deploymentId, serviceId }, whole, work) {
      const key = partKey(deploymentId, serviceId)
      const control = new AbortController()
      running.set(key, control)
      try {
        for (const each of await readEnded(database, [deploymentId])) end(each)
        return await work(AbortSignal.any([whole, control.signal]))
      } finally {
        if (running.get(key) === control) running.delete(key)
      }
    },
    async endRequested(database, deploymentIds) {
      for (const key of await readEnded(database, deploymentIds)) end(key)
    },
  }
}
