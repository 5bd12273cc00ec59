/** Checks the sizes of a service's volumes before anything of a new version is created. */
import { DeploymentError } from '../../lib/errors.ts'
import type { Workload } from '../../runtimes/runtime.ts'
import { changedSize, sizeNotes, sizeRefusal } from '../desired/volume-sizes.ts'
import type { ServiceRun } from '../progress/service-run.ts'

const deadlineMs = 60_000

/**
 * Fails if the operator requires limits that the engine does not have, and, except for a rollback, for a volume whose
 * size was changed to one that it cannot get. Logs which sizes are not enforced.
 */
export const checkVolumes = async (
  { parts, cluster, step, log }: ServiceRun,
  { volumes }: Pick<Workload, 'volumes'>,
  { isOlder = false } = {},
): Promise<void> => {
  if (volumes.length === 0) return
  const ids = volumes.map(({ id }) => id)
  const [made, { limitsVolumes }] = await step('volumes', { deadlineMs, remember: false }, () =>
    Promise.all([cluster.runtime.volumeSizes(ids), cluster.runtime.capacity()]),
  )
  const refusal = sizeRefusal(parts.volumeSizes ?? 'auto', limitsVolumes, volumes)
  if (refusal !== null) throw new DeploymentError('volume_sizes_unlimited', refusal)
  const { growsVolumes } = cluster.runtime
  const changed = isOlder ? null : changedSize(volumes, made, growsVolumes)
  if (changed !== null) throw new DeploymentError('volume_size_fixed', changed)
  for (const note of sizeNotes(volumes, made, limitsVolumes, growsVolumes)) log.line('volumes', note)
}
