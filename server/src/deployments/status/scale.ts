/** How many instances of the deployed version there are to be now. */
import type { Artifact, Workload } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import type { FrozenWorkload } from '../desired/workload.ts'

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

/** The desired number of instances and their scaling; a chart or an app counts as one. */
export const scaleOf = (of: Artifact | FrozenWorkload): Pick<Workload, 'instances' | 'scaling'> =>
  'instances' in of ? of : { instances: 1 }

/** With the present target number of instances. */
export const atScale = <Of extends Artifact | FrozenWorkload>(workload: Of, scale: number | null): Of =>
  scale === null || scaleOf(workload).scaling === undefined ? workload : { ...workload, instances: scale }
