/**
 * Audits sign-ins and sign-outs of browsers, by an OIDC issuer or with an API token. Each is recorded in the organization
 * of the token, or in each organization of the account; failures, which belong to no known caller, in the operator's
 * organization, as one row per minute and kind with their number.
 */
import type { FastifyRequest } from 'fastify'
import { newId } from '../../lib/ids.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Database } from '../../store/database.ts'
import { firstOrganizationSql, writeOwnAudit } from '../../store/own-audit.ts'
import { writeAudit } from '../../store/tree.ts'
import { actorOf, type Principal } from './principal.ts'

/** OIDC: at the issuer's pages. The others open a session of the console: an API token, the code of a link, a JWT. */
type SignInMethod = 'OIDC' | 'TOKEN' | 'LINK' | 'JWT'

export interface AccountRef {
  accountId: string
  name: string
}

export interface SignInAudit {
  signedIn(principal: Principal, method: SignInMethod, request: FastifyRequest): Promise<void>
  signedOut(who: Principal | AccountRef, request: FastifyRequest): Promise<void>
  failed(method: 'OIDC' | 'TOKEN', address: string): Promise<void>
}

interface Actor {
  id: string
  name: string
  actorType: 'API_TOKEN' | 'USER'
  organizationIds: string[]
}

const pauseMs = 60_000
const targetType = 'MEMBERS_AND_ROLES'
const subTargets = { USER: 'SSO', API_TOKEN: 'API_TOKEN' } as const

const readActor = async (database: Database, who: Principal | AccountRef): Promise<Actor> => {
  if ('accountId' in who) {
    const sql = 'select organization_id as id from member where account_id = $1'
    const rows = await database.query<{ id: string }>(sql, [who.accountId])
    return { id: who.accountId, name: who.name, actorType: 'USER', organizationIds: rows.map(({ id }) => id) }
  }
  const { actorType, actorId: id } = actorOf(who)
  const { account, memberships, organizationId, name } = who
  const organizationIds = account === null ? [organizationId] : memberships.map((each) => each.organizationId)
  return { id, name, actorType, organizationIds }
}

export const createSignInAudit = ({ database, clock }: { database: Database; clock: Clock }): SignInAudit => {
  const failures = { OIDC: { count: 0, notedMs: -Infinity }, TOKEN: { count: 0, notedMs: -Infinity } }
  const write = async (who: Principal | AccountRef, request: FastifyRequest, eventType: string, change: object) => {
    const { id, name, actorType, organizationIds } = await readActor(database, who)
    for (const organizationId of organizationIds)
      await writeAudit(
        database,
        organizationId,
        { id, name },
        {
          eventId: newId(),
          eventType,
          targetType,
          subTargetType: subTargets[actorType],
          projectId: null,
          environmentId: null,
          change: JSON.stringify(change),
          origin: 'CONSOLE',
          triggeredBy: name,
          actorType,
          actorId: id,
          userAgent: request.headers['user-agent']?.slice(0, 255) ?? null,
          requestId: request.id,
        },
      )
  }
  return {
    signedIn: (principal, method, request) =>
      write(principal, request, 'CREATE', { signed_in_from: request.ip, signed_in_with: method }),
    signedOut: (who, request) => write(who, request, 'DELETE', { signed_out_from: request.ip }),
    async failed(method, address) {
      const known = failures[method]
      known.count += 1
      if (clock.monotonicMs() - known.notedMs < pauseMs) return
      known.notedMs = clock.monotonicMs()
      const change = { failures: known.count, last_from: address }
      known.count = 0
      const [first] = await database.query<{ id: string }>(firstOrganizationSql)
      if (first === undefined) return
      await writeOwnAudit(database, first.id, {
        actor: 'SYSTEM',
        by: 'failed sign-in',
        eventType: 'POLICY_FAILED',
        targetType,
        subTargetType: subTargets[method === 'OIDC' ? 'USER' : 'API_TOKEN'],
        target: { id: null, name: null },
        change,
      })
    },
  }
}
