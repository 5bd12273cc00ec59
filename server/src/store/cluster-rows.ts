/** SQL about rows of clusters. `row` is the alias of a row of `node`. */

/** Whether it is the engine of this machine. */
export const isLocalSql = (row: string): string => `coalesce((${row}.spec ->> 'is_default')::boolean, false)`

/** Whether `k` are the credentials of a cluster's row that may be a machine or cluster of the organization. */
export const namesSql = (row: string): string => `${row}.kind = 'cluster' and not ${isLocalSql(row)}
  and ${row}.spec ->> 'cloud_provider' = 'ON_PREMISE' and ${row}.spec ->> 'kubernetes' = 'SELF_MANAGED'
  and k.id = (${row}.spec #>> '{cloud_provider_credentials,credentials,id}')::uuid
  and k.kind = 'onpremise_credentials' and k.organization_id = ${row}.organization_id`

/** Whether `k` are the credentials of a cluster's row, and have the kubeconfig of the cluster that it is. */
export const namesKubernetesSql = (row: string): string => `${namesSql(row)} and k.sealed ? 'kubeconfig'`

/** Whether a cluster's row is a Kubernetes cluster that credentials name, or that a module has made. */
export const isKubernetesSql = (row: string): string => `(exists (select from node k where ${namesKubernetesSql(row)})
  or exists (select from managed_cluster u where u.id = ${row}.id and u.sealed is not null))`

/**
 * Whether our router serves the hosts of the service with this id: false on a Kubernetes cluster. Returns one value,
 * because the planner answers an `exists` by reading all services.
 */
export const isRoutedSql = (serviceId: string): string => `coalesce((select not ${isKubernetesSql('place')}
  from service_state placed join node place on place.id = placed.cluster_id where placed.service_id = ${serviceId}), true)`
