/**
 * The kinds of services, one row each: everything about a kind outside its own file. Lists, statuses, histories,
 * queues, stages, audit words and variable families follow from it. Data only: it does not know how anything is done.
 * For a new row the compiler reports missing fields, then the missing file (docs/decisions/0017).
 */

export interface KindRow {
  /** Default deployment stage: 0 databases, 1 jobs, 2 containers and charts, 3 applications. */
  stage: 0 | 1 | 2 | 3
  /** Instances stay up and can be restarted, tasks run to completion, charts are installed by helm; apps are given to a cluster's Argo CD. */
  runs: 'instances' | 'tasks' | 'charts' | 'apps'
  /** In the public API an Argo CD has it and it is not created: existing clients have no lists of it. */
  discovered: boolean
  /** The name of the list of its statuses, and of its list in a deploy of several services. */
  plural: string
  /** The same in the stream of running states. */
  runningPlural: string
  /** The fields of its record in that stream besides state and instances. */
  runningFields: 'certificates' | 'triggered action' | 'none'
  /** The version that a deploy of several services can specify. */
  asks: 'commit' | 'image' | 'chart' | 'terraform action' | 'nothing'
  /**
   * Null: it has no variables of its own. With the operation id of their import: it has paths for them besides
   * `/variable`.
   */
  variables: { importId: string | null } | null
  /** The name of its variables for other services: its kind, or the `type` in its configuration. */
  builtIns: 'kind' | 'type' | 'none'
  /** It has a job's `schedule`, which makes it CRON or LIFECYCLE where lists distinguish them. */
  schedule: boolean
  /** Target in the audit log. */
  audit: string
  /** Its resource in the Terraform provider of existing clients; null where there is none. */
  provider: string | null
  /** How it appears in older forms of responses; null for newer kinds. */
  old: {
    /** The name of its id, if not `service_id` or `id`. */
    id: string | null
    /** Histories have only success or failure, not the state. */
    outcome: boolean
    /** Lines of the log name it; for other kinds they name the environment. */
    log: boolean
  } | null
}

const table = {
  application: {
    stage: 3,
    runs: 'instances',
    discovered: false,
    plural: 'applications',
    runningPlural: 'applications',
    runningFields: 'certificates',
    asks: 'commit',
    // The public API's first import, from when there were only applications.
    variables: { importId: 'importEnvironmentVariable' },
    builtIns: 'kind',
    schedule: false,
    audit: 'APPLICATION',
    provider: 'qovery_application',
    old: { id: 'application_id', outcome: true, log: true },
  },
  container: {
    stage: 2,
    runs: 'instances',
    discovered: false,
    plural: 'containers',
    runningPlural: 'containers',
    runningFields: 'certificates',
    asks: 'image',
    variables: { importId: 'importContainerEnvironmentVariable' },
    builtIns: 'kind',
    schedule: false,
    audit: 'CONTAINER',
    provider: 'qovery_container',
    old: { id: null, outcome: false, log: false },
  },
  database: {
    stage: 0,
    runs: 'instances',
    discovered: false,
    plural: 'databases',
    runningPlural: 'databases',
    runningFields: 'none',
    asks: 'nothing',
    variables: null,
    builtIns: 'type',
    schedule: false,
    audit: 'DATABASE',
    provider: 'qovery_database',
    old: { id: null, outcome: false, log: true },
  },
  job: {
    stage: 1,
    runs: 'tasks',
    discovered: false,
    plural: 'jobs',
    runningPlural: 'jobs',
    runningFields: 'certificates',
    asks: 'image',
    variables: { importId: 'importJobEnvironmentVariable' },
    builtIns: 'kind',
    schedule: true,
    audit: 'JOB',
    provider: 'qovery_job',
    old: { id: null, outcome: false, log: false },
  },
  helm: {
    stage: 2,
    runs: 'charts',
    discovered: false,
    plural: 'helms',
    runningPlural: 'helms',
    runningFields: 'certificates',
    asks: 'chart',
    variables: { importId: null },
    builtIns: 'kind',
    schedule: false,
    audit: 'HELM',
    provider: 'qovery_helm',
    old: { id: null, outcome: false, log: false },
  },
  terraform: {
    stage: 0,
    runs: 'tasks',
    discovered: false,
    plural: 'terraforms',
    // The stream that existing clients read has the singular.
    runningPlural: 'terraform',
    runningFields: 'triggered action',
    asks: 'terraform action',
    variables: { importId: null },
    builtIns: 'kind',
    schedule: false,
    audit: 'TERRAFORM',
    provider: 'qovery_terraform_service',
    old: null,
  },
  argocd_app: {
    stage: 2,
    runs: 'apps',
    discovered: true,
    plural: 'argocd_apps',
    runningPlural: 'argocd_apps',
    runningFields: 'none',
    asks: 'nothing',
    variables: null,
    builtIns: 'none',
    schedule: false,
    // Existing clients do not know ARGOCD_APP as a target.
    audit: 'HELM',
    provider: null,
    old: null,
  },
} as const satisfies Record<string, KindRow>

export type Kind = keyof typeof table

export const kinds: Readonly<Record<Kind, KindRow>> = table

/** The type in answers and events: `APPLICATION`. Not in the table, because SQL computes it too: `upper(kind)`. */
export type ServiceType = Uppercase<Kind>

type With<Words> = { [K in Kind]: (typeof table)[K] extends Words ? K : never }[Kind]

/** Kinds that existing clients create and have lists of. */
export type OwnKind = With<{ discovered: false }>

export type ExportedKind = With<{ provider: string }>

/** A kind of the public API that this server does not have: existing clients expect its lists, which are empty. */
export const absent = { plural: 'agentic_workflows', audit: 'AGENTIC_WORKFLOW' } as const

/** Names of the lists of statuses. */
export type StatusList = (typeof table)[Kind]['plural'] | typeof absent.plural

export const allKinds = Object.keys(kinds) as Kind[]

export const kindsWith = (isWanted: (row: KindRow) => boolean): Kind[] =>
  allKinds.filter((kind) => isWanted(kinds[kind]))

export const isOwn = (kind: Kind): kind is OwnKind => !kinds[kind].discovered

export const ownKinds = allKinds.filter(isOwn)

/** These first, then the others: for lists that were published in a different order. */
export const ahead = <K extends Kind>(first: readonly NoInfer<K>[], all: readonly K[]): K[] => [
  ...new Set([...first, ...all]),
]

export const isKind = (word: string): word is Kind => Object.hasOwn(kinds, word)

export const typeOf = (kind: Kind): ServiceType => kind.toUpperCase() as ServiceType

export const kindOfType = (type: ServiceType): Kind => type.toLowerCase() as Kind

/** In the order of their publication. */
export const serviceTypes: readonly ServiceType[] = ahead(['application', 'database'], allKinds).map(typeOf)

/** The audit log's target for a row of the tree, whether it is a service or not. */
export const auditTargetOf = (kind: string): string => (isKind(kind) ? kinds[kind].audit : kind.toUpperCase())

/** The id of a service in the oldest forms of responses and events; nothing for newer kinds. */
export const oldIdOf = (kind: Kind, id: string): Record<string, string> => {
  const name = kinds[kind].old?.id ?? null
  return name === null ? {} : { [name]: id }
}
