/**
 * A cluster's accesses to secret managers: rows below the cluster, written together with it. Promises that a secret is
 * sealed for its row before the transaction begins, is never answered, and is kept if an edit leaves it out.
 */
import Type, { type TObject } from 'typebox'
import type { Context } from '../../api/operations/operation.ts'
import type { Answered, Spec, Write } from '../../api/operations/resource.ts'
import {
  List,
  Maybe,
  Name,
  Nullable,
  OneOf,
  Recorded,
  RecordedValues,
  Secret,
  Text,
  Timestamp,
  Uuid,
} from '../../api/operations/schema.ts'
import { conflict, forbidden, invalidField } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { type Queryable, sqlState } from '../../store/database.ts'
import { timestampSql } from '../../store/tree.ts'
import { FormsOf, readFormBy } from '../forms.ts'
import { refuseUsedAccesses } from './users.ts'

const kind = 'secret_manager_access'
const field = '/secret_manager_accesses'

const Needed = (maxLength = 255) => Text(maxLength, { minLength: 1 })

const endpoints: Record<string, TObject> = {
  AWS_SECRET_MANAGER: Type.Object({ region: Needed() }),
  AWS_PARAMETER_STORE: Type.Object({ region: Needed() }),
  GCP_SECRET_MANAGER: Type.Object({ region: Needed(), project_id: Needed() }),
}

/** The same sentence as in deployments (variables/external/managers.ts). */
const needsCluster =
  'it is a role of a cluster at the cloud provider, which this server does not have: a deployment that needs it fails and says so.'

const authentications: Record<string, TObject> = {
  AUTOMATICALLY_CONFIGURED: Type.Object({}),
  AWS_ROLE_ARN: Type.Object({ role_arn: Recorded(Needed(2048), needsCluster) }),
  AWS_STATIC_CREDENTIALS: Type.Object({
    region: Recorded(Needed(), 'requests are signed for the region of the endpoint.'),
    access_key: Needed(),
    secret_key: Maybe(Nullable(Secret(4096))),
  }),
  GCP_JSON_CREDENTIALS: Type.Object({ json_credentials: Maybe(Nullable(Secret(65_536))) }),
}

/** Which kinds of managers know which credentials. */
const fitting: Record<string, readonly string[]> = {
  AWS_STATIC_CREDENTIALS: ['AWS_SECRET_MANAGER', 'AWS_PARAMETER_STORE'],
  AWS_ROLE_ARN: ['AWS_SECRET_MANAGER', 'AWS_PARAMETER_STORE'],
  GCP_JSON_CREDENTIALS: ['GCP_SECRET_MANAGER'],
}

const authenticationWords = () =>
  RecordedValues(OneOf(Object.keys(authentications)), ['AUTOMATICALLY_CONFIGURED', 'AWS_ROLE_ARN'], needsCluster)

const shownAuthentications: Record<string, TObject> = {
  AUTOMATICALLY_CONFIGURED: Type.Object({}),
  AWS_ROLE_ARN: Type.Object({ role_arn: Text(2048) }),
  AWS_STATIC_CREDENTIALS: Type.Object({ region: Text(), access_key: Text() }),
  GCP_JSON_CREDENTIALS: Type.Object({}),
}

export const AccessRequests = () =>
  List(
    Type.Object({
      id: Maybe(Nullable(Uuid())),
      name: Name(),
      endpoint: FormsOf('mode', endpoints),
      authentication: FormsOf('mode', authentications, authenticationWords()),
    }),
    50,
  )

export const Accesses = () =>
  List(
    Type.Object({
      id: Uuid(),
      name: Text(),
      created_at: Timestamp(),
      updated_at: Timestamp(),
      endpoint: FormsOf('mode', endpoints),
      authentication: FormsOf('mode', shownAuthentications),
    }),
    50,
  )

/** The secret field of an authentication. */
const secretOf: Record<string, string> = {
  AWS_STATIC_CREDENTIALS: 'secret_key',
  GCP_JSON_CREDENTIALS: 'json_credentials',
}

interface Known {
  id: string
  name: string
  spec: Spec
}

/** An access ready to be written; `secret` is null if the row keeps its own. */
interface Prepared {
  id: string
  isNew: boolean
  name: string
  spec: Spec
  sealed: Record<string, string> | null
}

const record = `json_build_object('id', a.id, 'name', a.name, 'created_at', ${timestampSql('a.created_at')},
  'updated_at', ${timestampSql('a.updated_at')}, 'endpoint', a.spec -> 'endpoint',
  'authentication', a.spec -> 'authentication')`

/** SQL for the accesses of a cluster `n`, as a list. */
export const accessesOfN = `coalesce((select json_agg(${record} order by a.created_at, a.id) from node a
  where a.parent_id = n.id and a.kind = '${kind}'), '[]')`

const knownOf = (context: Context, clusterId: string | null): Promise<Known[]> =>
  clusterId === null
    ? Promise.resolve([])
    : context.db.query<Known>(`select id, name, spec from node where parent_id = $1 and kind = '${kind}'`, [clusterId])

/** The specification requires only an endpoint's region: its kind follows from the other fields. */
const withMode = (endpoint: Spec): Spec =>
  endpoint.mode !== undefined
    ? endpoint
    : { ...endpoint, mode: endpoint.project_id === undefined ? 'AWS_SECRET_MANAGER' : 'GCP_SECRET_MANAGER' }

/** Fields from which the kind of authentication follows if a request does not state it, in order of precedence. */
const tells = {
  json_credentials: 'GCP_JSON_CREDENTIALS',
  secret_key: 'AWS_STATIC_CREDENTIALS',
  role_arn: 'AWS_ROLE_ARN',
  access_key: 'AWS_STATIC_CREDENTIALS',
}

