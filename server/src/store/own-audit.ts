/**
 * Audit rows for changes without a request: by the operator, through the environment or a program, or by the server
 * itself.
 */
import { newId } from '../lib/ids.ts'
import type { Queryable } from './database.ts'
import { type Audit, writeAudit } from './tree.ts'

interface OwnAudit {
  actor: 'OPERATOR' | 'SYSTEM'
  /** Which setting, program or part of the server it was. */
  by: string
  eventType: string
  targetType: string
  subTargetType: string | null
  target: { id: string | null; name: string | null }
  /** Where it was, if not in the organization itself. */
  place?: Pick<Audit, 'projectId' | 'environmentId'>
  /** The request that caused this one, if any. */
  request?: Pick<Audit, 'origin' | 'requestId'>
  change?: object
}

const nowhere = { projectId: null, environmentId: null }

export const writeOwnAudit = (db: Queryable, organizationId: string, audit: OwnAudit): Promise<void> => {
  const { actor, by, target, place = nowhere, request, change, ...kinds } = audit
  return writeAudit(db, organizationId, target, {
    eventId: newId(),
    ...kinds,
    ...place,
    change: change === undefined ? null : JSON.stringify(change),
    origin: request?.origin ?? 'QOVERY_INTERNAL',
    triggeredBy: by,
    actorType: actor,
    actorId: null,
    userAgent: null,
    requestId: request?.requestId ?? newId(),
  })
}

/** The organization whose audit log records the operator's actions. */
export const firstOrganizationSql = `select id from node where kind = 'organization' order by created_at, id limit 1`
