/**
 * The stages of an environment and the order of a deployment. Pure. Every environment begins with the same four stages;
 * their ids are made from its own, so that they need no rows and can be found again.
 */
import { type Kind, kinds } from '../../kinds.ts'
import type { DeploymentAction } from '../deployments.ts'

export interface Stage {
  id: string
  name: string
  description: string
  /** 0 is first to be deployed. */
  order: number
}

const defaults = [
  { name: 'DATABASE DEFAULT', description: 'Databases' },
  { name: 'JOB DEFAULT', description: 'Jobs' },
  { name: 'CONTAINER DEFAULT', description: 'Containers and charts' },
  { name: 'APPLICATION DEFAULT', description: 'Applications' },
]

export const defaultOrder = (kind: Kind): number => kinds[kind].stage

const versionAt = 14

/** An id derived from another: its own version, and the last digit changed by `turn`. Inverse: `sourcesOf`. */
const derivedId = (id: string, turn: number): string => {
  const last = (Number.parseInt(id.at(-1)!, 16) ^ turn).toString(16)
  return `${id.slice(0, versionAt)}8${id.slice(versionAt + 1, -1)}${last}`
}

export const defaultStageId = (environmentId: string, order: number): string => derivedId(environmentId, order)

export const environmentRuleId = (environmentId: string): string => derivedId(environmentId, 4)

/** Ids of the environments, one for each default stage, that a stage's id may belong to. */
export const environmentsOfStage = (stageId: string): string[] => {
  const id = stageId.toLowerCase()
  if (id[versionAt] !== '8') return []
  return defaults.map((_, order) => {
    const turned = derivedId(id, order)
    return `${turned.slice(0, versionAt)}4${turned.slice(versionAt + 1)}`
  })
}

export const defaultStageName = (order: number): string => defaults[order]?.name ?? ''

export const defaultStages = (environmentId: string): Stage[] =>
  defaults.map((stage, order) => ({ ...stage, id: defaultStageId(environmentId, order), order }))

/** The stage that a service was put in, else the default one of its kind; if that was deleted, the last one. */
export const stageOf = (
  environmentId: string,
  stages: readonly Stage[],
  service: { stageId: string | null; defaultOrder: number },
): Stage => {
  const at = (id: string | null) => stages.find((stage) => stage.id === id)
  return at(service.stageId) ?? at(defaultStageId(environmentId, service.defaultOrder)) ?? stages.at(-1)!
}

/** Services by stage, in the order of execution: up the stages to deploy, down to stop, uninstall and delete. */
export const inStages = <T extends { stage: number }>(action: DeploymentAction, services: readonly T[]): T[][] => {
  const stages = new Map<number, T[]>()
  for (const service of services) stages.set(service.stage, [...(stages.get(service.stage) ?? []), service])
  const ascending = [...stages].sort(([a], [b]) => a - b).map(([, members]) => members)
  return action === 'STOP' || action === 'UNINSTALL' || action === 'DELETE' ? ascending.reverse() : ascending
}
