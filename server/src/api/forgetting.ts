/** Deletes what the API keeps only for a time: idempotency keys, sessions, and the oldest events of the audit log. */
import { usualKeeping } from '../limits/keeping.ts'
import { deleteOldEvents, usualAuditDays } from '../store/event-retention.ts'
import { createLoop, type Loop } from '../work/loop.ts'
import { deleteEndedSessions } from './auth/ended-sessions.ts'
import { deleteEndedConsoleSessions } from './console/session-rows.ts'
import { deleteOldKeys } from './idempotency.ts'
import type { Parts } from './parts.ts'

const hourMs = 3_600_000

export const startForgetting = (parts: Parts): Loop =>
  createLoop(parts, {
    name: 'old keys, sessions and events',
    periodMs: hourMs,
    waits: true,
    failed: 'expired idempotency keys, sessions and audit events could not be deleted',
    async run(signal) {
      const { keeping = usualKeeping } = parts.settings
      await deleteOldKeys(parts.database, keeping.idempotencyHours, signal)
      for (const forget of [deleteEndedSessions, deleteEndedConsoleSessions]) await forget(parts.database)
      await deleteOldEvents(parts.database, parts.settings.auditDays ?? usualAuditDays, signal)
    },
  })
