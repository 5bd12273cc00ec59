/** The parts of the engine that a request for a deployment needs. */
import { readCapacity } from '../../clusters/capacity.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { buildRefusal } from '../../clusters/pushed-builder.ts'
import type { Kind } from '../../kinds.ts'
import { usualLimits } from '../../limits/limits.ts'
import type { AppSettings } from '../../runtimes/apps.ts'
import type { Queryable } from '../../store/database.ts'
import { moduleRefusal, moduleStopRefusal } from '../desired/modules.ts'
import { type DeploymentParts, kindOf } from '../parts.ts'
import { claimForDeploy, type PortRoom } from '../traffic/port-claims.ts'
import { type Lacking, lackingOf } from './refusals.ts'
import type { RequestParts } from './request.ts'

const noEngine =
  'A database in MANAGED mode is made by a tool that runs on the Docker engine of this server, and this server has none (SLIPWAY_DOCKER=off).'

/** The abilities that a cluster lacks, from its last answer. */
export const readLacking = async (
  {
    volumeSizes = 'auto',
    databaseModules,
    clusters,
  }: Pick<DeploymentParts, 'volumeSizes' | 'databaseModules' | 'clusters'>,
  db: Queryable,
  { key, runtime }: Cluster,
): Promise<Lacking> => {
  const capacity = volumeSizes === 'auto' ? null : await readCapacity(db, key)
  const builds = await buildRefusal(db, key)
  const modules = (source: Parameters<typeof moduleRefusal>[1]) =>
    clusters.own.isConnected ? moduleRefusal(databaseModules, source) : noEngine
  const app = async (settings: AppSettings) => (await runtime.appRefusal?.(settings)) ?? null
  return lackingOf(runtime.abilities, capacity?.limitsVolumes ?? null, volumeSizes, builds, modules, app)
}

const usualPortRoom = { range: { first: 30_000, last: 32_767 }, own: [] }

export const portRoomOf = ({ ports = usualPortRoom, limits = usualLimits }: DeploymentParts): PortRoom => ({
  ...ports,
  limits,
})

export const requestPartsOf = (parts: DeploymentParts): RequestParts => ({
  enqueue: parts.enqueue,
  limits: parts.limits ?? usualLimits,
  disk: parts.disk,
  claimPorts: (tx, organizationId, services) => claimForDeploy(tx, portRoomOf(parts), organizationId, services),
  missingTool: (name) => parts.builder.missingTool(name),
  lackingOf: async (tx, clusterId) => readLacking(parts, tx, await parts.clusters.of(clusterId, tx)),
  stopRefusal: (source) => moduleStopRefusal(parts.databaseModules, source),
  kindOf: (kind: Kind) => kindOf(parts, kind),
})
