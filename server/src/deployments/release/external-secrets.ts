/**
 * Secrets of external managers in a deployment: read once for each service, and frozen with its release. Later
 * restarts and repairs use those values.
 */

import type { Fill } from '../desired/variables-now.ts'
import type { EffectiveVariables } from '../parts.ts'
import type { ServiceRun } from '../progress/service-run.ts'
import type { OpenedRelease } from './releases.ts'

const deadlineMs = 60_000

type External = NonNullable<EffectiveVariables['external']>
type Reference = External[number]

const nameOf = ({ variableId, accessId, reference }: Reference): string =>
  JSON.stringify([variableId, accessId, reference])

/** The values that each run has read, for its build and its release alike. */
const known = new WeakMap<ServiceRun, Map<string, string>>()

const read = async (run: ServiceRun, missing: External, signal: AbortSignal): Promise<Map<string, string>> => {
  const { parts, claim } = run
  const found = (await parts.secretManagers.read(claim.organizationId, missing, signal)).reveal()
  const values = known.get(run) ?? new Map<string, string>()
  known.set(run, values)
  for (const one of missing) values.set(nameOf(one), found.get(one.variableId) ?? '')
  return values
}

const missingOf = (run: ServiceRun, external: External): External =>
  external.filter((one) => known.get(run)?.has(nameOf(one)) !== true)

/** Replaces references with present values. */
export const fillNow =
  (run: ServiceRun): Fill =>
  async (variables) => {
    const { external = [], fill } = variables
    if (external.length === 0 || fill === undefined) return variables
    const missing = missingOf(run, external)
    if (missing.length > 0)
      // None of it may be stored as the result of a step.
      await run.step(
        'secrets',
        { deadlineMs, remember: false },
        async (signal) => void (await read(run, missing, signal)),
      )
    const values = known.get(run)!
    return fill(new Map(external.map((one) => [one.variableId, values.get(nameOf(one))!])))
  }

type Released = Pick<OpenedRelease, 'environment'> | null

const releasedIn = (release: Released): Map<string, string> =>
  new Map((release?.environment.external ?? []).map((one) => [nameOf(one), one.value ?? '']))

/** For a plan, which asks no manager: the values of the running release, as long as the references are the same. */
export const fillAsReleased =
  (release: Released): Fill =>
  async (variables) => {
    const { external = [], fill } = variables
    if (external.length === 0 || fill === undefined) return variables
    const before = releasedIn(release)
    return fill(new Map(external.map((one) => [one.variableId, before.get(nameOf(one)) ?? nameOf(one)])))
  }

/** Whether the values still equal those of the release. Asks the managers, if there are any references. */
export const areAsReleased = async (
  run: ServiceRun,
  { external = [] }: EffectiveVariables,
  release: Released,
  signal: AbortSignal,
): Promise<boolean> => {
  if (external.length === 0) return true
  const missing = missingOf(run, external)
  const values = missing.length === 0 ? known.get(run)! : await read(run, missing, signal)
  const before = releasedIn(release)
  return external.every((one) => before.get(nameOf(one)) === values.get(nameOf(one)))
}
