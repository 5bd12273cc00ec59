/**
 * From a release to instances that serve: the desired state of a service for its cluster's runtime, whose steps become
 * the deployment's own.
 */
import { createMasker } from '../../builds/engine/log-mask.ts'
import { isRefused, memorySentence, readPromisedWith } from '../../clusters/memory-room.ts'
import { ApiError, DeploymentError } from '../../lib/errors.ts'
import { limitCode, usualLimits } from '../../limits/limits.ts'
import { readPorts, refuseManyPorts } from '../../limits/port-room.ts'
import type { Artifact, Desired, Rollout, Workload } from '../../runtimes/runtime.ts'
import { runningAs, stoppedAs } from '../desired/running.ts'
import { isCancel } from '../progress/canceled.ts'
import type { ServiceRun } from '../progress/service-run.ts'
import { writeRecord } from '../release/record.ts'
import { makeCurrent, openOwn } from '../release/release-run.ts'
import { currentRelease, type Release } from '../release/releases.ts'
import { abilityRefusal } from '../request/refusals.ts'
import { takeInstances } from '../scaling/turns.ts'
import { neverSleeps, noteProblem } from '../status/problems.ts'
import { atScale, readScale, scaleOf } from '../status/scale.ts'
import { policyRefusal } from '../traffic/ingress-settings.ts'
import { claimPorts, openedPorts, releaseUnusedPorts } from '../traffic/published-ports.ts'

const usualGraceMs = 10_000

const graceOf = async ({ parts, service }: ServiceRun): Promise<number> =>
  (await currentRelease(parts.database, service.id))?.workload.stopGraceMs ?? usualGraceMs

export const stopped = async (run: ServiceRun): Promise<Desired> => stoppedAs(run, await graceOf(run))

export const absent = async (run: ServiceRun): Promise<Desired> => ({ state: 'absent', graceMs: await graceOf(run) })

/** Only shown: it does not fail the deployment. */
const showProblem = ({ parts, claim, service }: ServiceRun, message: string): void => {
  noteProblem(parts.database, claim.id, service.id, message).catch((error: unknown) =>
    parts.log.debug({ err: error, serviceId: service.id }, 'the reason why a deployment waits could not be saved'),
  )
}

/** The steps of the runtime are those of the deployment. */
const watched = (run: ServiceRun, serving: () => Promise<void>): Rollout => ({
  serving,
  report(name, text, level) {
    run.log.line(name, text, level === 'warning' ? 'error' : 'info')
    if (level === 'warning') showProblem(run, text)
  },
  async step(name, deadlineMs, work) {
    if (run.committed && name === 'retire') return work(AbortSignal.timeout(deadlineMs))
    try {
      await run.step(name, { deadlineMs, remember: false }, work)
    } catch (error) {
      // A cancel after the switch only shortens the wait for requests in progress.
      if (!run.committed || name !== 'drain' || !isCancel(run)) throw error
    }
  },
})

/** Step by step, visible to the deployment's readers. */
export const converge = async (
  run: ServiceRun,
  desired: Desired,
  serving: () => Promise<void> = async () => {},
): Promise<void> => {
  await takeInstances(run)
  await run.cluster.runtime.converge(run.ref, desired, watched(run, serving), run.signal)
}

/** As many instances of a new version as its predecessor has, which may have to serve as much. */
const scaledAs = async ({ parts, service }: ServiceRun, release: Release, workload: Artifact): Promise<Artifact> => {
  const { scaling, instances } = scaleOf(workload)
  if (scaling === undefined) return workload
  const { scale, releaseId } = await readScale(parts.database, service.id)
  if (service.desired !== 'RUNNING') return workload
  const current = releaseId === null ? null : await currentRelease(parts.database, service.id)
  if (scale !== null && (releaseId === release.id || current?.workload.revision === workload.revision))
    return atScale(workload, scale)
  return atScale(workload, Math.min(scaling.max, Math.max(instances, scale ?? 0)))
}

const tellScaling = ({ log }: ServiceRun, { scaling }: Pick<Workload, 'scaling'>): void => {
  if (scaling?.min === 0 && !scaling.sleeps) log.line('start', neverSleeps)
}

