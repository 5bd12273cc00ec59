/**
 * A cluster's credentials and region at its provider. Promises that credentials are of the same organization and of a
 * matching kind, that only an Admin sets them, and that a cloud cluster always has some.
 */
import { type Context, type Operation, operation, type Principal, reading } from '../../api/operations/operation.ts'
import { auditOf, type Spec } from '../../api/operations/resource.ts'
import { badRequest, forbidden, invalidField, notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { lockNode, writeAudit } from '../../store/tree.ts'
import { prepareEngine } from './engine.ts'
import { clusterInOrganization } from './rows.ts'
import { ProviderInfo } from './schema.ts'

interface Info {
  cloud_provider?: string
  credentials?: { id?: string; name?: string }
  region?: string
}

/** Kinds of credentials that match a provider; providers without their own take a name as placeholder. */
const kindsOf = (vendor: string): string[] =>
  ({
    AWS: ['aws_credentials'],
    SCW: ['scaleway_credentials'],
    GCP: ['gcp_credentials'],
    AZURE: ['azure_credentials'],
    ON_PREMISE: ['onpremise_credentials', 'aws_credentials'],
  })[vendor] ?? ['onpremise_credentials']

const at = '/cloud_provider_credentials/credentials/id'

const findCredentials = async (db: Queryable, organizationId: string, vendor: string, id: string, field: string) => {
  const rows = isUuid(id)
    ? await db.query<{ name: string }>(
        'select name from node where id = $1 and organization_id = $2 and kind = any($3)',
        [id, organizationId, kindsOf(vendor)],
      )
    : []
  if (rows[0] === undefined)
    throw invalidField(field, `not found: this organization has no such credentials for ${vendor}`)
  return { id: id.toLowerCase(), name: rows[0].name }
}

const isSame = (one: Info | undefined, other: Info | undefined): boolean =>
  one?.credentials?.id?.toLowerCase() === other?.credentials?.id?.toLowerCase() && one?.region === other?.region

const needsCredentials = ({ cloud_provider: vendor, kubernetes }: Spec): boolean =>
  vendor !== 'ON_PREMISE' || kubernetes === 'MANAGED'

const refuseWithout = ({ cloud_provider: vendor }: Spec): never => {
  if (vendor === 'ON_PREMISE')
    throw badRequest(
      'An ON_PREMISE cluster needs `kubernetes` SELF_MANAGED, or credentials of the provider that manages it.',
    )
  throw badRequest(
    'A cloud cluster needs credentials of its provider: create them first, then name them in `cloud_provider_credentials`.',
  )
}

/** The provider info of a cluster, ready to be written; throws an `ApiError`. `previous` is null for a create. */
export const completeInfo = async (
  db: Queryable,
  principal: Principal,
  spec: Spec,
  previous: Spec | null,
): Promise<Info | undefined> => {
  const [sent, before] = [spec.cloud_provider_credentials, previous?.cloud_provider_credentials] as (Info | undefined)[]
  const { id } = sent?.credentials ?? {}
  // The local cluster needs none; rows of older versions stay unchanged.
  if (id === undefined && previous === null && needsCredentials(spec)) refuseWithout(spec)
  if (sent === undefined || (previous !== null && isSame(sent, before))) return before ?? sent
  if (!principal.scopes.has('Admin')) throw forbidden('Cluster credentials require a token with the scope Admin.')
  if (id === undefined && needsCredentials(spec)) refuseWithout(spec)
  const vendor = String(spec.cloud_provider)
  if (sent.cloud_provider !== undefined && sent.cloud_provider !== vendor)
    throw invalidField('/cloud_provider_credentials/cloud_provider', `must be ${vendor}, the provider of the cluster`)
  const found =
    id === undefined ? {} : { credentials: await findCredentials(db, principal.organizationId, vendor, id, at) }
  return { cloud_provider: vendor, ...found, region: sent.region ?? String(spec.region) }
}

/** SQL for the info of a cluster `n` with the current name of its credentials; null without any. */
export const infoSql = `(select case when c.id is null then n.spec -> 'cloud_provider_credentials' else
    (n.spec -> 'cloud_provider_credentials') || jsonb_build_object('credentials',
      jsonb_build_object('id', c.id, 'name', c.name)) end
  from (select 1) one left join node c
    on c.id = (n.spec #>> '{cloud_provider_credentials,credentials,id}')::uuid)`

// The ones that the public API lists for this record.
const listed = ['AWS', 'SCW', 'GCP', 'ON_PREMISE', 'AZURE']

const viewInfo = ({ info, spec }: { info: Info | null; spec: Spec }) => {
  const vendor = String(spec.cloud_provider)
  return {
    ...(listed.includes(vendor) ? { cloud_provider: vendor } : {}),
    ...(info?.credentials === undefined ? {} : { credentials: info.credentials }),
    region: info?.region ?? String(spec.region),
  }
}

const readInfo = async (db: Queryable, clusterId: string) => {
  const [row] = await db.query<{ info: Info | null; spec: Spec }>(
    `select ${infoSql} as info, n.spec from node n where n.id = $1`,
    [clusterId],
  )
  if (row === undefined) throw notFound()
  return viewInfo(row)
}

const path = '/organization/{organizationId}/cluster/{clusterId}/cloudProviderInfo'

const update = `update node set spec = jsonb_set(spec, '{cloud_provider_credentials}', $2::jsonb), updated_by = $3,
  version = version + 1, updated_at = clock_timestamp() where id = $1`

const specify = async (context: Context) => {
  const { node, principal } = context
  const [kept] = await context.db.query<{ id: string; spec: Spec }>('select id, spec from node where id = $1', [
    node.id,
  ])
  if (kept === undefined) throw notFound()
  const sent = { ...kept.spec, cloud_provider_credentials: context.body }
  const engine = await prepareEngine(context, sent, kept)
  return context.transaction(async (tx) => {
    const before = await lockNode(tx, node.id)
    if (before === null) throw notFound()
    const spec = { ...before.spec, cloud_provider_credentials: context.body }
    const info = await completeInfo(tx, principal, spec, before.spec)
    await tx.query(update, [node.id, JSON.stringify(info), principal.tokenId])
    await engine?.claim(tx, node.id)
    const target = { target: 'CLUSTER', subTarget: 'CLUSTER_CREDENTIALS' }
    const nowhere = { projectId: null, environmentId: null }
    await writeAudit(tx, principal.organizationId, node, auditOf(context, 'UPDATE', target, nowhere, info))
    return readInfo(tx, node.id)
  })
}

export const clusterProviderOperations: Operation[] = [
  operation({
    id: 'getOrganizationCloudProviderInfo',
    ...reading,
    path,
    tag: 'Clusters',
    summary: 'Read the provider credentials and region of a cluster',
    area: 'clusters',
    cluster: 'VIEWER',
    owner: clusterInOrganization,
    answer: ProviderInfo,
    run: ({ db, node }) => readInfo(db, node.id),
  }),
  operation({
    id: 'specifyClusterCloudProviderInfo',
    method: 'POST',
    path,
    tag: 'Clusters',
    summary: 'Set the provider credentials and region of a cluster',
    scope: 'Admin',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    body: ProviderInfo,
    status: 201,
    answer: ProviderInfo,
    run: specify,
  }),
]
