/**
 * The deployment of one service, step by step. Each step is durable and idempotent; after a kill the next process
 * resumes at the first unfinished one. Until the switch a failure leaves the old version serving and removes the new
 * one; after the switch the new version is current and only cleaning up remains.
 */
import type { Commit } from '../../builds/builder.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Workload } from '../../runtimes/runtime.ts'
import { withClaim } from '../../work/queue.ts'
import { driverOf } from '../artifacts/drivers.ts'
import { rerouted } from '../compare/reroute.ts'
import { isUpToDate } from '../compare/up-to-date.ts'
import { asideEvents, type DeploymentAction } from '../deployments.ts'
import { eventTask, isAlone, type TaskToRun, taskFor } from '../desired/tasks.ts'
import { environmentNow } from '../desired/variables-now.ts'
import { changedSize, sizeNotes, sizeRefusal } from '../desired/volume-sizes.ts'
import { aliasesOf, desiredOf, fingerprint, freezeWorkload, ofImage, thawWorkload } from '../desired/workload.ts'
import { imageFor } from '../images/make-image.ts'
import { dropImagesOf } from '../images/pulled-images.ts'
import { kindOf } from '../parts.ts'
import { enter, type ServiceRun } from '../progress/service-run.ts'
import { fillNow } from '../release/external-secrets.ts'
import { countAgain, freezeAgain, openOwn } from '../release/release-run.ts'
import { freezeRelease, type Release } from '../release/releases.ts'
import {
  endOwnTask,
  endRuns,
  forgetRuns,
  runAside,
  runBeside,
  runEnding,
  runOnce,
  runsAlone,
  setClocks,
  showRunning,
  unlock,
} from '../tasks/jobs.ts'
import { absent, converge, convergeBack, rollOut, stopped } from './rollout.ts'

const minute = 60_000

/**
 * Fails if the operator requires limits that the engine does not have, and, except for a rollback, for a volume whose
 * size was changed to one that it cannot get. Logs which sizes are not enforced.
 */
const checkVolumes = async (
  { parts, cluster, step, log }: ServiceRun,
  { volumes }: Pick<Workload, 'volumes'>,
  { isOlder = false } = {},
): Promise<void> => {
  if (volumes.length === 0) return
  const ids = volumes.map(({ id }) => id)
  const [made, { limitsVolumes }] = await step('volumes', { deadlineMs: minute, remember: false }, () =>
    Promise.all([cluster.runtime.volumeSizes(ids), cluster.runtime.capacity()]),
  )
  const refusal = sizeRefusal(parts.volumeSizes ?? 'auto', limitsVolumes, volumes)
  if (refusal !== null) throw new DeploymentError('volume_sizes_unlimited', refusal)
  const { growsVolumes } = cluster.runtime
  const changed = isOlder ? null : changedSize(volumes, made, growsVolumes)
  if (changed !== null) throw new DeploymentError('volume_size_fixed', changed)
  for (const note of sizeNotes(volumes, made, limitsVolumes, growsVolumes)) log.line('volumes', note)
}

/** New code or configuration: source, image, release, then the rollout, or the job's run. */
export const deploy = async (run: ServiceRun): Promise<void> => {
  const { parts, service, step, claim } = run
  if (service.requested.releaseId !== undefined) return rollBack(run, service.requested.releaseId)
  const kind = kindOf(parts, service.kind)
  const { event, task } = eventTask(kind, service)
  if (event === 'UNLOCK') return unlock(run)
  const wanted = desiredOf(kind, service.spec)
  if (task !== null && !isAlone(wanted.spec)) return runBeside(run, task)
  if (service.frozenReleaseId !== null) return goOn(run, service.frozenReleaseId, task)
  if (await isUpToDate(run, wanted)) return skipUnchanged(run)
  const taken = task === null ? await rerouted(run, wanted) : null
  if (taken !== null) return reroute(run, taken)
  await checkVolumes(run, wanted.spec)
  const fill = fillNow(run)
  const readVariables = (commitId?: string) =>
    environmentNow(parts, kind, claim.organizationId, service, { commitId, fill })
  const { sealed, hidden = [], ...made } = await driverOf(wanted.source).make(run, wanted.source, readVariables)
  const variables = await readVariables((made.commit as Commit | null)?.git_commit_id)
  for (const key of variables.leftOut ?? [])
    run.log.line('release', `${key} is skipped: its secret manager access no longer exists.`, 'error')
  await enter(run, 'working')
  const ids = { ...ownIds(run), aliases: aliasesOf(service.name, service.id) }
  const frozen = freezeWorkload(ids, wanted.spec, wanted.source)
  if (task !== null && asideEvents.has(event))
    return runAside(
      run,
      { workload: ofImage(thawWorkload(frozen, made.image, variables)), environment: variables },
      task,
    )
  const release = await step('release', { deadlineMs: minute }, () =>
    freezeRelease(
      parts.database,
      parts.sealer,
      {
        organizationId: claim.organizationId,
        serviceId: service.id,
        deploymentId: claim.id,
        ...made,
        workload: frozen,
        hash: fingerprint(parts.fingerprintKey, wanted.source, wanted.spec, variables),
      },
      { ...variables, secretValues: [...variables.secretValues, ...hidden], ...sealed },
    ),
  )
  await start(run, release, task)
}

