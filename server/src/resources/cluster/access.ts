/**
 * How a cluster is reached and what is installed in it: its kubeconfig, which is sealed and shown only to an Admin,
 * and the values for Helm charts that follow from its parameters, with the manifest of the objects that this server
 * needs there.
 */
import Type from 'typebox'
import { type Context, type Fields, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { auditOf, placeOf, type Spec } from '../../api/operations/resource.ts'
import { Flag, Maybe } from '../../api/operations/schema.ts'
import { openKubeconfig, readKubernetesRows } from '../../clusters/kubernetes.ts'
import { ApiError, badRequest, notFound } from '../../lib/errors.ts'
import type { Secret } from '../../lib/secret.ts'
import { accessManifest } from '../../runtimes/kubernetes/rights.ts'
import { writeAudit } from '../../store/tree.ts'
import { clusterInOrganization, engineOf, isDocker, readCluster } from './rows.ts'

/** Plain values as block YAML. Text is always quoted as in JSON, which YAML reads the same way. */
const isEmpty = (value: unknown): boolean =>
  typeof value !== 'object' || value === null || Object.keys(value).length === 0

const lines = (value: unknown, indent: string): string[] => {
  if (Array.isArray(value)) return value.flatMap((item) => block(`${indent}-`, item, indent))
  return Object.entries(value as object).flatMap(([name, inner]) => block(`${indent}${keyOf(name)}:`, inner, indent))
}

const keyOf = (name: string): string => (/^[A-Za-z][\w-]*$/.test(name) ? name : JSON.stringify(name))

const block = (head: string, value: unknown, indent: string): string[] =>
  isEmpty(value) ? [`${head} ${JSON.stringify(value)}`] : [head, ...lines(value, `${indent}  `)]

const toYaml = (value: object): string => `${lines(value, '').join('\n')}\n`

const path = '/organization/{organizationId}/cluster/{clusterId}'
const column = 'kubeconfig'
const placeIn = (clusterId: string) => ({ table: 'node', row: clusterId, column })

const noKubeconfig = (): ApiError =>
  new ApiError(404, 'no_kubeconfig', 'This cluster has no kubeconfig: none was set, or the cluster is a Docker engine.')

const auditTarget = { target: 'CLUSTER', subTarget: 'KUBERNETES_CREDENTIALS' }

const KubeconfigQuery = Type.Object({
  with_token_from_cli: Maybe(Flag({ description: 'Refused if true: the kubeconfig is answered as it was set.' })),
  read_only: Maybe(Flag({ description: 'Refused if true: the kubeconfig has the rights that it was set with.' })),
})

type KubeconfigContext = Context<Fields, Type.Static<typeof KubeconfigQuery>>

/** The kubeconfig of the credentials that make it a connected Kubernetes cluster; null without. */
const registeredIn = async ({ db, node, parts }: KubeconfigContext): Promise<Secret | null> => {
  const [row] = await readKubernetesRows(db, node.id)
  return row === undefined ? null : openKubeconfig(parts.sealer, row)
}

const recordedIn = async ({ db, node, parts, principal }: KubeconfigContext): Promise<Secret> => {
  const [row] = await db.query<{ sealed: string | null }>(
    `select sealed ->> '${column}' as sealed from node where id = $1`,
    [node.id],
  )
  if (row === undefined) throw notFound()
  if (row.sealed === null) throw noKubeconfig()
  return parts.sealer.open(principal.organizationId, placeIn(node.id), row.sealed)
}

const readKubeconfig = async (context: KubeconfigContext): Promise<string> => {
  const { db, node, principal, query } = context
  if (query.read_only === true)
    throw badRequest(
      'Read-only kubeconfigs are not supported: this server returns the kubeconfig as you set it, with its rights.',
    )
  if (query.with_token_from_cli === true)
    throw badRequest('CLI tokens are not supported: this server returns the kubeconfig as you set it.')
  const text = (await registeredIn(context)) ?? (await recordedIn(context))
  const audit = auditOf(context, 'UPDATE', auditTarget, placeOf(node), null)
  await writeAudit(db, principal.organizationId, node, { ...audit, eventType: 'EXPORT' })
  return text.reveal()
}

const maxLength = 262_144

const checkKubeconfig = (text: string): void => {
  if (text.length > maxLength) throw badRequest(`The kubeconfig must have at most ${maxLength} characters.`)
  const missing = ['apiVersion', 'clusters', 'users'].find(
    (word) => !new RegExp(`(^|[\\s{,])"?${word}"?\\s*:`).test(text),
  )
  if (missing !== undefined) throw badRequest(`The body is not a kubeconfig: ${missing} is missing.`)
}

const update = `update node set sealed = sealed || jsonb_build_object('${column}', $2::text), updated_by = $3,
  version = version + 1, updated_at = clock_timestamp() where id = $1 returning id`

const replaceKubeconfig = async (context: Context): Promise<void> => {
  const { node, parts, principal } = context
  const text = String(context.body.text)
  const engine = await engineOf(context, context.db)
  if (engine === 'docker') throw badRequest('This cluster is a Docker engine, which has no kubeconfig.')
  if (engine === 'kubernetes')
    throw badRequest('This cluster is reached by the kubeconfig of its credentials or its module: change it there.')
  checkKubeconfig(text)
  const sealed = await parts.sealer.seal(principal.organizationId, placeIn(node.id), text)
  await context.transaction(async (tx) => {
    const rows = await tx.query(update, [node.id, sealed, principal.tokenId])
    if (rows.length === 0) throw notFound()
    await writeAudit(tx, principal.organizationId, node, auditOf(context, 'UPDATE', auditTarget, placeOf(node), null))
  })
}

const without = (fields: Spec): Spec =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))

