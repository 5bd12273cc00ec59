/**
 * Gives each open pull request of a previewed repository an environment of its own: a clone, deployed with the branch
 * of the request, that follows its pushes and is deleted when it closes. Promises one environment per request,
 * whatever dies and however many servers share the database; at most the limit for a project, the others wait; none
 * for forks, whose authors must not see the secrets of an environment; an end for each, even if the request is never
 * closed. When the process dies: the lease of the preview ends, and another server resumes from its row.
 */
import type { Parts } from '../../api/parts.ts'
import { GitHostError } from '../../deployments/git-hosts/git-host.ts'
import { ApiError, DeploymentError } from '../../lib/errors.ts'
import { LeaseHandedOff } from '../../lib/lease-handed-off.ts'
import { limitCode } from '../../limits/limits.ts'
import { expireLeases, holdLease } from '../../work/lease.ts'
import { startTurns } from '../../work/turns.ts'
import { workerName } from '../../work/worker.ts'
import type { Service } from '../service/service.ts'
import { commentOf, writeComment } from './comment.ts'
import { type MakeParts, make, remove, update } from './make.ts'
import {
  type Change,
  claimPreviews,
  forgetPreview,
  noteImages,
  type Preview,
  previewLeases,
  readMade,
  readUnneeded,
  releaseIn,
  wakeWaiting,
  writePreview,
} from './rows.ts'
import { previewChannel, sourceLeases } from './source-rows.ts'
import { startSources } from './sources.ts'

const concurrency = 4
const longestPauseMs = 10_000

/** Seconds until a preview is checked again. */
const soon = 2
const busy = 3
const full = 20
const later = 60
const calm = 300

const fork = 'It comes from a fork: its author would get the secrets of this environment.'
const gone = 'Its environment was deleted.'
const overdue = 'Expired: no push within SLIPWAY_PREVIEW_HOURS.'

/** The next step, with the seconds until the next check; null: nothing is left to do. */
type Step = number | null

const isNew = ({ commitId, deployedCommit }: Preview): boolean => commitId !== null && commitId !== deployedCommit

/** Writes its new state, here and in the row. */
const turn = async ({ parts }: MakeParts, preview: Preview, change: Change): Promise<void> => {
  const hasLeft = preview.environmentId !== null && change.environmentId === null
  await holdLease(parts.database, previewLeases, preview, async (tx) => {
    await writePreview(tx, preview, change)
    if (hasLeft) await wakeWaiting(tx, preview.projectId)
  })
  Object.assign(preview, change)
}

const reread = async ({ parts }: MakeParts, preview: Preview): Promise<void> => {
  const [row] = await parts.database.query<Preview>(`select ${previewLeases.columns} from preview where id = $1`, [
    preview.id,
  ])
  const { changes, fence } = preview
  Object.assign(preview, row, { changes, fence })
}

/** An engine that does not answer now keeps them, like its other built images. */
const forgetImages = async ({ parts }: MakeParts, preview: Preview): Promise<void> => {
  const { clusterId, images } = await readUnneeded(parts.database, preview)
  if (clusterId === null || images.length === 0) return
  try {
    const { builder } = await parts.clusters.of(clusterId)
    await builder.forget?.(preview.organizationId, images)
  } catch (error) {
    parts.log.warn({ err: error, preview: preview.id }, 'images of a preview could not be removed')
  }
}

/** A preview that has an environment. */
const carry = async (makeParts: MakeParts, preview: Preview, environmentId: string): Promise<Step> => {
  const made = await readMade(makeParts.parts.database, environmentId)
  if (made === null) {
    await forgetImages(makeParts, preview)
    const isOver = preview.state === 'REMOVING' && !preview.isExpired
    const [state, reason] = isOver ? (['WAITING', null] as const) : (['EXPIRED', preview.reason ?? gone] as const)
    await turn(makeParts, preview, { environmentId: null, state, reason })
    return 0
  }
  if (made.isLeaving) {
    // Deleted by a user: it is not created again before the next push.
    if (preview.state !== 'REMOVING')
      await turn(makeParts, preview, { state: 'REMOVING', reason: gone, isExpired: true })
    return soon
  }
  if (!preview.isOpen || preview.isOverdue || preview.state === 'REMOVING') {
    const isExpired = preview.isOpen && (preview.isExpired || preview.isOverdue)
    // A failed removal is requested again, after a while.
    if (preview.state === 'REMOVING' && made.isBusy) return soon
    await remove(makeParts, preview, environmentId, { reason: isExpired ? overdue : null, isExpired })
    await reread(makeParts, preview)
    return soon
  }
  if (isNew(preview)) {
    await update(makeParts, preview, environmentId)
    await reread(makeParts, preview)
    return busy
  }
  return made.isBusy ? busy : calm
}

