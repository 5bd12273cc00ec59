/** How many instances of the deployed version there are to be now. */
import type { Workload } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'

/** How many instances there are to be of the version that runs; null: as many as its release says. */
export const readScale = async (
  db: Queryable,
  serviceId: string,
): Promise<{ scale: number | null; releaseId: string | null }> => {
  const [row] = await db.query<{ scale: number | null; releaseId: string | null }>(
    'select scale, current_release_id as "releaseId" from service_state where service_id = $1',
    [serviceId],
  )
  return row ?? { scale: null, releaseId: null }
}

/** With as many instances as there are to be now. */
export const atScale = <Of extends Pick<Workload, 'instances' | 'scaling'>>(workload: Of, scale: number | null): Of =>
  scale === null || workload.scaling === undefined ? workload : { ...workload, instances: scale }