const withAuthenticationMode = (sent: Spec): Spec => {
  if (sent.mode !== undefined) return sent
  const found = Object.entries(tells).find(([name]) => sent[name] !== undefined)
  return { ...sent, mode: found?.[1] ?? 'AUTOMATICALLY_CONFIGURED' }
}

const isSame = (known: Known, sent: Spec): boolean =>
  typeof sent.id === 'string'
    ? known.id === sent.id.toLowerCase()
    : known.name.toLowerCase() === String(sent.name).toLowerCase()

const keeps = (known: Known | undefined, mode: string): boolean =>
  (known?.spec.authentication as Spec | undefined)?.mode === mode

const prepareOne = async (context: Context, known: readonly Known[], sent: Spec, index: number): Promise<Prepared> => {
  const at = `${field}/${index}`
  const before = known.find((each) => isSame(each, sent))
  if (typeof sent.id === 'string' && before === undefined)
    throw invalidField(`${at}/id`, 'is not a secret manager access of this cluster')
  const endpoint = readFormBy('mode', endpoints, withMode(sent.endpoint as Spec), `${at}/endpoint`)
  const wanted = withAuthenticationMode(sent.authentication as Spec)
  const authentication = readFormBy('mode', authentications, wanted, `${at}/authentication`)
  const mode = String(authentication.mode)
  if (fitting[mode]?.includes(String(endpoint.mode)) === false)
    throw invalidField(`${at}/authentication/mode`, `is not possible for ${String(endpoint.mode)}`)
  const id = before?.id ?? newId()
  const entry = { id, isNew: before === undefined, name: String(sent.name) }
  const name = secretOf[mode]
  if (name === undefined) return { ...entry, spec: { endpoint, authentication }, sealed: {} }
  const { [name]: secret, ...open } = authentication
  const spec = { endpoint, authentication: open }
  if (typeof secret !== 'string' || secret === '') {
    if (!keeps(before, mode)) throw invalidField(`${at}/authentication/${name}`, 'is required')
    return { ...entry, spec, sealed: null }
  }
  if (!context.principal.scopes.has('Admin'))
    throw forbidden('Cluster credentials require a token with the scope Admin.')
  const column = `authentication.${name}`
  const place = { table: 'node', row: id, column }
  const text = await context.parts.sealer.seal(context.principal.organizationId, place, secret)
  return { ...entry, spec, sealed: { [column]: text } }
}

const prepareAll = async (context: Context, clusterId: string | null, sent: readonly Spec[]): Promise<Prepared[]> => {
  const known = await knownOf(context, clusterId)
  const prepared: Prepared[] = []
  for (const [index, one] of sent.entries()) {
    const next = await prepareOne(context, known, one, index)
    const twin = prepared.some(({ id, name }) => id === next.id || name.toLowerCase() === next.name.toLowerCase())
    if (twin) throw invalidField(`${field}/${index}/name`, 'is a duplicate')
    prepared.push(next)
  }
  return prepared
}

const insert = `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed, updated_by)
  values ($1, $2, '${kind}', $3, '${kind}', $4, $5, $6, $7) returning id`
const update = `update node set name = $3, spec = $4, sealed = coalesce($5, sealed), updated_by = $6,
  version = version + 1, updated_at = clock_timestamp() where id = $1 and parent_id = $2 returning id`

const write = async (tx: Queryable, context: Context, clusterId: string, one: Prepared): Promise<void> => {
  const { organizationId, tokenId } = context.principal
  const { id, name, spec, sealed } = one
  const rows = one.isNew
    ? await tx.query(insert, [id, organizationId, clusterId, name, spec, sealed ?? {}, tokenId])
    : await tx.query(update, [id, clusterId, name, spec, sealed, tokenId])
  if (rows.length === 0) throw conflict('changed_meanwhile', 'The cluster has changed in the meantime: read it again.')
}

/** Replaces the accesses of a cluster with the prepared ones; returns their records. */
const replace = async (tx: Queryable, context: Context, clusterId: string, prepared: readonly Prepared[]) => {
  const kept = prepared.map(({ id }) => id)
  await refuseUsedAccesses(tx, clusterId, kept)
  await tx.query(`delete from node where parent_id = $1 and kind = '${kind}' and id <> all($2)`, [clusterId, kept])
  // Names are unique, but one edit may swap them.
  await tx.query(`update node set name = id::text where parent_id = $1 and kind = '${kind}'`, [clusterId])
  for (const one of prepared) await write(tx, context, clusterId, one)
  const [row] = await tx.query<{ accesses: Spec[] }>(`select ${accessesOfN} as accesses from node n where n.id = $1`, [
    clusterId,
  ])
  return row!.accesses
}

const orChanged = (error: unknown): unknown =>
  sqlState(error) === '23505'
    ? conflict('changed_meanwhile', 'The cluster has changed in the meantime: read it again.')
    : error

/** Wraps a create or edit of clusters: takes `secret_manager_accesses` out of the body and writes them as rows. */
export const writeAccesses = async (context: Context, write: Write): Promise<Answered> => {
  const { secret_manager_accesses: sent, ...body } = context.body
  if (sent === undefined) return write(context)
  const clusterId = context.node.kind === 'cluster' ? context.node.id : null
  const prepared = await prepareAll(context, clusterId, sent as Spec[])
  return write({ ...context, body }, async (tx, record) => {
    const accesses = await replace(tx, context, String(record.id), prepared).catch((error: unknown) => {
      throw orChanged(error)
    })
    return { ...record, secret_manager_accesses: accesses }
  })
}