const start = (run: ServiceRun, release: Release, task: TaskToRun | null): Promise<void> =>
  isAlone(release.workload) ? runOnce(run, release, task) : rollOut(run, release)

/** After a kill: the frozen content is rolled out, whatever has changed since then. */
const goOn = async (run: ServiceRun, releaseId: string, task: TaskToRun | null): Promise<void> => {
  await enter(run, 'working')
  const release = await run.step('release', { deadlineMs: minute }, async () => {
    const opened = await openOwn(run, releaseId)
    if (opened === null) throw new DeploymentError('release_missing', 'The release no longer exists.')
    return opened.release
  })
  await start(run, release, task)
}

/** It keeps its instances, and requests are treated by the new configuration from now on. */
const reroute = async (run: ServiceRun, release: Release): Promise<void> => {
  await enter(run, 'working')
  run.log.line('release', 'Only the treatment of requests has changed: the instances stay as they are.')
  await rollOut(run, release)
}

/** It keeps its instances and its release. */
const skipUnchanged = async (run: ServiceRun): Promise<void> => {
  run.unchanged = true
  run.log.line('compare', 'No changes; skipping.')
  // A forced event has deployed the configuration, but not its schedule.
  await setClocks(run)
}

/** An older release again: no source and no image are made, so that it serves again within moments. */
const rollBack = async (run: ServiceRun, releaseId: string): Promise<void> => {
  const { step } = run
  await enter(run, 'working')
  const old = await openOwn(run, releaseId)
  if (old === null) throw new DeploymentError('release_missing', 'The release no longer exists.')
  await checkVolumes(run, old.release.workload, { isOlder: true })
  await countAgain(run, old)
  const image = await imageFor(run, old)
  const release = await step('release', { deadlineMs: minute }, () => freezeAgain(run, old, image))
  await start(run, release, taskFor(release.workload.tasks, 'START'))
}

/** The same release in new instances; a built image that is lost is built again. */
export const restart = async (run: ServiceRun): Promise<void> => {
  const { service, step } = run
  await enter(run, 'working')
  const current = service.currentReleaseId === null ? null : await openOwn(run, service.currentReleaseId)
  if (current === null) throw new DeploymentError('not_deployed', 'The service is not deployed.')
  const image = await imageFor(run, current)
  const release = await step('release', { deadlineMs: minute }, () => freezeAgain(run, current, image))
  await rollOut(run, release)
}

/** Ends the instances; volumes, routes and the record stay. */
export const stop = async (run: ServiceRun): Promise<void> => {
  await enter(run, 'working')
  await runEnding(run, 'STOP')
  await desire(run, 'STOPPED')
  await endRuns(run)
  await converge(run, await stopped(run))
}

/** Removes all objects and data of a service; for a delete, its row is deleted at the end of the deployment. */
export const remove = async (run: ServiceRun): Promise<void> => {
  const { step, claim, service } = run
  await enter(run, 'working')
  await runEnding(run, 'DELETE')
  await desire(run, 'NONE')
  await endRuns(run)
  await converge(run, await absent(run))
  if (claim.action === 'DELETE')
    await step('retire', { deadlineMs: 2 * minute, remember: false }, (signal) => dropImagesOf(run, signal))
  // Resources that an uninstall kept are still managed: without their state they could not be changed or destroyed.
  if (claim.action !== 'UNINSTALL' || service.requested.skipEnding !== true) await forgetRuns(run)
}

export const actions: Record<DeploymentAction, (run: ServiceRun) => Promise<void>> = {
  DEPLOY: deploy,
  RESTART: restart,
  STOP: stop,
  UNINSTALL: remove,
  DELETE: remove,
}

/**
 * After a failure or a cancel before the switch: removes the new version, routes requests as before, and starts again
 * everything that was stopped for the new version.
 */
export const undo = async (run: ServiceRun, signal: AbortSignal): Promise<void> => {
  const { service } = run
  await endOwnTask(run, signal)
  // A service that runs only tasks has no instances.
  const wasRunning = !runsAlone(run) && service.desired === 'RUNNING' && service.currentReleaseId !== null
  const current = wasRunning ? await openOwn(run, service.currentReleaseId!) : null
  await convergeBack(run, current?.workload ?? null, signal)
}

/** A canceled stop: the former instances run again. */
export const undoStop = async (run: ServiceRun, signal: AbortSignal): Promise<void> => {
  await endOwnTask(run, signal)
  if (run.service.desired !== 'RUNNING') return
  await desire(run, 'RUNNING')
  await undo(run, signal)
  await showRunning(run, runsAlone(run) ? 'STOPPED' : 'RUNNING')
}

const ownIds = ({ claim, service }: ServiceRun) => ({
  organizationId: claim.organizationId,
  projectId: service.projectId,
  environmentId: claim.environmentId,
  serviceId: service.id,
  revision: claim.id,
})

const desire = (run: ServiceRun, desired: 'RUNNING' | 'STOPPED' | 'NONE'): Promise<unknown> =>
  withClaim(run.parts.database, run.claim, (tx) =>
    tx.query(
      `update service_state set desired = $2, running_state = $3, problem = null, restarts = null where service_id = $1`,
      [run.service.id, desired, desired === 'RUNNING' ? 'STARTING' : 'STOPPED'],
    ),
  )
