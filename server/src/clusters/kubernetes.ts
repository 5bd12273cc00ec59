/**
 * Clusters that are Kubernetes, with the kubeconfig of their credentials: which rows they are, and how services run
 * there.
 */
import { parseKubeconfig } from '../lib/kubernetes/kubeconfig.ts'
import { KubernetesError } from '../lib/kubernetes/kubernetes-errors.ts'
import type { Secret } from '../lib/secret.ts'
import type { ChartParts, Kubernetes, KubernetesFacts, OpenKubernetes } from '../runtimes/kubernetes/kubernetes.ts'
import type { IngressPlace } from '../runtimes/kubernetes/manifests/describe.ts'
import { capacityOf } from '../runtimes/kubernetes/nodes.ts'
import { describeActs } from '../runtimes/kubernetes/rights.ts'
import type { KubernetesRuntimeParts } from '../runtimes/kubernetes/runtime.ts'
import type { Runtime } from '../runtimes/runtime.ts'
import { namesKubernetesSql } from '../store/cluster-rows.ts'
import type { Queryable } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'

export interface KubernetesRow {
  clusterId: string
  organizationId: string
  /** Null for a cluster made by a module, which has its own kubeconfig. */
  credentialsId: string | null
  /** Changes whenever the credentials are written. */
  version: string
  sealed: Record<string, string>
  /** Id of the cluster at its registration; null if none was stored. */
  claimedId: string | null
  /** Version of Kubernetes, as last reported. */
  engineVersion: string | null
  /** How its hosts are published, if not as the operator of this server configured for all. */
  ingress: KeptIngress | null
  /** Storage class of new volumes; null: the cluster's default. */
  storageClass: string | null
}

/** The parts of this server that services on a cluster need. */
export type KubernetesServices = Pick<
  KubernetesRuntimeParts,
  'ownerId' | 'outbound' | 'registryLogins' | 'runAs' | 'ingress' | 'argoNamespace'
> &
  ChartParts

const storageClassSql = `nullif(c.spec #>> '{advanced_settings,storageclass.fast_ssd}', '')`
/** A change of the ingress or of the storage class needs a new connection. */
const placeMarkSql = `md5(concat(c.spec ->> 'ingress', ' ', ${storageClassSql}))`
const placeSql = `nullif(c.spec -> 'ingress', 'null') as ingress, ${storageClassSql} as "storageClass"`

const columns = `c.id as "clusterId", c.organization_id as "organizationId", k.id as "credentialsId",
  k.id || ' ' || k.version || ' ' || coalesce(u.engine_id, '') || ' ' || ${placeMarkSql} as version, k.sealed,
  u.engine_id as "claimedId", u.version as "engineVersion", ${placeSql}`

/** All clusters that are Kubernetes, or one of them. */
export const readKubernetesRows = (db: Queryable, clusterId: string | null = null): Promise<KubernetesRow[]> =>
  db.query<KubernetesRow>(
    `select ${columns} from node c join node k on ${namesKubernetesSql('c')}
       left join cluster_engine u on u.cluster_id = c.id
     where $1::uuid is null or c.id = $1
     union all select m.id, m.organization_id, null,
       m.id || ' ' || m.seals || ' ' || coalesce(u.engine_id, '') || ' ' || ${placeMarkSql},
       jsonb_build_object('kubeconfig', m.sealed), u.engine_id, u.version, ${placeSql}
     from managed_cluster m join node c on c.id = m.id left join cluster_engine u on u.cluster_id = m.id
     where m.sealed is not null and ($1::uuid is null or m.id = $1)
     order by "clusterId"`,
    [clusterId],
  )

/** Where the kubeconfig of a cluster made by a module is sealed. */
export const placeOfMade = (clusterId: string) => ({ table: 'managed_cluster', row: clusterId, column: 'sealed' })

/** The kubeconfig as it was written. */
export const openKubeconfig = (
  sealer: Sealer,
  {
    organizationId,
    credentialsId,
    clusterId,
    sealed,
  }: Pick<KubernetesRow, 'organizationId' | 'credentialsId' | 'sealed'> & { clusterId?: string },
): Promise<Secret> => {
  const place =
    credentialsId === null ? placeOfMade(clusterId!) : { table: 'node', row: credentialsId, column: 'kubeconfig' }
  return sealer.open(organizationId, place, sealed.kubeconfig!)
}

const prefix = 'kubernetes '

/** The id of a cluster in `cluster_engine`: never the id of a Docker engine. */
export const idOfKubernetes = (uid: string): string => prefix + uid

export const isKubernetesId = (id: string): boolean => id.startsWith(prefix)

/** Throws when a login lacks rights. */
export const refuseMissing = ({ missing }: KubernetesFacts): void => {
  if (missing.length === 0) return
  const rights = describeActs(missing)
  throw new KubernetesError(403, `The login of the kubeconfig lacks these rights in the cluster: ${rights}.`)
}

/** As stored in a cluster's row. */
export interface KeptIngress {
  class_name?: string | null
  annotations?: Record<string, string> | null
  grpc_annotations?: Record<string, string> | null
  sticky_session_annotations?: Record<string, string> | null
  load_balancer_annotations?: Record<string, string> | null
  issuer?: string | null
  has_certificate?: boolean
  gateway?: { name: string; namespace: string; listener?: string | null; session_persistence?: boolean } | null
}

const placeOf = (kept: KeptIngress): IngressPlace => {
  const { gateway } = kept
  return {
    className: kept.class_name ?? undefined,
    annotations: kept.annotations ?? undefined,
    grpcAnnotations: kept.grpc_annotations ?? undefined,
    stickyAnnotations: kept.sticky_session_annotations ?? undefined,
    balancerAnnotations: kept.load_balancer_annotations ?? undefined,
    issuer: kept.issuer ?? undefined,
    hasCertificate: kept.has_certificate === true,
    ...(gateway == null
      ? {}
      : {
          gateway: {
            name: gateway.name,
            namespace: gateway.namespace,
            sectionName: gateway.listener ?? undefined,
            keepsClients: gateway.session_persistence === true,
          },
        }),
  }
}

/** Connects to one of them. Sends no request yet. */
export const connectKubernetes = async (
  row: KubernetesRow,
  kubeconfig: Secret,
  open: OpenKubernetes,
  services: KubernetesServices,
): Promise<{ kubernetes: Kubernetes; runtime: Runtime }> => {
  const kubernetes = await open(await parseKubeconfig(kubeconfig.reveal()))
  const ping = async (): Promise<void> => {
    const facts = await kubernetes.look()
    refuseMissing(facts)
    if (facts.uid !== null && idOfKubernetes(facts.uid) === row.claimedId) return
    throw new KubernetesError(403, 'Another cluster answers at this address than the one that was registered.')
  }
  const capacity = async () => capacityOf(await kubernetes.nodes())
  const common = { ping, capacity, close: kubernetes.close, version: row.engineVersion ?? '' }
  const ingress = row.ingress === null ? services.ingress : placeOf(row.ingress)
  const { storageClass } = row
  return { kubernetes, runtime: await kubernetes.runtime({ ...services, ingress, storageClass, ...common }) }
}