/** Back to the former version: as far as is possible at once. */
export const convergeBack = async (run: ServiceRun, before: Artifact | null, signal: AbortSignal): Promise<void> => {
  await takeInstances(run, signal)
  const desired =
    before === null
      ? await stopped(run)
      : runningAs(run, atScale(before, (await readScale(run.parts.database, run.service.id)).scale))
  const { refused } = await run.cluster.runtime.converge(run.ref, desired, null, signal)
  for (const message of refused) run.parts.log.warn({ serviceId: run.service.id }, message)
}

/** An older release may need ports that were released since. */
const reservePorts = async (
  { parts, claim, service, log }: ServiceRun,
  { ports }: Pick<Workload, 'ports'>,
): Promise<void> => {
  const wanted = openedPorts(ports).map(({ protocol, externalPort: port }) => ({ protocol, port }))
  if (wanted.length === 0) return
  const { organizationId } = claim
  const held = await parts.database.transaction(async (tx) => {
    const before = await readPorts(tx, organizationId)
    const claimed = await claimPorts(tx, service.id, wanted)
    await refuseManyPorts(tx, parts.limits ?? usualLimits, organizationId, before).catch((error: unknown) => {
      throw error instanceof ApiError ? new DeploymentError(limitCode, error.message) : error
    })
    return claimed
  })
  const isHeld = (one: (typeof wanted)[number]) => held.some((h) => h.protocol === one.protocol && h.port === one.port)
  for (const one of wanted)
    if (!isHeld(one))
      log.line('switch', `The ${one.protocol} port ${one.port} now belongs to another service.`, 'error')
}

/** Fails with the same error, without the secrets that the program printed. */
const scrub =
  (secrets: readonly string[]) =>
  (error: unknown): never => {
    if (!(error instanceof DeploymentError)) throw error
    const masked = (text: string): string => {
      const masker = createMasker(secrets)
      return masker.write(text) + masker.end()
    }
    const lines = error.lines.length === 0 ? [] : masked(error.lines.join('\n')).split('\n')
    throw new DeploymentError(error.code, masked(error.message), { next: error.next, lines, cause: error })
  }

/**
 * Logs that the machine has less memory than its running services may use, or fails where the operator has set how much
 * less. Kubernetes places its pods by itself.
 */
const checkMemory = async ({ parts, claim, service, cluster, log }: ServiceRun): Promise<void> => {
  const capacity = cluster.nodes === null ? await cluster.capacity() : null
  if (capacity === null) return
  const promisedMb = await readPromisedWith(parts.database, cluster.key, service.id, claim.id)
  const room = { promisedMb, memoryMb: capacity.memoryMb, overcommitPercent: parts.memoryOvercommit ?? 0 }
  const sentence = memorySentence(room)
  if (sentence === null) return
  if (isRefused(room)) throw new DeploymentError('memory_overcommitted', sentence)
  log.line('start', `Warning: ${sentence}`, 'error')
}

/** Replaces the former release: traffic first, then the pointer to the current release. */
export const rollOut = async (run: ServiceRun, release: Release): Promise<void> => {
  const opened = await openOwn(run, release.id)
  if (opened === null) throw new Error(`release ${release.id} no longer exists`)
  const { environment } = opened
  const frozen = opened.release.workload
  const { artifact } = opened.workload
  const lacking = abilityRefusal(run.cluster.runtime.abilities, { ...frozen, artifact })
  if (lacking !== null) throw new DeploymentError('cluster_unable', lacking)
  const refusal = policyRefusal(frozen.ingress, environment.env)
  if (refusal !== null) throw new DeploymentError('ingress_setting_invalid', refusal)
  if (artifact === 'image') await checkMemory(run)
  await reservePorts(run, frozen)
  const [record] = await Promise.all([writeRecord(run.parts, release), takeInstances(run)])
  const workload = { ...(await scaledAs(run, release, opened.workload)), ...record }
  const scale = scaleOf(workload)
  const takesOver = async (): Promise<void> => {
    await makeCurrent(run, release, scale.instances === 0 ? 'STOPPED' : 'RUNNING', scale)
    await releaseUnusedPorts(run.parts.database, run.service.id)
  }
  tellScaling(run, scale)
  await converge(run, runningAs(run, workload), takesOver).catch(scrub(environment.secretValues))
}
