import type { Spec } from '../api/resource.ts'
import type { Queryable } from '../store/database.ts'
import { runsHere } from './cluster-rows.ts'

/** Why nothing can be deployed to the cluster of an environment; null when it can. */
export const clusterRefusal = async (tx: Queryable, environmentId: string): Promise<string | null> => {
  const [row] = await tx.query<{ spec: Spec }>(
    `select c.spec from node e join node c on c.id = (e.spec ->> 'cluster_id')::uuid and c.kind = 'cluster'
     where e.id = $1`,
    [environmentId],
  )
  if (row === undefined || runsHere(row.spec)) return null
  return 'The cluster of this environment is one that this server cannot deploy to: it runs services on the Docker engine of its own machine. Clone the environment to the default cluster to deploy it.'
}
