/**
 * The effects of a deployment, before it happens. Pure: the facts are read elsewhere (plan/facts.ts), and the
 * deployment uses the same function to decide whether a service is skipped, so that the plan shows the real changes.
 */
import type { ServiceType } from '../../kinds.ts'
import type { Changes, DeploymentAction, Effect, Plan, PlannedService, VersionChoice } from '../deployments.ts'
import { isSameVersion, mayBeSkipped, type Skippable, type Version } from '../release/version-change.ts'
import { inStages } from '../request/stages.ts'

export interface ServiceFacts extends Skippable {
  id: string
  name: string
  serviceType: ServiceType
  stage: number
  stageName: string
  isSkipped: boolean
  refusal: string | null
  isRollback: boolean
  /** Null for a service that is not deployed. */
  versionChoice: VersionChoice | null
  /** Configuration and variables equal the deployed ones. */
  sameSetup: boolean
  /** They differ from the deployed ones only in how requests are treated. */
  reroutes: boolean
  version: Version | null
  isUp: boolean
  /** Its image would have to be built. */
  builds: boolean
  changes: Changes
  /** Set fields that are only recorded. */
  recorded: string[]
  /** The duration of the same action before; null if it never succeeded. */
  usualSeconds: number | null
}

export const noChanges: Changes = {
  image: null,
  commit: null,
  configuration: [],
  variables: { added: [], changed: [], removed: [] },
}

const isUnchanged = ({ sameSetup, version, isUp }: ServiceFacts): boolean =>
  sameSetup && version !== null && isSameVersion(version) && isUp

/** The running instances are kept. */
const keepsInstances = ({ reroutes, isRollback, running, runsTask, version, isUp }: ServiceFacts): boolean =>
  reroutes && !isRollback && running && !runsTask && version !== null && isSameVersion(version) && isUp

type Verdict = Pick<PlannedService, 'effect' | 'reason'>

const whyVersion = ({ of, to }: Version): string => {
  if (of === 'image') return 'The image has changed.'
  if (of === 'chart')
    return to === null ? 'Its files of values may have changed.' : 'The version of the chart has changed.'
  return to === null
    ? 'The head of the branch cannot be read at the moment; assuming a new commit.'
    : 'The branch has a new commit.'
}

const whyDeployed = (facts: ServiceFacts): string => {
  if (facts.isRollback) return 'Rolls back to an earlier release.'
  if (!facts.released) return 'Not deployed yet.'
  const { version } = facts
  if (version !== null && !isSameVersion(version)) return whyVersion(version)
  if (keepsInstances(facts)) return 'Only the treatment of requests has changed; no instance restarts.'
  if (!facts.sameSetup) return 'The configuration or variables have changed.'
  if (facts.runsTask) return 'Runs on every deployment.'
  if (!facts.running) return 'Currently stopped.'
  return facts.isUp ? 'No changes, but it was requested explicitly.' : 'Not all instances are running.'
}

const deployed = (facts: ServiceFacts): Verdict => {
  if (!facts.isRollback && mayBeSkipped(facts) && isUnchanged(facts))
    return { effect: 'UNTOUCHED', reason: 'No changes.' }
  return { effect: facts.runsTask ? 'RUN' : facts.builds ? 'BUILD' : 'ROLL_OUT', reason: whyDeployed(facts) }
}

const ended = ({ released, running }: ServiceFacts, effect: 'STOP' | 'DELETE'): Verdict => {
  if (running)
    return {
      effect,
      reason: effect === 'STOP' ? 'Currently running.' : 'Currently running; its stored data will be deleted.',
    }
  if (effect === 'STOP' || !released) return { effect: 'UNTOUCHED', reason: 'Not running.' }
  return { effect, reason: 'Currently stopped; its stored data will be deleted.' }
}

const verdicts: Record<DeploymentAction, (facts: ServiceFacts) => Verdict> = {
  DEPLOY: deployed,
  RESTART: () => ({ effect: 'RESTART', reason: 'Restarts the instances without other changes.' }),
  STOP: (facts) => ended(facts, 'STOP'),
  UNINSTALL: (facts) => ended(facts, 'DELETE'),
  DELETE: (facts) =>
    facts.released
      ? ended(facts, 'DELETE')
      : { effect: 'DELETE', reason: 'Not running; only its configuration is deleted.' },
}

const verdictOf = (action: DeploymentAction, facts: ServiceFacts): Verdict => {
  if (facts.isSkipped) return { effect: 'SKIPPED', reason: 'Skipped in its deployment stage.' }
  if (facts.refusal !== null) return { effect: 'REFUSED', reason: facts.refusal }
  return verdicts[action](facts)
}

const idle: ReadonlySet<Effect> = new Set(['UNTOUCHED', 'SKIPPED', 'REFUSED'])

const isInterrupted = (effect: Effect, facts: ServiceFacts): boolean => {
  const { running, stopsFirst, runsTask } = facts
  if (idle.has(effect) || !running) return false
  if (effect === 'ROLL_OUT' && keepsInstances(facts)) return false
  return effect === 'STOP' || effect === 'DELETE' || (stopsFirst && !runsTask)
}

const planService = (action: DeploymentAction, facts: ServiceFacts): PlannedService => {
  const { effect, reason } = verdictOf(action, facts)
  const isIdle = idle.has(effect)
  return {
    id: facts.id,
    name: facts.name,
    service_type: facts.serviceType,
    effect,
    builds: !isIdle && facts.builds,
    downtime: isInterrupted(effect, facts),
    reason,
    expected_duration_sec: isIdle ? 0 : facts.usualSeconds,
    version_choice: facts.versionChoice,
    git_commit_id: facts.version?.of === 'commit' ? facts.version.to : null,
    changes: isIdle ? noChanges : facts.changes,
    not_applied: facts.recorded,
  }
}

/** Stages follow one another, services of a stage run in parallel; null if one has no history. */
const durationOf = (stages: Plan['stages']): number | null => {
  const longest = stages.map(({ services }) => services.map((each) => each.expected_duration_sec))
  if (longest.flat().includes(null)) return null
  return longest.reduce((sum, seconds) => sum + Math.max(0, ...(seconds as number[])), 0)
}

/** The plan of one action, in the order of execution. */
export const planOf = (environmentId: string, action: DeploymentAction, all: readonly ServiceFacts[]): Plan => {
  const stages = inStages(action, all).map((members) => ({
    name: members[0]!.stageName,
    services: members.map((facts) => planService(action, facts)),
  }))
  return {
    environment_id: environmentId,
    action,
    expected_duration_sec: durationOf(stages),
    downtime: stages.some(({ services }) => services.some(({ downtime }) => downtime)),
    stages,
  }
}