const nginxValues = (nginx: Spec): Spec => ({
  controller: without({
    replicaCount: nginx.replica_count,
    extraArgs: without({
      'default-ssl-certificate': nginx.default_ssl_certificate,
      'publish-status-address': nginx.publish_status_address,
    }),
    service: {
      annotations: without({
        'metallb.universe.tf/loadBalancerIPs': nginx.annotation_metal_lb_load_balancer_ips,
        'external-dns.alpha.kubernetes.io/target': nginx.annotation_external_dns_kubernetes_target,
      }),
    },
  }),
})

/** The chart values that follow from a cluster's parameters, and the cluster's identity. */
const helmValues = async (context: Context): Promise<string> => {
  const spec = await readCluster(context, context.db)
  if (await isDocker(context, context.db))
    throw badRequest('This cluster is a Docker engine: nothing can be installed in it with Helm.')
  const charts = (spec.infrastructure_charts_parameters ?? {}) as Record<string, Spec | undefined>
  const { nginx_parameters: nginx, cert_manager_parameters: certificates, metal_lb_parameters: balancer } = charts
  return toYaml({
    global: {
      clusterId: context.node.id,
      organizationId: context.principal.organizationId,
      cloudProvider: spec.cloud_provider,
      region: spec.region,
    },
    ...(nginx === undefined ? {} : { 'ingress-nginx': nginxValues(nginx) }),
    ...(certificates === undefined
      ? {}
      : { 'cert-manager': without({ namespace: certificates.kubernetes_namespace }) }),
    ...(balancer === undefined ? {} : { metallb: without({ ipAddressPools: balancer.ip_address_pools }) }),
    ...(spec.cloud_provider === 'ON_PREMISE' && spec.kubernetes === 'SELF_MANAGED'
      ? { kubernetesAccess: accessManifest }
      : {}),
  })
}

export const clusterAccessOperations: Operation[] = [
  operation({
    id: 'getClusterKubeconfig',
    method: 'GET',
    path: `${path}/kubeconfig`,
    tag: 'Clusters',
    summary: 'Read the kubeconfig of a cluster; every read is recorded in the audit log',
    scope: 'Admin',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    query: KubeconfigQuery,
    status: 200,
    produces: 'application/x-yaml',
    run: readKubeconfig,
  }),
  operation({
    id: 'editClusterKubeconfig',
    method: 'PUT',
    path: `${path}/kubeconfig`,
    tag: 'Clusters',
    summary: 'Set the kubeconfig of a cluster',
    scope: 'Admin',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    consumes: 'application/x-yaml',
    status: 204,
    run: replaceKubeconfig,
  }),
  operation({
    id: 'getInstallationHelmValues',
    ...reading,
    path: `${path}/installationHelmValues`,
    tag: 'Clusters',
    summary:
      'Read the parameters of a cluster as values for Helm charts; of one of your own also, as `kubernetesAccess`, the manifest of the rights that this server needs there',
    area: 'clusters',
    cluster: 'VIEWER',
    owner: clusterInOrganization,
    produces: 'application/x-yaml',
    run: helmValues,
  }),
]
