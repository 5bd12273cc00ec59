/**
 * One claimed deployment from its first stage to its final state. Stages follow one another, services of a stage run
 * in parallel; the first failure skips those that have not started. May begin again at any point: finished parts are
 * skipped.
 */
import { artifactOf } from '../../clusters/artifact.ts'
import { awaitShares } from '../../clusters/lease.ts'
import { readClusterId } from '../../clusters/refs.ts'
import { forEachParallel } from '../../lib/concurrency/parallel.ts'
import { isDiskFull } from '../../lib/disk-full.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { LeaseLost } from '../../work/lease.ts'
import { type Claim, finish, withClaim } from '../../work/queue.ts'
import type { DeploymentAction } from '../deployments.ts'
import { keepAfter } from '../keeping/keep.ts'
import type { DeploymentParts } from '../parts.ts'
import { isCancel } from '../progress/canceled.ts'
import { createDeploymentLog } from '../progress/log.ts'
import { conclude, type Outcome, readServices, type ServiceRow, type ServiceRun } from '../progress/service-run.ts'
import { createSteps, orLeft } from '../progress/steps.ts'
import { inStages } from '../request/stages.ts'
import { type AuditRow, wordsOf, writeAuditRows } from '../status/audit.ts'
import { stateOf } from '../status/states.ts'
import { graceOf } from '../tasks/jobs.ts'
import { actions, undo, undoStop } from './deploy.ts'
import { createPartSignals, type PartSignals } from './part-signals.ts'

/** Services of one stage at once. */
const parallel = 8
const undoTimeoutMs = 60_000
/** A cancel must end soon, whatever the engine does; the reconciler sweeps the leftovers. */
const cancelUndoTimeoutMs = 6000
/** In addition to the grace period of a program that is asked to end: to save its outputs. */
const cancelTaskTimeoutMs = 4000

const asDeploymentError = (error: unknown, run: ServiceRun): DeploymentError => {
  if (error instanceof DeploymentError) return error
  if (isDiskFull(error))
    return new DeploymentError(
      'disk_full',
      'The disk of this server or of its engine is full: free space, then deploy again.',
    )
  run.parts.log.error(
    { err: error, deploymentId: run.claim.id, serviceId: run.service.id },
    'a step failed unexpectedly',
  )
  return new DeploymentError('unexpected', `Internal error: the server's log has the details.`)
}

/** A lost lease or a shutdown: the deployment is no longer ours and nothing may be written. */
const isNotOurs = (error: unknown, { signal }: ServiceRun): boolean =>
  error instanceof LeaseLost || (signal.aborted && !isCancel({ signal }))

const tidy = async (run: ServiceRun, canceled: boolean): Promise<void> => {
  const graceMs = graceOf(run)
  const cancelTimeoutMs = Math.max(cancelUndoTimeoutMs, graceMs + cancelTaskTimeoutMs)
  const signal = AbortSignal.timeout(canceled ? cancelTimeoutMs : undoTimeoutMs + graceMs)
  const action = run.claim.action as DeploymentAction
  try {
    if (action === 'DEPLOY' || action === 'RESTART') await orLeft(undo(run, signal), signal)
    else if (action === 'STOP' && canceled) await orLeft(undoStop(run, signal), signal)
  } catch (error) {
    if (error instanceof LeaseLost) throw error
    run.parts.log.warn({ err: error, serviceId: run.service.id }, 'cleanup is left to the reconciler')
  }
}

const failed = (run: ServiceRun, error: DeploymentError): Outcome => {
  const step = run.phase === 'executing' ? 'task-error' : 'error'
  // Output of a job is in the log already.
  if (step === 'error') for (const line of error.lines) run.log.line(step, line, 'error')
  run.log.line(step, error.message, 'error')
  const phase = run.phase === 'building' ? 'buildFailed' : 'failed'
  return { kind: 'failed', state: stateOf(run.claim.action as DeploymentAction, phase), error }
}

const canceled: Outcome = { kind: 'canceled', state: 'CANCELED', error: null }

const doneWords: Record<DeploymentAction, string> = {
  DEPLOY: 'Deployed.',
  RESTART: 'Restarted.',
  STOP: 'Stopped.',
  UNINSTALL: 'Uninstalled.',
  DELETE: 'Deleted.',
}