/** A preview that has none. */
const begin = async (makeParts: MakeParts, preview: Preview): Promise<Step> => {
  if (!preview.isOpen) return null
  if (preview.isFork) {
    if (preview.state !== 'REFUSED') await turn(makeParts, preview, { state: 'REFUSED', reason: fork })
    return calm
  }
  if (preview.state === 'EXPIRED' && !isNew(preview)) return calm
  if (preview.commitId === null) return calm
  const isMade = await make(makeParts, preview)
  if (!isMade) return calm
  await reread(makeParts, preview)
  return busy
}

const step = async (makeParts: MakeParts, preview: Preview): Promise<Step> => {
  try {
    const { environmentId } = preview
    return environmentId === null ? await begin(makeParts, preview) : await carry(makeParts, preview, environmentId)
  } catch (error) {
    if (!(error instanceof ApiError) || error.status >= 500) throw error
    // The reason for a refusal may pass later: no free place, a name, a limit of the organization.
    const state = preview.environmentId === null ? 'WAITING' : preview.state
    await turn(makeParts, preview, { state, reason: error.message })
    // One that must be removed, or waits for a place, is retried soon.
    if (error.code === limitCode || preview.environmentId !== null) return full
    return error.status === 409 ? later : calm
  }
}

const commentPauses = [10, 60, 300, 1800, 7200]

/**
 * Reports the preview's state on the request; if the host does not answer, it is reported later, and delays nothing.
 */
const say = async ({ parts }: MakeParts, preview: Preview, isOver: boolean, signal: AbortSignal): Promise<void> => {
  // A closed request that never had an environment needs no further comment.
  if (isOver && preview.deployedCommit === null) return
  const text = await commentOf(parts, preview, isOver)
  if (text === preview.commented || !preview.mayComment) return
  const note = (sql: string, values: unknown[]) =>
    holdLease(parts.database, previewLeases, preview, (tx) => tx.query(sql, [preview.id, ...values]))
  try {
    await writeComment(parts, preview, text, signal)
    await note('update preview set commented = $2, comment_failures = 0 where id = $1', [text])
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    if (!(error instanceof GitHostError || error instanceof DeploymentError)) throw error
    parts.log.info({ preview: preview.id, reason: error.message }, 'a pull request could not be commented')
    const isHopeless = !(error instanceof GitHostError) || error.code !== 'unreachable'
    const pause = isHopeless ? commentPauses.at(-1)! : commentPauses[Math.min(preview.commentFailures, 4)]!
    await note(
      `update preview set comment_failures = comment_failures + 1,
         comment_at = clock_timestamp() + make_interval(secs => $2::float8) where id = $1`,
      [pause],
    )
  }
}

const run = async (makeParts: MakeParts, preview: Preview, signal: AbortSignal): Promise<void> => {
  const { database } = makeParts.parts
  const next = await step(makeParts, preview)
  if (next !== 0) await say(makeParts, preview, next === null, signal)
  await holdLease(database, previewLeases, preview, async (tx) => {
    if (next === null && (await forgetPreview(tx, preview))) return wakeWaiting(tx, preview.projectId)
    await noteImages(tx, preview)
    await releaseIn(tx, preview, next ?? 0)
  })
}

const runOrPutOff = async (makeParts: MakeParts, preview: Preview, signal: AbortSignal): Promise<void> => {
  try {
    await run(makeParts, preview, signal)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    const { log, database } = makeParts.parts
    log.warn({ err: error, preview: preview.id }, 'a preview could not be looked after; retrying in a minute')
    await holdLease(database, previewLeases, preview, (tx) => releaseIn(tx, preview, later))
  }
}

const startLives = (makeParts: MakeParts, worker: string): Promise<{ stop(): Promise<void> }> =>
  startTurns<Preview>(makeParts.parts, worker, {
    ...{ name: 'previews', concurrency, longestPauseMs, leases: previewLeases, channel: previewChannel },
    about: ({ id }) => ({ preview: id }),
    claim: claimPreviews,
    run: (preview, signal) => runOrPutOff(makeParts, preview, signal),
    failed: 'looking after a preview was interrupted and waits for its next claim',
  })

const defaultPollSeconds = 60

/** `alone`: no other server can work on this database, so leases of a dead process end at once. */
export const startPreviews = async (
  parts: Parts,
  services: readonly Service[],
  { alone, worker = workerName() }: { alone: boolean; worker?: string },
): Promise<{ stop(): Promise<void> }> => {
  const { database, settings } = parts
  if (alone) {
    await expireLeases(database, sourceLeases)
    await expireLeases(database, previewLeases)
  }
  const lives = await startLives({ parts, services }, worker)
  const sources = await startSources(parts, worker, settings.gitPollSeconds ?? defaultPollSeconds)
  return {
    async stop() {
      await sources.stop()
      await lives.stop()
    },
  }
}
