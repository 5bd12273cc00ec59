/** API tokens through the API: shown once, never with more rights or a longer life than their creator. */
import Type from 'typebox'
import { createToken, unauthorized } from '../../api/auth/auth.ts'
import { builtInRoles } from '../../api/auth/permissions.ts'
import { type Revoked, revokeTokens } from '../../api/auth/revoke.ts'
import {
  type Context,
  type Operation,
  operation,
  organizationInPath,
  type Scope,
  scopes,
} from '../../api/operations/operation.ts'
import { auditOf, translateWrite } from '../../api/operations/resource.ts'
import {
  Computed,
  List,
  Maybe,
  Name,
  Nullable,
  OneOf,
  Results,
  ShownOnce,
  Text,
  Timestamp,
  Uuid,
} from '../../api/operations/schema.ts'
import { forbidden, invalidField, notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { timestampSql, writeAudit } from '../../store/tree.ts'
import { answerFrom } from '../answer-from.ts'
import { givenRole, roleNameSql } from './membership.ts'

const dayMs = 86_400_000
const defaultDays = 90
const nowhere = { projectId: null, environmentId: null }
const auditTarget = { target: 'ORGANIZATION', subTarget: 'API_TOKEN' }
const collection = '/organization/{organizationId}/apiToken'
const common = {
  tag: 'Organization Api Token',
  scope: 'Admin' as const,
  area: 'tokens' as const,
  owner: organizationInPath,
}

const record = {
  id: Uuid(),
  created_at: Timestamp(),
  name: Name(),
  description: Maybe(Nullable(Text(2048))),
  prefix: Computed(Text(10)),
  scopes: List(OneOf(scopes)),
  role_name: Maybe(Text()),
  role_id: Maybe(Uuid()),
  expires_at: Nullable(Timestamp()),
  last_used_at: Nullable(Timestamp()),
  last_used_ip: Nullable(Text()),
}
const answer = Type.Object(record)

const recordSql = `(json_strip_nulls(json_build_object('role_id', t.role_id))::jsonb || jsonb_build_object('id', t.id, 'created_at', ${timestampSql('t.created_at')}, 'name', t.name,
  'description', t.description, 'prefix', t.prefix, 'scopes', t.scopes, 'role_name', case when t.role_id is null then array_to_string(t.scopes, ', ') else ${roleNameSql('t.role_id')} end,
  'expires_at', ${timestampSql('t.expires_at')}, 'last_used_at', ${timestampSql('t.last_used_at')},
  'last_used_ip', t.last_used_ip))`

/** The creator of a token: another one, or an account, which has a name or at least an address. */
const creatorSql = `select from api_token c where c.id = t.created_by and lower(c.name) = lower($3)
  union all select from account a where a.id = t.created_by and lower($3) in (lower(a.name), lower(a.email))`

const list = operation({
  id: 'listOrganizationApiTokens',
  method: 'GET',
  path: collection,
  ...common,
  summary: 'List API tokens, without their texts; all, or those of a name or of a creator, whatever the case',
  query: Type.Object({ name: Maybe(Text()), creatorName: Maybe(Text()) }),
  status: 200,
  answer: Results(answer),
  run: ({ db, node, query: { name = null, creatorName = null } }) =>
    answerFrom(
      db,
      `select '{"results":' || coalesce(json_agg(${recordSql} order by t.created_at, t.id)::text, '[]') || '}' as text
       from api_token t where t.organization_id = $1 and t.revoked_at is null
         and ($2::text is null or lower(t.name) = lower($2)) and ($3::text is null or exists (${creatorSql}))`,
      [node.id, name, creatorName],
    ),
})

const bodySchema = Type.Object({
  name: Name(),
  description: Maybe(Nullable(Text(2048))),
  scopes: Maybe(List(OneOf(scopes), 4, { minItems: 1 })),
  scope: Maybe(OneOf(['ADMIN'])),
  role_id: Maybe(Nullable(Uuid())),
  expires_at: Maybe(Nullable(Timestamp())),
})
type Body = Type.Static<typeof bodySchema>

const expiryOf = (body: Body, { parts, principal }: Context): Date | null => {
  const now = parts.clock.now().getTime()
  const limit = principal.expiresAt
  if (body.expires_at === undefined) {
    const usual = new Date(now + defaultDays * dayMs)
    return limit !== null && limit < usual ? limit : usual
  }
  const asked = body.expires_at === null ? null : new Date(body.expires_at)
  if (asked !== null && (Number.isNaN(asked.getTime()) || asked.getTime() <= now))
    throw invalidField('/expires_at', 'must be a date and time in the future')
  if (limit !== null && (asked === null || asked > limit))
    throw forbidden('A token cannot create one that outlives it.')
  return asked
}

interface Rights {
  scopes: Scope[]
  roleId: string | null
}

const hasAllRights = ({ role, scopes: held }: Context['principal']): boolean =>
  role === null ? held.has('Admin') : role.id === builtInRoles.owner

/** Without scopes or a role, a token has the rights of its creator. */
const rightsOf = async (tx: Queryable, body: Body, context: Context): Promise<Rights> => {
  const { role } = context.principal
  if (typeof body.role_id === 'string')
    return { scopes: (body.scopes ?? []) as Scope[], roleId: (await givenRole(tx, context, body.role_id)).id }
  if (body.scopes === undefined && role !== null && !hasAllRights(context.principal))
    return { scopes: [], roleId: role.id }
  const asked = [...new Set(body.scopes ?? ['Admin'])] as Scope[]
  if (!hasAllRights(context.principal) && asked.includes('Admin'))
    throw forbidden(
      'A token with the scope Admin would have more rights than its creator: choose another scope, or a role.',
    )
  return { scopes: asked, roleId: null }
}

/** The audit log names users by a verified address: no token may look like one. */
const checkName = (name: string): void => {
  if (name.normalize('NFKC').includes('@'))
    throw invalidField('/name', 'must not contain @, which is reserved for e-mail addresses of people')
}

/**
 * Locks the creator until the token is written, so that revoking the creator, or removing its role, finds the token
 * too. Rejects if that has just happened.
 */
const lockCreator = async (tx: Queryable, { principal }: Context): Promise<void> => {
  const { account, tokenId, organizationId, role } = principal
  const found =
    account === null
      ? await tx.query('select 1 from api_token where id = $1 and revoked_at is null for share', [tokenId])
      : await tx.query(
          'select 1 from member where account_id = $1 and organization_id = $2 and role_id = $3 for share',
          [account.id, organizationId, role?.id],
        )
  if (found.length === 0) throw unauthorized()
}

const create = operation({
  id: 'createOrganizationApiToken',
  method: 'POST',
  path: collection,
  ...common,
  summary: 'Create an API token with scopes or a role; its text is only in this response',
  body: bodySchema,
  status: 201,
  answer: Type.Object({ ...record, token: ShownOnce(255) }),
  run(context) {
    const { body } = context
    const { organizationId, tokenId } = context.principal
    const expiresAt = expiryOf(body, context)
    checkName(body.name)
    return context.transaction(async (tx) => {
      await lockCreator(tx, context)
      const { name, description = null } = body
      const rights = await rightsOf(tx, body, context)
      const token = { organizationId, name, description, expiresAt, ...rights, createdBy: tokenId }
      const made = await createToken(tx, token).catch((error: unknown) => {
        throw translateWrite(error)
      })
      const audit = auditOf(context, 'CREATE', auditTarget, nowhere, { name, ...rights })
      await writeAudit(tx, organizationId, { id: made.id, name }, audit)
      const [row] = await tx.query<{ record: Type.Static<typeof answer> }>(
        `select ${recordSql} as record from api_token t where id = $1`,
        [made.id],
      )
      return { ...row!.record, token: made.token }
    })
  },
})

/** One audit row for the token, and one in each other organization where it created tokens. */
const noteRevoked = async (tx: Queryable, context: Context, revoked: readonly Revoked[]): Promise<void> => {
  const { apiTokenId } = context.params
  const asked = revoked.find(({ id }) => id === apiTokenId!.toLowerCase())!
  const places = [...new Set([asked.organizationId, ...revoked.map(({ organizationId }) => organizationId)])]
  for (const place of places) {
    const withIt = revoked.filter((each) => each !== asked && each.organizationId === place)
    const change = { tokens_made_with_it: withIt.length, names: withIt.slice(0, 100).map(({ name }) => name) }
    const audit = auditOf(context, 'DELETE', auditTarget, nowhere, change)
    await writeAudit(tx, place, { id: asked.id, name: asked.name }, audit)
  }
}

const remove = operation({
  id: 'deleteOrganizationApiToken',
  method: 'DELETE',
  path: `${collection}/{apiTokenId}`,
  ...common,
  summary: 'Revoke an API token and all tokens created with it, within a second on every server',
  status: 204,
  run: (context) =>
    context.transaction(async (tx) => {
      const { apiTokenId } = context.params
      const [row] = isUuid(apiTokenId!)
        ? await tx.query<{ id: string }>(
            `select id from api_token where id = $1 and organization_id = $2 and revoked_at is null
             for no key update`,
            [apiTokenId, context.node.id],
          )
        : []
      if (row === undefined) throw notFound()
      await noteRevoked(tx, context, await revokeTokens(tx, [row.id]))
      return undefined
    }),
})

export const apiTokenOperations: Operation[] = [list, create, remove]
