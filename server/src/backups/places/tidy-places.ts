/**
 * Once a day, what killed writes have left in each backup storage is removed. Every server does it, because a folder is
 * on one of them. A storage that does not answer has its next turn a day later. Dies with the process at any moment.
 */
import { forEachParallel } from '../../lib/concurrency/parallel.ts'
import { createLoop, type Loop, type WorkParts } from '../../work/loop.ts'
import { openPlace, type PlaceParts } from './open-place.ts'

const dayMs = 24 * 3_600_000
const atOnce = 4
/** For one storage: one that never answers does not keep the others waiting. */
const limitMs = 5 * 60_000

export const tidyPlaces = async (parts: PlaceParts & Pick<WorkParts, 'log'>, signal: AbortSignal): Promise<void> => {
  const rows = await parts.database.query<{ id: string; organizationId: string }>(
    `select id, organization_id as "organizationId" from node where kind = 'backup_storage' order by id`,
  )
  await forEachParallel(atOnce, rows, async ({ id, organizationId }) => {
    if (signal.aborted) return
    try {
      const place = await openPlace({ ...parts, attempts: 2 }, organizationId, id)
      await place.tidy(AbortSignal.any([signal, AbortSignal.timeout(limitMs)]))
    } catch (error) {
      parts.log.info({ err: error, storage: id }, 'a backup storage was not tidied')
    }
  })
}

export const startTidying = (parts: Omit<PlaceParts, 'clock'> & WorkParts): Loop =>
  createLoop(parts, {
    name: 'tidy backup storages',
    periodMs: dayMs,
    failed: 'the backup storages were not tidied',
    run: (signal) => tidyPlaces(parts, signal),
  })