const outcomeOf = async (run: ServiceRun): Promise<Outcome> => {
  const action = run.claim.action as DeploymentAction
  const succeeded: Outcome = { kind: 'succeeded', state: stateOf(action, 'done'), error: null }
  try {
    if (run.claim.resumed) run.log.line('resume', 'The control plane was restarted: resuming the deployment.')
    await actions[action](run)
    if (run.unchanged !== true) run.log.line('done', run.aside === true ? 'Done.' : doneWords[action])
    return succeeded
  } catch (error) {
    if (isNotOurs(error, run)) throw error
    if (run.committed) {
      run.parts.log.warn({ err: error, serviceId: run.service.id }, 'cleanup is left to the reconciler')
      return succeeded
    }
    const outcome = isCancel(run) ? canceled : failed(run, asDeploymentError(error, run))
    if (outcome === canceled) run.log.line('cancel', 'Canceled.')
    await tidy(run, outcome === canceled)
    return outcome
  }
}

const beginRun = async (
  parts: DeploymentParts,
  claim: Claim,
  service: ServiceRow,
  signal: AbortSignal,
): Promise<ServiceRun> => {
  const log = createDeploymentLog(parts.database, parts.clock, parts.log, claim.id, service.id)
  const ids = { deploymentId: claim.id, serviceId: service.id }
  const tell: Parameters<typeof createSteps>[5] = {
    begins: (name) => parts.log.debug({ ...ids, step: name }, 'step'),
    waits(name, error) {
      parts.log.warn({ ...ids, step: name, err: error }, 'retrying a step')
      log.line(name, `${error.message} Retrying.`, 'error')
    },
  }
  const { database, clock, engineWaitMs } = parts
  const step = await createSteps(database, clock, claim, service.id, signal, tell, engineWaitMs)
  const committed = service.currentRevision === claim.id
  const { clusterId } = service
  const cluster = await parts.clusters.of(clusterId)
  const { environmentId } = claim
  const ref = { clusterId, environmentId, serviceId: service.id, artifact: artifactOf(service.kind) }
  return { parts, claim, service, cluster, ref, step, log, signal, committed, phase: 'working' }
}

const workOn = async (
  parts: DeploymentParts,
  claim: Claim,
  service: ServiceRow,
  signal: AbortSignal,
): Promise<Outcome> => {
  const run = await beginRun(parts, claim, service, signal)
  const outcome = await outcomeOf(run)
  await run.log.flush()
  await conclude(run, outcome)
  return outcome
}

const skipped: Outcome = { kind: 'skipped', state: 'CANCELED', error: null }

/** Ends the part of a service that was not started. */
const skipService = async (
  parts: DeploymentParts,
  claim: Claim,
  service: ServiceRow,
  outcome: Outcome,
  signal: AbortSignal,
): Promise<void> => conclude(await beginRun(parts, claim, service, signal), outcome)

/** A part that was ended by a deletion of the service does not count for the deployment. */
const counts = ({ endRequested, outcome }: ServiceRow): boolean => !(endRequested && outcome === 'CANCELED')

const alreadyFailed = (service: ServiceRow): boolean =>
  service.finished && counts(service) && /_ERROR$|^CANCELED$/.test(service.outcome)

type Ending = 'SUCCEEDED' | 'FAILED' | 'CANCELED'

const endingOf = (services: readonly ServiceRow[], outcomes: readonly Outcome[]): Ending => {
  const states = [
    ...services.filter((each) => each.finished && counts(each)).map((each) => each.outcome),
    ...outcomes.map((each) => each.state),
  ]
  if (states.some((state) => state.endsWith('_ERROR'))) return 'FAILED'
  return states.includes('CANCELED') ? 'CANCELED' : 'SUCCEEDED'
}

/** See the head of this file. Rejects only if the deployment is no longer ours or the database is away. */
export const runDeployment = async (
  parts: DeploymentParts,
  claim: Claim,
  signal: AbortSignal,
  partSignals: PartSignals = createPartSignals(),
): Promise<void> => {
  const release = await parts.environmentLock.acquire(claim.environmentId)
  try {
    // The reconciler may run on another server.
    await awaitShares(parts, claim.environmentId, () => {
      if (!isCancel({ signal })) signal.throwIfAborted()
    })
    await runStages(parts, claim, signal, partSignals)
  } finally {
    release()
  }
}

