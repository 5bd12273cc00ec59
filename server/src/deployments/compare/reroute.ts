/**
 * A change only of how requests reach a service and are treated: the running instances stay, and the router is
 * updated. The deployment and its plan use the same function.
 */
import { isDeepStrictEqual } from 'node:util'
import type { WorkloadPort } from '../../runtimes/runtime.ts'
import { driverOf } from '../artifacts/drivers.ts'
import { environmentNow } from '../desired/variables-now.ts'
import { type desiredOf, fingerprint } from '../desired/workload.ts'
import { type DeploymentParts, type EffectiveVariables, kindOf } from '../parts.ts'
import type { ServiceRun } from '../progress/service-run.ts'
import { areAsReleased } from '../release/external-secrets.ts'
import { openOwn } from '../release/release-run.ts'
import { freezeRelease, type OpenedRelease, type Release } from '../release/releases.ts'
import { isSameVersion } from '../release/version-change.ts'
import { readScale } from '../status/scale.ts'
import { isUp } from './up-to-date.ts'

type Wanted = ReturnType<typeof desiredOf>

const withoutPaths = (ports: readonly WorkloadPort[]): unknown[] =>
  ports.map(({ publicPath: _p, publicPathRewrite: _r, ...port }) => port)

/** Whether a configuration differs from the deployed one in nothing else. */
export const isReroute = (
  { fingerprintKey }: Pick<DeploymentParts, 'fingerprintKey'>,
  { source, spec }: Wanted,
  { workload }: Pick<Release, 'workload'>,
  variables: EffectiveVariables,
  deployedHash: string | null,
): boolean => {
  if (fingerprint(fingerprintKey, source, spec, variables) === deployedHash) return false
  if (!isDeepStrictEqual(withoutPaths(spec.ports), withoutPaths(workload.ports))) return false
  const { ingress: _, ...rest } = spec
  const { ingress, ports } = workload
  const before = { ...rest, ports, ...(ingress === undefined ? {} : { ingress }) }
  return fingerprint(fingerprintKey, source, before, variables) === deployedHash
}

const deadlineMs = 60_000

/** The new fingerprint; null if the instances have to be replaced. */
const decide = async (run: ServiceRun, wanted: Wanted, current: OpenedRelease): Promise<string | null> => {
  const { parts, cluster, ref, service, claim } = run
  const { organizationId } = claim
  const variables = await environmentNow(parts, kindOf(parts, service.kind), organizationId, service)
  if (!isReroute(parts, wanted, current.release, variables, service.deployedHash)) return null
  const { release } = current
  const signal = AbortSignal.any([run.signal, AbortSignal.timeout(deadlineMs)])
  if (!(await areAsReleased(run, variables, current, signal))) return null
  const next = { parts, cluster, organizationId, requested: service.requested, current: release, signal }
  const version = await driverOf(wanted.source).next(next, wanted.source)
  const { scale } = await readScale(parts.database, service.id)
  if (!isSameVersion(version)) return null
  if (!isUp(release, await cluster.runtime.observe([ref]), scale, claim.wholeEnvironment)) return null
  return fingerprint(parts.fingerprintKey, wanted.source, wanted.spec, variables)
}

/** The release of the running instances, with the new routes; null if they have to be replaced. */
export const rerouted = async (run: ServiceRun, wanted: Wanted): Promise<Release | null> => {
  const { parts, service, claim, step } = run
  if (service.currentReleaseId === null || service.desired !== 'RUNNING') return null
  const current = await openOwn(run, service.currentReleaseId)
  const hash = current === null ? null : await decide(run, wanted, current)
  if (current === null || hash === null) return null
  const { id: _, ...release } = current.release
  const { ingress: __, ...kept } = release.workload
  const { ports, ingress } = wanted.spec
  const workload = { ...kept, ports, ...(ingress === undefined ? {} : { ingress }) }
  return step('release', { deadlineMs }, () =>
    freezeRelease(
      parts.database,
      parts.sealer,
      { ...release, deploymentId: claim.id, workload, hash },
      current.environment,
    ),
  )
}
