/** The parts of the engine that a request for a deployment needs. */
import { readCapacity } from '../../clusters/capacity.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { buildRefusal } from '../../clusters/pushed-builder.ts'
import type { Kind } from '../../kinds.ts'
import { usualLimits } from '../../limits/limits.ts'
import type { Queryable } from '../../store/database.ts'
import type { Place } from '../artifacts/driver.ts'
import { driverOf } from '../artifacts/drivers.ts'
import type { Source } from '../deployments.ts'
import { moduleRefusal } from '../desired/modules.ts'
import { type DeploymentParts, kindOf } from '../parts.ts'
import { claimForDeploy, type PortRoom } from '../traffic/port-claims.ts'
import type { RequestParts } from './request.ts'

const noEngine =
  'A database in MANAGED mode is made by a tool that runs on the Docker engine of this server, and this server has none (SLIPWAY_DOCKER=off).'

/** A cluster as it last said it is. */
export const readPlace = async (
  parts: Pick<DeploymentParts, 'volumeSizes' | 'databaseModules' | 'clusters' | 'builder'>,
  db: Queryable,
  { key, runtime }: Cluster,
): Promise<Place> => {
  const { volumeSizes: sizes = 'auto', databaseModules, clusters, builder } = parts
  const capacity = sizes === 'auto' ? null : await readCapacity(db, key)
  return {
    ...{ abilities: runtime.abilities, limits: capacity?.limitsVolumes ?? null, sizes },
    builds: await buildRefusal(db, key),
    missingTool: (name) => builder.missingTool(name),
    module: (source) => (clusters.own.isConnected ? moduleRefusal(databaseModules, source) : noEngine),
    app: async (settings) => (await runtime.appRefusal?.(settings)) ?? null,
  }
}

/** Why what is made from this cannot be stopped; null when it can. */
export const stopRefusal = ({ databaseModules }: Pick<DeploymentParts, 'databaseModules'>, source: Source) =>
  driverOf(source).stopRefusal?.(databaseModules, source) ?? null

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
  placeOf: async (tx, clusterId) => readPlace(parts, tx, await parts.clusters.of(clusterId, tx)),
  stopRefusal: (source) => stopRefusal(parts, source),
  kindOf: (kind: Kind) => kindOf(parts, kind),
})
