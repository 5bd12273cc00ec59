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
import { endOwnTask, endRuns, eventTask, pullDeadlineMs, runEnding, runOnce } from './jobs.ts'
import { makeImage } from './make-image.ts'
import { hold, makeCurrent, openOwn } from './release-run.ts'
import { currentRelease, freezeRelease, type Release } from './releases.ts'
import { forgetRoutes, readHosts, routesFor, targetsOf } from './routes.ts'
import { enter, type ServiceRun } from './service-run.ts'
import { environmentNow } from './variables-now.ts'
import { aliasesOf, fingerprint, freezeWorkload, mustStopFirst, wantedOf } from './workload.ts'

const minute = 60_000
export const drainTimeoutMs = 30_000

/** New code or configuration: source, image, release, then the rollout, or the job's run. */
export const deploy = async (run: ServiceRun): Promise<void> => {
  const { parts, service, step, claim } = run
  const kind = kindOf(parts, service.kind)
  const task = eventTask(run)
  const wanted = wantedOf(kind, service.spec)
  const readVariables = () => environmentNow(parts, kind, claim.organizationId, service)
  const made = await makeImage(run, wanted.source, readVariables)
  const variables = await readVariables()
  await enter(run, 'working')
  const ids = { ...ownIds(run), aliases: aliasesOf(service.name, service.id) }
  const release = await step('release', { deadlineMs: minute }, () =>
    freezeRelease(
      parts.database,
      parts.sealer,
      {
        organizationId: claim.organizationId,
        serviceId: service.id,
        deploymentId: claim.id,
        ...made,
        workload: freezeWorkload(ids, wanted.spec),
        hash: fingerprint(parts.fingerprintKey, wanted.source, wanted.spec, variables),
      },
      variables,
    ),
  )
  if (task === null) await rollOut(run, release)
  else await runOnce(run, release, task)
}

/** The same release in new instances. */
export const restart = async (run: ServiceRun): Promise<void> => {
  const { parts, service, step, claim } = run
  await enter(run, 'working')
  const release = await step('release', { deadlineMs: minute }, async () => {
    const current = service.currentReleaseId === null ? null : await openOwn(run, service.currentReleaseId)
    if (current === null) throw new DeploymentError('not_deployed', 'The service is not deployed.')
    const { id: _, ...copy } = current.release
    const workload = { ...copy.workload, revision: claim.id }
    return freezeRelease(
      parts.database,
      parts.sealer,
      { ...copy, deploymentId: claim.id, workload },
      current.environment,
    )
  })
  await step('pull', { deadlineMs: pullDeadlineMs }, (signal) => hold(run, release, signal))
  await rollOut(run, release)
}

/** Ends the instances; volumes, routes and the record stay. */
export const stop = async (run: ServiceRun): Promise<void> => {
  const { parts, service, step } = run
  await enter(run, 'working')
  await runEnding(run, 'STOP')
  await desire(run, 'STOPPED')
  await endRuns(run)
  await step('switch', { deadlineMs: minute, remember: false }, () => point(run, 'stopped', []))
  await step('drain', { deadlineMs: drainTimeoutMs + minute, remember: false }, (signal) =>
    drainOthers(run, null, signal),
  )
  const graceMs = await stopGraceMs(run)
  await step('retire', { deadlineMs: 2 * minute + graceMs, remember: false }, async (signal) => {
    await parts.runtime.retire(service.id, null, graceMs, signal)
  })
}

/** Removes all that runs or is stored for a service; for a delete, its row goes with the end of the deployment. */
export const remove = async (run: ServiceRun): Promise<void> => {
  const { parts, service, step } = run
  await enter(run, 'working')
  await runEnding(run, 'DELETE')
  await desire(run, 'NONE')
  await endRuns(run)
  await step('switch', { deadlineMs: minute, remember: false }, async () => {
    await parts.router.setService(service.id, forgetRoutes)
  })
  const graceMs = await stopGraceMs(run)
  await step('retire', { deadlineMs: 2 * minute + graceMs, remember: false }, async (signal) => {
    await parts.runtime.retire(service.id, null, graceMs, signal)
    await parts.runtime.removeService(service.id, signal)
  })
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
  const { parts, service } = run
  await endOwnTask(run, signal)
  const wasRunning = service.desired === 'RUNNING' && service.currentReleaseId !== null
  const current = wasRunning ? await openOwn(run, service.currentReleaseId!) : null
  if (current !== null) await bringBack(run, current.workload, signal)
  else await point(run, 'stopped', [])
  await parts.runtime.retire(service.id, current?.release.deploymentId ?? null, await stopGraceMs(run), signal)
}

