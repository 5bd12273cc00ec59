/** How many instances of the deployed version there are to be now. */
import type { Workload } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'

/** How many instances of the running version there should be; null: the number in its release. */
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

/** With the present target number of instances. */
export const atScale = <Of extends Pick<Workload, 'instances' | 'scaling'>>(workload: Of, scale: number | null): Of =>
  scale === null || workload.scaling === undefined ? workload : { ...workload, instances: scale }
