/**
 * Audits browser sign-ins. A sign-in is recorded in each organization of the account; failures, which belong to no
 * known account, in the operator's organization, as one row per minute with their number.
 */
import type { FastifyRequest } from 'fastify'
import { newId } from '../../lib/ids.ts'
import { firstOrganizationSql, writeOwnAudit } from '../../store/own-audit.ts'
import { writeAudit } from '../../store/tree.ts'
import type { Principal } from '../operations/operation.ts'
import type { Parts } from '../parts.ts'
import type { Claims } from './oidc.ts'

export interface SignInAudit {
  signedIn(claims: Claims, request: FastifyRequest): Promise<void>
  failed(address: string): Promise<void>
}

const pauseMs = 60_000
const target = { targetType: 'MEMBERS_AND_ROLES', subTargetType: 'SSO' }

export const createSignInAudit = (
  { database, clock }: Parts,
  principalOf: (claims: Claims) => Promise<Principal | null>,
): SignInAudit => {
  let failures = 0
  let notedMs = Number.NEGATIVE_INFINITY
  return {
    async signedIn(claims, request) {
      const principal = await principalOf(claims)
      if (principal === null) return
      const { account, memberships, name } = principal
      for (const { organizationId } of memberships)
        await writeAudit(
          database,
          organizationId,
          { id: account!.id, name },
          {
            eventId: newId(),
            eventType: 'CREATE',
            ...target,
            projectId: null,
            environmentId: null,
            change: JSON.stringify({ signed_in_from: request.ip }),
            origin: 'CONSOLE',
            triggeredBy: name,
            actorType: 'USER',
            actorId: account!.id,
            userAgent: request.headers['user-agent']?.slice(0, 255) ?? null,
            requestId: request.id,
          },
        )
    },
    async failed(address) {
      failures += 1
      if (clock.monotonicMs() - notedMs < pauseMs) return
      notedMs = clock.monotonicMs()
      const change = { failures, last_from: address }
      failures = 0
      const [first] = await database.query<{ id: string }>(firstOrganizationSql)
      if (first === undefined) return
      await writeOwnAudit(database, first.id, {
        actor: 'SYSTEM',
        by: 'failed sign-in',
        eventType: 'POLICY_FAILED',
        ...target,
        target: { id: null, name: null },
        change,
      })
    },
  }
}
