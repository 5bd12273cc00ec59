/** The props of the pages of a service, and the pages that each kind has. */
import * as read from '../../api/queries.ts'

export interface Shown {
  service: read.Service
  status: read.ServiceStatus | undefined
}

export const sections = {
  overview: 'Overview',
  runs: 'Runs',
  state: 'State',
  deployments: 'Deployments',
  logs: 'Logs',
  variables: 'Variables',
  domains: 'Domains',
  settings: 'Settings',
  advanced: 'Advanced',
} as const

export type Section = keyof typeof sections

/** The pages of each kind, in their order. */
const sectionsFor: Record<read.Kind, readonly Section[]> = {
  application: ['overview', 'deployments', 'logs', 'variables', 'domains', 'settings', 'advanced'],
  container: ['overview', 'deployments', 'logs', 'variables', 'domains', 'settings', 'advanced'],
  database: ['overview', 'deployments', 'logs', 'settings'],
  job: ['overview', 'runs', 'deployments', 'logs', 'variables', 'settings', 'advanced'],
  helm: ['overview', 'deployments', 'logs', 'variables', 'domains', 'settings', 'advanced'],
  terraform: ['overview', 'state', 'deployments', 'logs', 'variables', 'settings', 'advanced'],
  argocdApp: ['overview', 'deployments', 'settings'],
}

/** Only jobs with a schedule have runs besides their deployments. */
export const isCron = ({ raw }: read.Service): boolean => raw.job_type === 'CRON'

export const sectionsOf = (service: read.Service): readonly Section[] =>
  sectionsFor[service.kind].filter((section) => section !== 'runs' || isCron(service))

export const isKind = (word: string): word is read.Kind => read.kinds.includes(word as read.Kind)

/** Kinds whose instances keep running. */
export const staysUp = ({ kind }: read.Service): boolean => ['application', 'container', 'database'].includes(kind)
