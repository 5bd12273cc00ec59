/**
 * What happens to one service in one deployment, told in order. Each step is durable and idempotent; a killed process
 * goes on at the first unfinished one. Until the switch a failure leaves the old version serving and removes the new
 * one; from the switch on the new version is current and only tidying up remains.
 */
import { createMasker } from '../builds/log-mask.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { Instance, Workload } from '../runtimes/runtime.ts'
import { withClaim } from '../work/queue.ts'
import { isCancel } from './canceled.ts'
import type { DeploymentAction } from './deployments.ts'
import { kindOf } from './engine-parts.ts'
import {
  asideEvents,
  endOwnTask,
  endRuns,
  eventTask,
  forgetRuns,
  pullDeadlineMs,
  runAside,
  runBeside,
  runEnding,
  runOnce,
  runsAlone,
  setClocks,
  showRunning,
  unlock,
} from './jobs.ts'
import { makeImage } from './make-image.ts'
import {
  drainOthers,
  drainTimeoutMs,
  leavePorts,
  point,
  pointBack,
  pointNowhere,
  takePorts,
  tellRoutes,
} from './point.ts'
import { dropImagesOf } from './pulled-images.ts'
import { countAgain, freezeAgain, hold, makeCurrent, openOwn } from './release-run.ts'
import { currentRelease, freezeRelease, type Release } from './releases.ts'
import { forgetRoutes } from './routes.ts'
import { enter, type ServiceRun } from './service-run.ts'
import { isAlone, taskFor } from './tasks.ts'
import { isUntouched } from './untouched.ts'
import { environmentNow } from './variables-now.ts'
import { aliasesOf, fingerprint, freezeWorkload, mustStopFirst, thawWorkload, wantedOf } from './workload.ts'

const minute = 60_000

/** New code or configuration: source, image, release, then the rollout, or the job's run. */
export const deploy = async (run: ServiceRun): Promise<void> => {
  const { parts, service, step, claim } = run
  if (service.requested.releaseId !== undefined) return rollBack(run, service.requested.releaseId)
  const kind = kindOf(parts, service.kind)
  const { event, task } = eventTask(run)
  if (event === 'UNLOCK') return unlock(run)
  const wanted = wantedOf(kind, service.spec)
  if (task !== null && !isAlone(wanted.spec)) return runBeside(run, task)
  if (await isUntouched(run, wanted)) return leave(run)
  const readVariables = () => environmentNow(parts, kind, claim.organizationId, service)
  const made = await makeImage(run, wanted.source, readVariables)
  const variables = await readVariables()
  for (const key of variables.leftOut ?? [])
    run.log.line('release', `${key} is skipped: its secret manager access no longer exists.`, 'error')
  await enter(run, 'working')
  const ids = { ...ownIds(run), aliases: aliasesOf(service.name, service.id) }
  const frozen = freezeWorkload(ids, wanted.spec, wanted.source)
  if (task !== null && asideEvents.has(event))
    return runAside(run, { workload: thawWorkload(frozen, made.image, variables), environment: variables }, task)
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
      variables,
    ),
  )
  if (isAlone(frozen)) await runOnce(run, release, task)
  else await rollOut(run, release)
}

/** It keeps its instances and its release. */
const leave = async (run: ServiceRun): Promise<void> => {
  run.untouched = true
  run.log.line('compare', 'No changes; skipping.')
  // An event that was forced has deployed the configuration, but not its clock.
  await setClocks(run)
}

/** An older release once more: no source and no image are made, so that it serves again within moments. */
const rollBack = async (run: ServiceRun, releaseId: string): Promise<void> => {
  const { step } = run
  await enter(run, 'working')
  const release = await step('release', { deadlineMs: minute }, async () => {
    const old = await openOwn(run, releaseId)
    if (old === null) throw new DeploymentError('release_missing', 'The release no longer exists.')
    await countAgain(run, old)
    return freezeAgain(run, old)
  })
  await step('pull', { deadlineMs: pullDeadlineMs }, (signal) => hold(run, release, signal))
  const { workload } = release
  if (isAlone(workload)) await runOnce(run, release, taskFor(workload.tasks, 'START'))
  else await rollOut(run, release)
}

/** The same release in new instances. */
export const restart = async (run: ServiceRun): Promise<void> => {
  const { service, step } = run
  await enter(run, 'working')
  const release = await step('release', { deadlineMs: minute }, async () => {
    const current = service.currentReleaseId === null ? null : await openOwn(run, service.currentReleaseId)
    if (current === null) throw new DeploymentError('not_deployed', 'The service is not deployed.')
    return freezeAgain(run, current)
  })
  await step('pull', { deadlineMs: pullDeadlineMs }, (signal) => hold(run, release, signal))
  await rollOut(run, release)
}

/** Ends the instances; volumes, routes and the record stay. */
export const stop = async (run: ServiceRun): Promise<void> => {
  const { cluster, ref, step } = run
  await enter(run, 'working')
  await runEnding(run, 'STOP')
  await desire(run, 'STOPPED')
  await endRuns(run)
  await step('switch', { deadlineMs: minute, remember: false }, () => pointNowhere(run))
  await step('drain', { deadlineMs: drainTimeoutMs + minute, remember: false }, (signal) =>
    drainOthers(run, null, signal),
  )
  const graceMs = await stopGraceMs(run)
  await step('retire', { deadlineMs: 2 * minute + graceMs, remember: false }, async (signal) => {
    await cluster.runtime.retire(ref, null, graceMs, signal)
  })
}

