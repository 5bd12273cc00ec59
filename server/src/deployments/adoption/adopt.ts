/** Takes orphans back into the database, so that they are services again: from their records. */
import type { Cluster } from '../../clusters/clusters.ts'
import type { DeploymentParts } from '../parts.ts'
import type { Orphan } from '../reconcile/orphans.ts'
import { adoptServices, type FoundService } from './adopt-services.ts'

export interface Adoption {
  /** Ids of the orphans that are in the database now. */
  adopted: string[]
  left: { id: string; reason: string }[]
}

export type AdoptionParts = Pick<DeploymentParts, 'database' | 'sealer' | 'log'>

const noOrganization = 'Its labels name no organization.'
const emptyEnvironment = 'No service that could be adopted is in it.'

const find = async (cluster: Cluster, orphans: readonly Orphan[]): Promise<FoundService[]> => {
  const keys = orphans.map(({ id, environmentId }) => ({ serviceId: id, environmentId }))
  const records = keys.length === 0 ? new Map<string, string[]>() : await cluster.runtime.records(keys)
  return orphans.map(({ id, environmentId, organizationId, found }) => ({
    organizationId: organizationId ?? '',
    environmentId,
    serviceId: id,
    records: records.get(id) ?? [],
    // A stop leaves none, so a service whose instance has just died or only begins should run.
    running: found.instances.filter(({ state }) => state !== 'created' && state !== 'missing').length,
  }))
}

/** Writes the rows of these orphans again, as their records have them. An environment is adopted with its services. */
export const adopt = async (parts: AdoptionParts, cluster: Cluster, orphans: readonly Orphan[]): Promise<Adoption> => {
  const services = orphans.filter(({ kind }) => kind !== 'ENVIRONMENT')
  const nameless = services.filter(({ organizationId }) => organizationId === null)
  const result = await adoptServices(
    parts,
    cluster.key,
    await find(
      cluster,
      services.filter(({ organizationId }) => organizationId !== null),
    ),
  )
  const adopted = new Set(result.adopted)
  const places = new Set(services.flatMap(({ id, environmentId }) => (adopted.has(id) ? environmentId : [])))
  const environments = orphans.filter(({ kind }) => kind === 'ENVIRONMENT')
  return {
    adopted: [...adopted, ...environments.flatMap(({ id }) => (places.has(id) ? id : []))],
    left: [
      ...result.left.map(({ serviceId, reason }) => ({ id: serviceId, reason })),
      ...nameless.map(({ id }) => ({ id, reason: noOrganization })),
      ...environments.flatMap(({ id }) => (places.has(id) ? [] : { id, reason: emptyEnvironment })),
    ],
  }
}
