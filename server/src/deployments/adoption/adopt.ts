/** Taking orphans back into the database, so that they are services again. */
import type { Cluster } from '../../clusters/clusters.ts'
import type { DeploymentParts } from '../parts.ts'
import type { Orphan } from '../reconcile/orphans.ts'

export interface Adoption {
  /** Ids of the orphans that are in the database now. */
  adopted: string[]
  left: { id: string; reason: string }[]
}

export type AdoptionParts = Pick<DeploymentParts, 'database' | 'log'>

const noRecord =
  'What runs carries no record of its configuration from which it could be restored: it stays listed, and goes on running.'

/** Writes the rows of these orphans again, as far as what runs tells of them. */
export const adopt = async (
  _parts: AdoptionParts,
  _cluster: Cluster,
  orphans: readonly Orphan[],
): Promise<Adoption> => ({ adopted: [], left: orphans.map(({ id }) => ({ id, reason: noRecord })) })