/** Removes all that runs or is stored for a service; for a delete, its row goes with the end of the deployment. */
export const remove = async (run: ServiceRun): Promise<void> => {
  const { cluster, ref, step, claim } = run
  await enter(run, 'working')
  await runEnding(run, 'DELETE')
  await desire(run, 'NONE')
  await endRuns(run)
  await step('switch', { deadlineMs: minute, remember: false }, async () => {
    await cluster.ingress.setService(ref.serviceId, forgetRoutes)
  })
  const graceMs = await stopGraceMs(run)
  await step('retire', { deadlineMs: 2 * minute + graceMs, remember: false }, async (signal) => {
    await cluster.runtime.retire(ref, null, graceMs, signal)
    await cluster.runtime.removeService(ref, signal)
    if (claim.action === 'DELETE') await dropImagesOf(run, signal)
  })
  await forgetRuns(run)
}

export const actions: Record<DeploymentAction, (run: ServiceRun) => Promise<void>> = {
  DEPLOY: deploy,
  RESTART: restart,
  STOP: stop,
  UNINSTALL: remove,
  DELETE: remove,
}

/**
 * After a failure or a cancel before the switch: nothing of the new version stays, requests go where they went before,
 * and what had to stop for the new version starts again.
 */
export const undo = async (run: ServiceRun, signal: AbortSignal): Promise<void> => {
  const { cluster, ref, service } = run
  await endOwnTask(run, signal)
  const wasRunning = service.desired === 'RUNNING' && service.currentReleaseId !== null
  const current = wasRunning ? await openOwn(run, service.currentReleaseId!) : null
  if (current !== null) await bringBack(run, current.workload, signal)
  else await pointNowhere(run)
  await cluster.runtime.retire(ref, current?.release.deploymentId ?? null, await stopGraceMs(run), signal)
}

const bringBack = async (run: ServiceRun, workload: Workload, signal: AbortSignal): Promise<void> => {
  const { runtime } = run.cluster
  if (mustStopFirst(workload)) await runtime.retire(run.ref, workload.revision, workload.stopGraceMs, signal)
  const instances = await runtime.apply(workload, (text) => run.log.line('start', text), signal)
  await pointBack(run, workload, instances)
}

/** A canceled stop: what ran before runs again. */
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

const stopGraceMs = async ({ parts, service }: ServiceRun): Promise<number> =>
  (await currentRelease(parts.database, service.id))?.workload.stopGraceMs ?? 10_000

/** Fails as it failed, without the secrets that the program printed. */
const scrub =
  (secrets: readonly string[]) =>
  (error: unknown): never => {
    if (!(error instanceof DeploymentError) || error.lines.length === 0) throw error
    const masker = createMasker(secrets)
    const lines = (masker.write(error.lines.join('\n')) + masker.end()).split('\n')
    throw new DeploymentError(error.code, error.message, { next: error.next, lines, cause: error })
  }

/** start → ready → switch → drain → retire. */
const rollOut = async (run: ServiceRun, release: Release): Promise<void> => {
  const { step, service, ref } = run
  const { runtime } = run.cluster
  const opened = await openOwn(run, release.id)
  if (opened === null) throw new Error(`release ${release.id} no longer exists`)
  const { workload, environment } = opened
  const tell = (name: string) => (text: string) => run.log.line(name, text)
  if (mustStopFirst(workload)) {
    run.log.line('start', 'The service has volumes: stopping the running version before the new one starts.')
    await step('stop-first', { deadlineMs: 2 * minute + workload.stopGraceMs, remember: false }, (signal) =>
      runtime.retire(ref, workload.revision, workload.stopGraceMs, signal),
    )
  }
  await takePorts(run, workload)
  if (service.desired !== 'RUNNING') await point(run, workload, 'starting', [])
  const started = step('start', { deadlineMs: 5 * minute, remember: false }, (signal) =>
    runtime.apply(workload, tell('start'), signal),
  )
  await started.catch(scrub(environment.secretValues))
  const ready = step('ready', { deadlineMs: workload.readyTimeoutMs + minute, remember: false }, (signal) =>
    runtime.ready(workload, tell('ready'), signal),
  )
  const instances = await ready.catch(scrub(environment.secretValues))
  await step('switch', { deadlineMs: minute, remember: false }, () => switchTo(run, release, instances))
  await tidyUp(run, workload)
}

/** The moment the new version takes over: traffic first, then the pointer that says so. */
const switchTo = async (run: ServiceRun, release: Release, instances: readonly Instance[]): Promise<void> => {
  run.signal.throwIfAborted()
  const routes = await point(run, release.workload, 'up', instances)
  await makeCurrent(run, release, 'RUNNING')
  await leavePorts(run)
  tellRoutes(run, routes)
}

/** Ends the versions before. A cancel that comes now only shortens the wait for requests under way. */
const tidyUp = async (run: ServiceRun, workload: Workload): Promise<void> => {
  const { cluster, ref, step } = run
  const drained = step('drain', { deadlineMs: drainTimeoutMs + minute, remember: false }, (signal) =>
    drainOthers(run, workload.revision, signal),
  )
  await drained.catch((error: unknown) => {
    if (!isCancel(run)) throw error
  })
  const signal = AbortSignal.timeout(2 * minute + workload.stopGraceMs)
  await cluster.runtime.retire(ref, workload.revision, workload.stopGraceMs, signal)
}

const desire = (run: ServiceRun, desired: 'RUNNING' | 'STOPPED' | 'NONE'): Promise<unknown> =>
  withClaim(run.parts.database, run.claim, (tx) =>
    tx.query(`update service_state set desired = $2, running_state = $3 where service_id = $1`, [
      run.service.id,
      desired,
      desired === 'RUNNING' ? 'STARTING' : 'STOPPED',
    ]),
  )
