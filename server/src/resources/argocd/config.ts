/**
 * The Argo CD that runs in a cluster: its address and a token for it. Promises that the token is sealed and shown only
 * as REDACTED, that it is never sent to a host other than the one it was given for, and that the state of a connection
 * was found by connecting.
 */
import Type from 'typebox'
import { type Context, type Operation, operation, reading, removing } from '../../api/operations/operation.ts'
import { auditOf, placeOf, type Spec } from '../../api/operations/resource.ts'
import { Maybe, Nullable, OneOf, Secret, Text, Timestamp, Uuid, Whole } from '../../api/operations/schema.ts'
import { ApiError, conflict, invalidField } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { OutboundRefused } from '../../lib/net/outbound.ts'
import { type Queryable, sqlState } from '../../store/database.ts'
import { timestampSql, writeAudit } from '../../store/tree.ts'
import { clusterInPath } from '../cluster/rows.ts'
import { askArgo, type Findings } from './server.ts'

const kind = 'argocd_config'
const column = 'argocd_token'
const redacted = 'REDACTED'
const path = '/cluster/{clusterId}/argoCdConfig'

const Request = Type.Object({
  argocd_url: Text(1024, { minLength: 1 }),
  argocd_token: { ...Secret(8192), pattern: '^[\\u0021-\\u007e]+$' },
})

type Request = Type.Static<typeof Request>

const Config = Type.Object({
  id: Uuid(),
  cluster_id: Uuid(),
  argocd_url: Text(1024),
  argocd_token: OneOf([redacted]),
  last_checked_at: Nullable(Timestamp()),
  created_at: Timestamp(),
  updated_at: Timestamp(),
})

const CheckResult = Type.Object({
  status: OneOf(['connected', 'error']),
  app_count: Maybe(Whole(0)),
  reason: Maybe(OneOf(['authentication_failed', 'unreachable', 'insufficient_permissions'])),
})

interface Kept {
  id: string
  url: string
  sealed: string
}

const record = `select n.id, n.parent_id as cluster_id, n.spec ->> 'argocd_url' as argocd_url,
    '${redacted}' as argocd_token, n.spec ->> 'last_checked_at' as last_checked_at,
    ${timestampSql('n.created_at')} as created_at, ${timestampSql('n.updated_at')} as updated_at
  from node n where n.parent_id = $1 and n.kind = '${kind}'`

const none = (): ApiError => new ApiError(404, 'no_argocd', 'This cluster has no Argo CD configuration.')

const readRecord = async (db: Queryable, clusterId: string) => {
  const [row] = await db.query<Type.Static<typeof Config>>(record, [clusterId])
  if (row === undefined) throw none()
  return row
}

const keptOf = async ({ db, node }: Context): Promise<Kept | null> => {
  const [row] = await db.query<Kept>(
    `select id, spec ->> 'argocd_url' as url, sealed ->> '${column}' as sealed from node
     where parent_id = $1 and kind = '${kind}'`,
    [node.id],
  )
  return row ?? null
}

const addressOf = ({ parts }: Context, text: string): string => {
  try {
    const url = parts.outbound.checkSyntax(text)
    return `${url.origin}${url.pathname}`.replace(/\/+$/, '')
  } catch (error) {
    if (error instanceof OutboundRefused) throw invalidField('/argocd_url', error.message)
    throw error
  }
}

const placeIn = (id: string) => ({ table: 'node', row: id, column })

/** The token of a request; REDACTED means the stored one, for the same host. */
const tokenOf = async (
  { parts, principal, body }: Context<Request>,
  address: string,
  kept: Kept | null,
): Promise<string> => {
  const sent = body.argocd_token
  if (sent !== redacted) return sent
  if (kept === null || new URL(kept.url).origin !== new URL(address).origin)
    throw invalidField('/argocd_token', 'is required: none is stored for this host')
  return (await parts.sealer.open(principal.organizationId, placeIn(kept.id), kept.sealed)).reveal()
}

const ask = async ({ parts }: Context, address: string, token: string): Promise<Findings> => {
  try {
    return await askArgo(parts.outbound, address, token)
  } catch (error) {
    if (error instanceof OutboundRefused) throw invalidField('/argocd_url', error.message)
    throw error
  }
}

const specOf = (context: Context, address: string, { status, destinations }: Findings): Spec => ({
  argocd_url: address,
  status,
  destinations,
  last_checked_at: context.parts.clock.now().toISOString(),
})

