/**
 * The variables that the platform itself sets: where a service is and how to reach the others of its environment. Pure.
 * Each is set with our prefix and with the one that existing clients look up. Nothing here may change from one
 * deployment to the next: every service would then always look out of date.
 */
import { idOf } from '../lib/ids.ts'

export interface BuiltInVariable {
  /** Derived from parent and key, so that it is the same in every response and can be aliased. */
  id: string
  /** The tree row it belongs to: project, environment or service. */
  parentId: string
  key: string
  value: string
  isSecret: boolean
  /** The service it is about, if any. */
  service: { id: string; name: string; type: string } | null
}

export interface BuiltInService {
  id: string
  name: string
  /** APPLICATION, CONTAINER, DATABASE … */
  type: string
  /** The middle part of its keys, if it is not the type: POSTGRESQL, REDIS … for databases. */
  keyType?: string
  /** DNS name on the environment's network. */
  internalHost: string
  /** Public host name; null when no port is public. */
  externalHost: string | null
  /** Branch that it is built from; null for a service without a repository. */
  gitBranch?: string | null
  /** Commit of the version that is deployed, or being deployed. */
  gitCommitId?: string | null
  /** The outputs of its last run, by name. */
  outputs?: Record<string, { value: string; isSecret: boolean }>
  /** Further variables with this service's prefix: `{ PORT: { value: '5432' } }`. */
  more?: Record<string, { value: string; isSecret?: boolean }>
}

interface BuiltInCluster {
  name: string
  provider: string
  region: string
  /** The domain of its services' hosts. */
  domain: string
}

export interface BuiltInContext {
  organizationId: string
  projectId: string
  /** Null in a list for a project. */
  environment: { id: string; name: string; mode: string; cluster: BuiltInCluster | null } | null
  /** All services of the environment, including the asking one. */
  services: readonly BuiltInService[]
  /** The asking service; null in a list for an environment. */
  serviceId: string | null
}

export const reservedPrefixes = ['SLIPWAY_', 'QOVERY_'] as const

export const builtInId = (parentId: string, key: string): string => idOf('built-in', parentId, key)

const both = (
  parentId: string,
  name: string,
  value: string,
  service: BuiltInVariable['service'] = null,
  isSecret = false,
): BuiltInVariable[] =>
  reservedPrefixes.map((prefix) => {
    const key = prefix + name
    return { id: builtInId(parentId, key), parentId, key, value, isSecret, service }
  })

/** `APPLICATION_Z1A2B3C4D`: a service's name in the keys of others. Ids are random, so eight digits are enough. */
const servicePrefix = ({ id, type, keyType }: Pick<BuiltInService, 'id' | 'type' | 'keyType'>): string =>
  `${(keyType ?? type).toUpperCase()}_Z${id.slice(0, 8).toUpperCase()}`

const aboutCluster = (environmentId: string, { name, provider, region, domain }: BuiltInCluster): BuiltInVariable[] => [
  ...both(environmentId, 'CLOUD_PROVIDER', provider),
  ...both(environmentId, 'CLOUD_PROVIDER_REGION', region),
  ...both(environmentId, 'KUBERNETES_CLUSTER_NAME', name),
  ...both(environmentId, 'KUBERNETES_CLUSTER_DOMAIN', domain),
]

const aboutNeighbour = (environment: { id: string; name: string }, service: BuiltInService): BuiltInVariable[] => {
  const prefix = servicePrefix(service)
  const environmentId = environment.id
  const about = { id: service.id, name: service.name, type: service.type }
  const facts: [string, string | null | undefined][] = [
    ['HOST_INTERNAL', service.internalHost],
    ['HOST_EXTERNAL', service.externalHost],
    ['NAME', service.name],
    ['ENVIRONMENT_NAME', environment.name],
    ['GIT_BRANCH', service.gitBranch],
    ['GIT_COMMIT_ID', service.gitCommitId],
  ]
  const told = facts.flatMap(([name, value]) =>
    value == null ? [] : both(environmentId, `${prefix}_${name}`, value, about),
  )
  const more = Object.entries(service.more ?? {}).flatMap(([name, { value, isSecret }]) =>
    both(environmentId, `${prefix}_${name}`, value, about, isSecret ?? false),
  )
  const outputs = Object.entries(service.outputs ?? {}).flatMap(([name, { value, isSecret }]) =>
    both(environmentId, `OUTPUT_${prefix}_${name}`, value, about, isSecret),
  )
  return [...told, ...more, ...outputs]
}

const aboutSelf = (service: BuiltInService): BuiltInVariable[] => {
  const about = { id: service.id, name: service.name, type: service.type }
  return [
    ...both(service.id, 'SERVICE_ID', service.id, about),
    ...both(service.id, 'SERVICE_NAME', service.name, about),
    ...both(service.id, `${service.type}_ID`, service.id, about),
    ...both(service.id, `${service.type}_NAME`, service.name, about),
  ]
}

/** All built-in variables visible at this place, each key once. */
export const builtInVariables = (context: BuiltInContext): BuiltInVariable[] => {
  const { environment, projectId } = context
  const self = context.services.find(({ id }) => id === context.serviceId)
  const all = [
    ...both(projectId, 'ORGANIZATION_ID', context.organizationId),
    ...both(projectId, 'PROJECT_ID', projectId),
    ...(environment === null
      ? []
      : [
          ...both(environment.id, 'ENVIRONMENT_ID', environment.id),
          ...both(environment.id, 'ENVIRONMENT_NAME', environment.name),
          ...both(environment.id, 'ENVIRONMENT_TYPE', environment.mode),
          ...(environment.cluster === null ? [] : aboutCluster(environment.id, environment.cluster)),
          ...context.services.flatMap((service) => aboutNeighbour(environment, service)),
        ]),
    ...(self === undefined ? [] : aboutSelf(self)),
  ]
  // If two services ever share eight digits, the first gets the key: the other can still be reached by its host name.
  return [...new Map(all.toReversed().map((one) => [one.key, one])).values()].toReversed()
}
