/** What a request for a deployment needs of the engine's parts. */
import { readCapacity } from '../../clusters/capacity.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { buildRefusal } from '../../clusters/pushed-builder.ts'
import type { Kind } from '../../kinds.ts'
import { usualLimits } from '../../limits/limits.ts'
import type { Queryable } from '../../store/database.ts'
import { type DeploymentParts, kindOf } from '../parts.ts'
import { moduleRefusal, moduleStopRefusal } from '../tasks/modules.ts'
import { type Lacking, lackingOf } from './refusals.ts'
import type { RequestParts } from './request.ts'

/** What a cluster lacks, as it last said. */
export const readLacking = async (
  { volumeSizes = 'auto', databaseModules }: Pick<DeploymentParts, 'volumeSizes' | 'databaseModules'>,
  db: Queryable,
  { key, runtime }: Cluster,
): Promise<Lacking> => {
  const capacity = volumeSizes === 'auto' ? null : await readCapacity(db, key)
  const builds = await buildRefusal(db, key)
  return lackingOf(runtime.abilities, capacity?.limitsVolumes ?? null, volumeSizes, builds, (source) =>
    moduleRefusal(databaseModules, source),
  )
}

export const requestPartsOf = (parts: DeploymentParts): RequestParts => ({
  enqueue: parts.enqueue,
  limits: parts.limits ?? usualLimits,
  disk: parts.disk,
  missingTool: (name) => parts.builder.missingTool(name),
  lackingOf: async (tx, clusterId) => readLacking(parts, tx, await parts.clusters.of(clusterId, tx)),
  stopRefusal: (source) => moduleStopRefusal(parts.databaseModules, source),
  kindOf: (kind: Kind) => kindOf(parts, kind),
})