const bringBack = async (run: ServiceRun, workload: Workload, signal: AbortSignal): Promise<void> => {
  const { parts, service } = run
  if (mustStopFirst(workload)) await parts.runtime.retire(service.id, workload.revision, workload.stopGraceMs, signal)
  const instances = await parts.runtime.apply(workload, (text) => run.log.line('start', text), signal)
  await point(run, 'up', instances)
}

/** A canceled stop: what ran before runs again. */
export const undoStop = async (run: ServiceRun, signal: AbortSignal): Promise<void> => {
  await endOwnTask(run, signal)
  if (run.service.desired !== 'RUNNING') return
  await desire(run, 'RUNNING')
  await undo(run, signal)
}

const point = async (run: ServiceRun, state: 'up' | 'starting' | 'stopped', instances: readonly Instance[]) => {
  const { parts, service } = run
  const hosts = await readHosts(parts.database, service.id)
  await parts.router.setService(service.id, routesFor(hosts, state, instances))
  return hosts
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
  const { parts, step, service } = run
  const opened = await openOwn(run, release.id)
  if (opened === null) throw new Error(`release ${release.id} is gone`)
  const { workload, environment } = opened
  const tell = (name: string) => (text: string) => run.log.line(name, text)
  if (mustStopFirst(workload)) {
    run.log.line('start', 'The service has volumes: the running version stops before the new one starts.')
    await step('stop-first', { deadlineMs: 2 * minute + workload.stopGraceMs, remember: false }, (signal) =>
      parts.runtime.retire(service.id, workload.revision, workload.stopGraceMs, signal),
    )
  }
  if (service.desired !== 'RUNNING') await point(run, 'starting', [])
  const started = step('start', { deadlineMs: 5 * minute, remember: false }, (signal) =>
    parts.runtime.apply(workload, tell('start'), signal),
  )
  await started.catch(scrub(environment.secretValues))
  const ready = step('ready', { deadlineMs: workload.readyTimeoutMs + minute, remember: false }, (signal) =>
    parts.runtime.ready(workload, tell('ready'), signal),
  )
  const instances = await ready.catch(scrub(environment.secretValues))
  await step('switch', { deadlineMs: minute, remember: false }, () => switchTo(run, release, instances))
  await tidyUp(run, workload)
}

/** The moment the new version takes over: traffic first, then the pointer that says so. */
const switchTo = async (run: ServiceRun, release: Release, instances: readonly Instance[]): Promise<void> => {
  const { parts } = run
  run.signal.throwIfAborted()
  const hosts = await point(run, 'up', instances)
  await makeCurrent(run, release, 'RUNNING')
  for (const { host } of hosts) run.log.line('switch', `Requests to ${parts.router.url(host)} go to the new version.`)
}

/** Ends the versions before. A cancel that comes now only shortens the wait for requests under way. */
const tidyUp = async (run: ServiceRun, workload: Workload): Promise<void> => {
  const { parts, step, service } = run
  const drained = step('drain', { deadlineMs: drainTimeoutMs + minute, remember: false }, (signal) =>
    drainOthers(run, workload.revision, signal),
  )
  await drained.catch((error: unknown) => {
    if (!isCancel(run)) throw error
  })
  const signal = AbortSignal.timeout(2 * minute + workload.stopGraceMs)
  await parts.runtime.retire(service.id, workload.revision, workload.stopGraceMs, signal)
}

/** Waits for requests under way to instances of other revisions than `keep`. */
const drainOthers = async (run: ServiceRun, keep: string | null, signal: AbortSignal): Promise<void> => {
  const { parts, service } = run
  const others = (await parts.runtime.observe([service.id])).filter((instance) => instance.revision !== keep)
  if (others.length === 0) return
  const { remaining } = await parts.router.drain(targetsOf(others), drainTimeoutMs, signal)
  if (remaining > 0) run.log.line('drain', `${remaining} requests to the old version were still under way after 30 s.`)
}

const desire = (run: ServiceRun, desired: 'RUNNING' | 'STOPPED' | 'NONE'): Promise<unknown> =>
  withClaim(run.parts.database, run.claim, (tx) =>
    tx.query(`update service_state set desired = $2, running_state = $3 where service_id = $1`, [
      run.service.id,
      desired,
      desired === 'RUNNING' ? 'STARTING' : 'STOPPED',
    ]),
  )
