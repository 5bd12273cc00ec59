/** Whether a deploy of a service would change nothing, so that it is skipped. The plan uses the same function. */
import type { Instance } from '../../runtimes/runtime.ts'
import { driverOf } from '../artifacts/drivers.ts'
import { eventTask } from '../desired/tasks.ts'
import { environmentNow } from '../desired/variables-now.ts'
import { type desiredOf, fingerprint } from '../desired/workload.ts'
import { kindOf } from '../parts.ts'
import type { ServiceRun } from '../progress/service-run.ts'
import { areAsReleased } from '../release/external-secrets.ts'
import { openOwn } from '../release/release-run.ts'
import { currentRelease, type Release } from '../release/releases.ts'
import { isSameVersion, mayBeSkipped } from '../release/version-change.ts'
import { atScale, readScale } from '../status/scale.ts'

const deadlineMs = 120_000

/**
 * Every instance of a release runs: `scale` of them, or the number in the release. A sleeping service is up too,
 * except in a deploy of that one service, which must start it.
 */
export const isUp = (
  { workload }: Release,
  seen: readonly Instance[],
  scale: number | null,
  wholeEnvironment: boolean,
): boolean =>
  (wholeEnvironment || scale !== 0) &&
  seen.filter(({ revision, state }) => revision === workload.revision && state === 'running').length >=
    atScale(workload, scale).instances

const wouldChangeNothing = async (
  run: ServiceRun,
  { source, spec }: ReturnType<typeof desiredOf>,
  signal: AbortSignal,
): Promise<boolean> => {
  const { parts, cluster, ref, service, claim } = run
  const variables = await environmentNow(parts, kindOf(parts, service.kind), claim.organizationId, service)
  if (fingerprint(parts.fingerprintKey, source, spec, variables) !== service.deployedHash) return false
  const current = await currentRelease(parts.database, service.id)
  if (current === null) return false
  const isSame = async () => areAsReleased(run, variables, await openOwn(run, current.id), signal)
  if ((variables.external ?? []).length > 0 && !(await isSame())) return false
  const { organizationId } = claim
  const next = { parts, cluster, organizationId, requested: service.requested, current, signal }
  const version = await driverOf(source).next(next, source)
  const { scale } = await readScale(parts.database, service.id)
  return isSameVersion(version) && isUp(current, await cluster.runtime.observe([ref]), scale, claim.wholeEnvironment)
}

/** Decided once in a deployment. Costs nothing where a deploy rolls out in any case. */
export const isUpToDate = async (run: ServiceRun, wanted: ReturnType<typeof desiredOf>): Promise<boolean> => {
  const { service, claim, step } = run
  const may = mayBeSkipped({
    wholeEnvironment: claim.wholeEnvironment,
    stopsFirst: run.cluster.runtime.stopsFirst(wanted.spec),
    runsTask: eventTask(kindOf(run.parts, service.kind), service).task !== null,
    released: service.currentReleaseId !== null,
    running: service.desired === 'RUNNING',
  })
  if (!may) return false
  return step('compare', { deadlineMs }, (signal) => wouldChangeNothing(run, wanted, signal))
}
