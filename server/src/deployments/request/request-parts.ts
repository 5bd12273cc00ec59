/** What a request for a deployment needs of the engine's parts. */
import type { Kind } from '../../kinds.ts'
import { usualLimits } from '../../limits/limits.ts'
import type { Queryable } from '../../store/database.ts'
import { type DeploymentParts, kindOf } from '../parts.ts'
import type { RequestParts } from './request.ts'

export const requestPartsOf = (parts: DeploymentParts): RequestParts => ({
  enqueue: parts.enqueue,
  limits: parts.limits ?? usualLimits,
  disk: parts.disk,
  missingTool: (name) => parts.builder.missingTool(name),
  abilitiesOf: async (tx: Queryable, clusterId: string) => (await parts.clusters.of(clusterId, tx)).runtime.abilities,
  kindOf: (kind: Kind) => kindOf(parts, kind),
})