const insert = `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed, updated_by)
  values ($1, $5, '${kind}', $6, '${kind}', 'Argo CD', $2, $3, $4)`
const update = `update node set spec = $2, sealed = sealed || $3::jsonb, updated_by = $4, version = version + 1,
  updated_at = clock_timestamp() where id = $1 and kind = '${kind}' returning id`

const changed = () => conflict('changed_meanwhile', 'The configuration has changed in the meantime: read it again.')

/** One audited write of the configuration; `sealed` is the token if it changes. */
const write = (context: Context, kept: Kept | null, id: string, spec: Spec, sealed: Record<string, string>) =>
  context.transaction(async (tx) => {
    const { node, principal } = context
    const values = [id, spec, sealed, principal.tokenId]
    if (kept !== null) {
      if ((await tx.query(update, values)).length === 0) throw changed()
    } else
      await tx.query(insert, [...values, principal.organizationId, node.id]).catch((error: unknown) => {
        throw sqlState(error) === '23505' ? changed() : error
      })
    const target = { target: 'CLUSTER', subTarget: 'ARGOCD_CONFIGURATION' }
    const audit = auditOf(context, kept === null ? 'CREATE' : 'UPDATE', target, placeOf(node), spec)
    await writeAudit(tx, principal.organizationId, node, audit)
    return readRecord(tx, node.id)
  })

const save = async (context: Context<Request>) => {
  const address = addressOf(context, context.body.argocd_url)
  const kept = await keptOf(context)
  const token = await tokenOf(context, address, kept)
  const id = kept?.id ?? newId()
  const { sealer } = context.parts
  const sealed = await sealer.seal(context.principal.organizationId, placeIn(id), token)
  const findings = await ask(context, address, token)
  return write(context, kept, id, specOf(context, address, findings), { [column]: sealed })
}

/** Asks the Argo CD of the request; the result for the configured one is stored with it. */
const check = async (context: Context<Request>) => {
  const address = addressOf(context, context.body.argocd_url)
  const kept = await keptOf(context)
  const findings = await ask(context, address, await tokenOf(context, address, kept))
  if (kept?.url === address) await write(context, kept, kept.id, specOf(context, address, findings), {})
  const { status, reason, appCount } = findings
  return {
    status,
    ...(reason === undefined ? {} : { reason }),
    ...(appCount === undefined ? {} : { app_count: appCount }),
  }
}

const remove = (context: Context) =>
  context.transaction(async (tx) => {
    const { node, principal } = context
    const rows = await tx.query(`delete from node where parent_id = $1 and kind = '${kind}' returning id`, [node.id])
    if (rows.length === 0) throw none()
    const target = { target: 'CLUSTER', subTarget: 'ARGOCD_CONFIGURATION' }
    await writeAudit(tx, principal.organizationId, node, auditOf(context, 'DELETE', target, placeOf(node), null))
  })

const common = { path, tag: 'ArgoCD', owner: clusterInPath }

export const argocdConfigOperations: Operation[] = [
  operation({
    ...common,
    id: 'getArgoCdCredentials',
    ...reading,
    summary: 'Read the Argo CD configuration of a cluster',
    area: 'clusters',
    cluster: 'VIEWER',
    answer: Config,
    run: ({ db, node }) => readRecord(db, node.id),
  }),
  operation({
    ...common,
    id: 'saveArgoCdCredentials',
    method: 'POST',
    summary: 'Create or replace the Argo CD configuration of a cluster; the connection is tested',
    scope: 'Admin',
    area: 'clusters',
    cluster: 'ADMIN',
    body: Request,
    status: 200,
    answer: Config,
    run: save,
  }),
  operation({
    ...common,
    id: 'deleteArgoCdCredentials',
    ...removing,
    summary: 'Delete the Argo CD configuration of a cluster',
    area: 'clusters',
    cluster: 'ADMIN',
    run: remove,
  }),
  operation({
    ...common,
    id: 'checkArgoCdConnection',
    method: 'POST',
    path: `${path}/check`,
    summary: 'Test an address and a token of an Argo CD',
    scope: 'Write',
    area: 'clusters',
    cluster: 'ADMIN',
    body: Request,
    status: 200,
    answer: CheckResult,
    run: check,
  }),
]
