/**
 * Accounts of people whom the OIDC issuer has authenticated. The row is created on first use. Memberships are read with
 * every request, so that a new, changed or ended one takes effect with the next request, on every replica.
 */

import { newId } from '../../lib/ids.ts'
import type { Log } from '../../lib/log.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Database, Queryable } from '../../store/database.ts'
import { firstOrganizationSql, writeOwnAudit } from '../../store/own-audit.ts'
import type { Claims } from './oidc.ts'
import { builtInRoles, scopesOfRole } from './permissions.ts'
import type { Membership, Principal } from './principal.ts'
import { type RoleSpec, roleOf } from './role-rows.ts'

/** Used for an account without an organization: no row has this id. */
const noOrganization = '00000000-0000-0000-0000-000000000000'
const activityMs = 60_000

interface Row {
  id: string
  email: string | null
  email_verified: boolean
  name: string | null
  organization_id: string | null
  role_id: string | null
  role_name: string | null
  role_spec: RoleSpec | null
  /** The person has signed out of the session that the token belongs to. */
  ended: boolean
}

const findAccount = `select a.id, a.email, a.email_verified, a.name, m.organization_id, m.role_id,
    r.name as role_name, r.spec as role_spec,
    exists (select 1 from ended_session where hash = $3) as ended
  from account a left join member m on m.account_id = a.id
    left join node r on r.id = m.role_id and r.organization_id = m.organization_id and r.kind = 'custom_role'
  where a.issuer = $1 and a.subject = $2 order by m.created_at, m.organization_id`

const writeAccount = `insert into account (id, issuer, subject, email, email_verified, name, nickname, first_name,
    last_name, picture) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
  on conflict (issuer, subject) do update set email = coalesce(excluded.email, account.email),
    email_verified = case when excluded.email is null then account.email_verified else excluded.email_verified end,
    name = coalesce(excluded.name, account.name), nickname = coalesce(excluded.nickname, account.nickname),
    first_name = coalesce(excluded.first_name, account.first_name),
    last_name = coalesce(excluded.last_name, account.last_name), picture = coalesce(excluded.picture, account.picture),
    updated_at = clock_timestamp()
  returning id`

const save = async (db: Queryable, claims: Claims): Promise<string> => {
  const { issuer, subject, email, emailVerified, name, nickname, firstName, lastName, picture } = claims
  const values = [newId(), issuer, subject, email, emailVerified, name, nickname, firstName, lastName, picture]
  const [row] = await db.query<{ id: string }>(writeAccount, values)
  return row!.id
}

/** The operator's own users become members of the first organization: its owner, or admins when it has one. */
const admitAdmin = (database: Database, accountId: string, email: string): Promise<void> =>
  database.transaction(async (tx) => {
    const [first] = await tx.query<{ id: string }>(`${firstOrganizationSql} for update`)
    if (first === undefined) return
    const [added] = await tx.query<{ role_id: string }>(
      `insert into member (organization_id, account_id, role_id)
       select $1, $2, case when exists (select 1 from member where organization_id = $1 and role_id = $3)
         then $4::uuid else $3::uuid end
       where not exists (select 1 from member where account_id = $2) returning role_id`,
      [first.id, accountId, builtInRoles.owner, builtInRoles.admin],
    )
    if (added === undefined) return
    await writeOwnAudit(tx, first.id, {
      actor: 'OPERATOR',
      by: 'SLIPWAY_OIDC_ADMIN_EMAILS',
      eventType: 'CREATE',
      targetType: 'MEMBERS_AND_ROLES',
      subTargetType: 'MEMBER_ROLE',
      target: { id: accountId, name: email },
      change: { role: added.role_id === builtInRoles.owner ? 'owner' : 'admin' },
    })
  })

const hasChanged = (rows: readonly Row[], { email, emailVerified, name }: Claims): boolean => {
  const [row] = rows
  if (row === undefined) return true
  if (email !== null && (email !== row.email || emailVerified !== row.email_verified)) return true
  return name !== null && name !== row.name
}

const membershipsOf = (rows: readonly Row[]): Membership[] =>
  rows.flatMap(({ organization_id: organizationId, role_id, role_name, role_spec }) => {
    const role = role_id === null ? null : roleOf(role_id, role_name, role_spec)
    return organizationId === null || role === null ? [] : [{ organizationId, role }]
  })

const toPrincipal = (rows: readonly Row[]): Principal => {
  const { id, email, email_verified, name } = rows[0]!
  const memberships = membershipsOf(rows)
  const role = memberships[0]?.role ?? null
  return {
    tokenId: id,
    // The audit log names accounts only by what the issuer has verified.
    name: email_verified && email !== null ? email : `${name ?? 'account'} (${id})`,
    organizationId: memberships[0]?.organizationId ?? noOrganization,
    scopes: scopesOfRole(role),
    createdBy: null,
    expiresAt: null,
    role,
    within: null,
    account: { id, email: email_verified ? email : null },
    memberships,
    isOperator: false,
  }
}

export const createAccounts = (
  parts: { database: Database; clock: Clock; log: Log },
  adminEmails: readonly string[],
) => {
  const { database, clock, log } = parts
  const seenMs = new Map<string, number>()
  const noteActivity = (accountId: string): void => {
    const now = clock.monotonicMs()
    if (now - (seenMs.get(accountId) ?? Number.NEGATIVE_INFINITY) < activityMs) return
    if (seenMs.size > 10_000) seenMs.clear()
    seenMs.set(accountId, now)
    database
      .query('update account set last_activity_at = clock_timestamp() where id = $1', [accountId])
      .catch((error: unknown) => log.warn({ err: error }, 'the activity of an account could not be noted'))
  }
  const isAdmin = ({ email, emailVerified }: Claims): boolean =>
    emailVerified && email !== null && adminEmails.includes(email.toLowerCase())
  /** Null for a session that has been ended. */
  return async (claims: Claims, session: Buffer | null = null): Promise<Principal | null> => {
    const read = (): Promise<Row[]> => database.query<Row>(findAccount, [claims.issuer, claims.subject, session])
    let rows = await read()
    const isStranger = rows[0]?.organization_id == null
    if (hasChanged(rows, claims) || (isStranger && isAdmin(claims))) {
      const id = await save(database, claims)
      if (isStranger && isAdmin(claims)) await admitAdmin(database, id, claims.email!)
      rows = await read()
    }
    if (rows[0]!.ended) return null
    noteActivity(rows[0]!.id)
    return toPrincipal(rows)
  }
}