const runStages = async (
  parts: DeploymentParts,
  claim: Claim,
  signal: AbortSignal,
  partSignals: PartSignals,
): Promise<void> => {
  const services = await readServices(parts.database, claim.id)
  const outcomes: Outcome[] = []
  let stopped = services.some(alreadyFailed)
  let begun = services.some(({ started }) => started)
  const workOnPart = async (service: ServiceRow, own: AbortSignal): Promise<void> => {
    // Work that an earlier process began must be undone, also when a cancel came meanwhile.
    const over = stopped || (isCancel({ signal: own }) && !service.started)
    // After a cancel before anything began, each of them shows it.
    if (over) return skipService(parts, claim, service, stopped || begun ? skipped : canceled, own)
    begun = true
    const outcome = await workOn(parts, claim, service, own)
    // Ended because the service will be deleted: the others continue.
    if (outcome === canceled && !isCancel({ signal })) return
    outcomes.push(outcome)
    if (outcome.kind !== 'succeeded') stopped = true
  }
  for (const stage of inStages(claim.action as DeploymentAction, services))
    await forEachParallel(
      parallel,
      stage.filter((service) => !service.finished),
      async (service) => {
        const part = { deploymentId: claim.id, serviceId: service.id }
        await partSignals.during(parts.database, part, signal, (own) => workOnPart(service, own))
      },
    )
  const isAllEnded = services.length > 0 && !services.some((each) => each.finished && counts(each))
  const isAllCanceled = outcomes.length === 0 && (isCancel({ signal }) || isAllEnded)
  await end(parts, claim, services, isAllCanceled ? [canceled] : outcomes, signal)
  const ids = services.map(({ id }) => id)
  await keepAfter(parts, claim.environmentId, ids, signal)
}

const removeEnvironment = async (parts: DeploymentParts, environmentId: string, signal: AbortSignal): Promise<void> => {
  const clusterId = await readClusterId(parts.database, environmentId)
  if (clusterId === null) return
  const { runtime } = await parts.clusters.of(clusterId)
  await runtime.removeEnvironment(environmentId, signal)
}

/** For a whole environment, for the audit log. */
const auditRowsOf = (
  { action, environmentId: id }: Claim,
  services: readonly ServiceRow[],
  ending: Ending,
): AuditRow[] => {
  if (ending === 'CANCELED') return []
  const { done, failed } = wordsOf(
    action as DeploymentAction,
    services.map(({ requested }) => requested),
  )
  return [{ word: ending === 'SUCCEEDED' ? done : failed, target: { kind: 'environment', id, name: null } }]
}

const end = async (
  parts: DeploymentParts,
  claim: Claim,
  services: readonly ServiceRow[],
  outcomes: readonly Outcome[],
  signal: AbortSignal,
): Promise<void> => {
  const ending = endingOf(services, outcomes)
  const deleted = claim.action === 'DELETE' && ending === 'SUCCEEDED'
  if (claim.action === 'UNINSTALL' && ending === 'SUCCEEDED' && claim.wholeEnvironment)
    await removeEnvironment(parts, claim.environmentId, signal).catch((error: unknown) => {
      signal.throwIfAborted()
      parts.log.warn(
        { err: error, environmentId: claim.environmentId },
        'the network of an uninstalled environment could not be removed',
      )
    })
  if (deleted && claim.wholeEnvironment)
    await removeEnvironment(parts, claim.environmentId, signal).catch((error: unknown) => {
      if (!(error instanceof DeploymentError) || error.code !== 'environment_in_use') throw error
      // Its deletion is recorded all the same: unknown objects in it are orphans until a user decides.
      parts.log.warn(
        { err: error, environmentId: claim.environmentId },
        'a deleted environment has something that the database does not know: it is listed among the orphans of its cluster',
      )
    })
  await withClaim(parts.database, claim, async (tx) => {
    if (claim.wholeEnvironment) await writeAuditRows(tx, claim.id, auditRowsOf(claim, services, ending))
    if (deleted) {
      await tx.query(`select set_config('slipway.deployment', $1, true)`, [claim.id])
      await tx.query('delete from node where id = any($1)', [
        claim.wholeEnvironment ? [claim.environmentId] : services.map((service) => service.id),
      ])
    }
    // A service that was deleted before its turn has no part left to conclude.
    await tx.query(
      `update deployment_service set state = 'CANCELED', finished_at = clock_timestamp()
       where deployment_id = $1 and finished_at is null`,
      [claim.id],
    )
    const error = outcomes.find((outcome) => outcome.error !== null)?.error ?? null
    await finish(tx, claim, ending, error === null ? null : { code: error.code, message: error.message })
  })
}
