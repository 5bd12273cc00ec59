/** The default stages of every environment, in the order of a deployment. Pure. */
import { createHash } from 'node:crypto'

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

/** Which default stage a kind's services are in. */
export const stageOfKind: Record<string, number> = {
  database: 0,
  terraform: 0,
  job: 1,
  container: 2,
  helm: 2,
  argocd_app: 2,
  application: 3,
}

/** A UUID that is always the same for the same words. */
export const steadyId = (...words: readonly string[]): string => {
  const hex = createHash('sha256').update(words.join(' ')).digest('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

export const stagesOf = (environmentId: string): Stage[] =>
  defaults.map((stage, order) => ({ ...stage, id: steadyId('stage', environmentId, String(order)), order }))
