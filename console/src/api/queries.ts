/**
 * The queries of all pages: a list and the page of one of its members share the cache. A key is a name and the ids of
 * the data it reads, by which the stream of the organization finds the queries to read again (`live.ts`). Nothing
 * polls.
 */
import { QueryClient, queryOptions, useQuery } from '@tanstack/react-query'
import { useEffect } from 'react'
import { answerOf, client, inPath, Problem, pathLike, type paths, resultsOf, type Schemas } from './client.ts'
import { readDeploymentLines } from './deployment-log.ts'
import { readFindings } from './findings.ts'
import { readSession } from './session.ts'

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5000,
      refetchOnWindowFocus: true,
      retry: (count, error) => count < 2 && error instanceof Problem && (error.status === 0 || error.status === 503),
    },
  },
})

/** Reads again the queries with these keys, or with a name alone: those in sight now, others when they are shown. */
export const refresh = (...keys: (string | readonly unknown[])[]): Promise<unknown> =>
  Promise.all(keys.map((key) => queryClient.invalidateQueries({ queryKey: typeof key === 'string' ? [key] : key })))

export const kinds = ['application', 'container', 'database', 'job', 'helm', 'terraform', 'argocdApp'] as const
export type Kind = (typeof kinds)[number]

export interface Service {
  id: string
  name: string
  kind: Kind
  description: string | null
  icon_uri: string
  environmentId: string
  updated_at: string | null
  version: string | null
  min_running_instances: number | null
  max_running_instances: number | null
  raw: Record<string, unknown>
}

const kindOf = (type: unknown): Kind => {
  const word = String(type).toLowerCase()
  return word === 'argocd_app' ? 'argocdApp' : (kinds.find((kind) => kind === word) ?? 'application')
}

const databaseWords: Record<string, string> = {
  POSTGRESQL: 'PostgreSQL',
  MYSQL: 'MySQL',
  MONGODB: 'MongoDB',
  REDIS: 'Redis',
}

export const databaseWord = (type: unknown): string => databaseWords[String(type)] ?? String(type)

/** The version of a service: its commit, or its image. */
const versionOf = (raw: Record<string, unknown>): string | null => {
  // A job has an image or a repository like others, only deeper in its record.
  const { image, docker } = (raw.source ?? {}) as Record<string, Record<string, unknown> | null | undefined>
  const inner = image ?? docker
  if (inner) return versionOf(inner)
  const git = raw.git_repository as { deployed_commit_id?: string; branch?: string } | null | undefined
  if (git) return git.deployed_commit_id ? git.deployed_commit_id.slice(0, 7) : (git.branch ?? null)
  if (typeof raw.image_name === 'string') return `${raw.image_name}:${String(raw.tag)}`
  if (typeof raw.version === 'string') return `${databaseWord(raw.type ?? '')} ${raw.version}`.trim()
  return null
}

const toService = (record: object): Service => {
  const raw = record as Record<string, unknown>
  return {
    id: String(raw.id),
    name: String(raw.name),
    kind: kindOf(raw.service_type),
    description: (raw.description as string | null) ?? null,
    icon_uri: String(raw.icon_uri ?? ''),
    environmentId: (raw.environment as { id: string } | undefined)?.id ?? '',
    updated_at: (raw.updated_at as string | undefined) ?? null,
    version: versionOf(raw),
    min_running_instances: (raw.min_running_instances as number | undefined) ?? null,
    max_running_instances: (raw.max_running_instances as number | undefined) ?? null,
    raw,
  }
}

/** Kinds differ only in the path, so the types of containers are used for all. */
export const pathOf = <Path extends `/container/${string}` & keyof paths>(kind: Kind, path: Path): Path =>
  pathLike(path, 'container', kind)

export const session = () => queryOptions({ queryKey: ['session'], queryFn: readSession, staleTime: 60_000 })

/** For the operator only. */
export const findings = () => queryOptions({ queryKey: ['findings'], queryFn: readFindings })

/** The version of the server. */
export const version = () =>
  queryOptions({
    queryKey: ['version'],
    queryFn: async () => ((await (await fetch('/healthz')).json()) as { version: string }).version,
    staleTime: Number.POSITIVE_INFINITY,
  })

export const organizations = () =>
  queryOptions({
    queryKey: ['organizations'],
    queryFn: () => resultsOf(client.GET('/organization')),
    staleTime: 30_000,
  })

export const projects = (organizationId: string) =>
  queryOptions({
    queryKey: ['projects', organizationId],
    queryFn: () => resultsOf(client.GET('/organization/{organizationId}/project', inPath({ organizationId }))),
  })

export const project = (projectId: string) =>
  queryOptions({
    queryKey: ['project', projectId],
    queryFn: () => answerOf(client.GET('/project/{projectId}', inPath({ projectId }))),
    staleTime: 30_000,
  })

/** Those of a project, in the order they are tried. */
export const deploymentRules = (projectId: string) =>
  queryOptions({
    queryKey: ['deployment rules', projectId],
    queryFn: () => resultsOf(client.GET('/project/{projectId}/deploymentRule', inPath({ projectId }))),
  })

export const clusters = (organizationId: string) =>
  queryOptions({
    queryKey: ['clusters', organizationId],
    queryFn: () => resultsOf(client.GET('/organization/{organizationId}/cluster', inPath({ organizationId }))),
  })

export const environmentsOf = (projectId: string) =>
  queryOptions({
    queryKey: ['environments', projectId],
    queryFn: () => resultsOf(client.GET('/project/{projectId}/environment/overview', inPath({ projectId }))),
  })

/** Starts to read the data of the overview while the code of the page is still loading. */
export const beginOverview = (organizationId: string): void => {
  void queryClient.prefetchQuery(session())
  void queryClient.prefetchQuery(organizations())
  queryClient.fetchQuery(projects(organizationId)).then(
    (found) => {
      for (const { id } of found) void queryClient.prefetchQuery(environmentsOf(id))
    },
    // The page reads it again, and shows why it failed.
    () => undefined,
  )
}

export const environmentsOfOrganization = (organizationId: string) =>
  queryOptions({
    queryKey: ['organization environments', organizationId],
    queryFn: () => resultsOf(client.GET('/organization/{organizationId}/environments', inPath({ organizationId }))),
    staleTime: 15_000,
  })

export const environment = (environmentId: string) =>
  queryOptions({
    queryKey: ['environment', environmentId],
    queryFn: () => answerOf(client.GET('/environment/{environmentId}', inPath({ environmentId }))),
    staleTime: 30_000,
  })

export const services = (environmentId: string) =>
  queryOptions({
    queryKey: ['services', environmentId],
    queryFn: async () => {
      const { results } = await answerOf(client.GET('/environment/{environmentId}/services', inPath({ environmentId })))
      return results.map(toService)
    },
  })

export const service = (kind: Kind, id: string) =>
  queryOptions({
    queryKey: ['service', id],
    queryFn: async () =>
      toService(await answerOf(client.GET(pathOf(kind, '/container/{containerId}'), inPath({ containerId: id })))),
  })

export const links = (environmentId: string) =>
  queryOptions({
    queryKey: ['links', environmentId],
    queryFn: () => resultsOf(client.GET('/environment/{environmentId}/link', inPath({ environmentId }))),
  })

/** The number of a deployment in its environment, which its id has after that of the environment. */
export const numberOf = (executionId: string): string => executionId.slice(37).split('-')[0] ?? ''

export type Execution = Schemas['DeploymentHistoryEnvironmentV2']

export const history = (environmentId: string, pageSize = 30) =>
  queryOptions({
    queryKey: ['history', environmentId, pageSize],
    queryFn: () =>
      resultsOf(
        client.GET('/environment/{environmentId}/deploymentHistoryV2', {
          params: { path: { environmentId }, query: { pageSize } },
        }),
      ),
  })

/** The lines of a log that are shown beside a failure: the rest is one click away. */
const mostLastLines = 8

/**
 * The last lines of a deployment's log about a failed service, without the sentence that is shown anyway. They are
 * written before the failure is reported, so they are read once.
 */
export const lastLines = (environmentId: string, executionId: string, serviceId: string, sentence: string) =>
  queryOptions({
    queryKey: ['last lines', executionId, serviceId],
    async queryFn() {
      const lines = await readDeploymentLines(environmentId, executionId)
      const mine = lines.filter(({ about }) => about === serviceId)
      return {
        name: mine[0]?.from ?? '',
        lines: mine
          .map(({ text }) => text)
          .filter((text) => text !== '' && text !== sentence)
          .slice(-mostLastLines),
      }
    },
    staleTime: Number.POSITIVE_INFINITY,
  })

export const serviceHistory = (kind: Kind, id: string, environmentId: string) =>
  queryOptions({
    queryKey: ['history', environmentId, 'service', id],
    queryFn: async () => {
      const path = pathOf(kind, '/container/{containerId}/deploymentHistoryV2')
      return resultsOf(client.GET(path, { params: { path: { containerId: id }, query: { pageSize: 30 } } }))
    },
  })

/** Kinds that can be rolled back. */
export const hasReleases = (kind: Kind): boolean => ['application', 'container', 'database', 'job'].includes(kind)

export const releases = (kind: Kind, id: string, environmentId: string) =>
  queryOptions({
    queryKey: ['history', environmentId, 'releases', id],
    queryFn: async () => {
      const path = pathOf(kind, '/container/{containerId}/release')
      return resultsOf(client.GET(path, { params: { path: { containerId: id }, query: { pageSize: 30 } } }))
    },
  })

export type LiveStatuses = Schemas['EnvironmentStatusesWithStages']
export type ServiceStatus = Schemas['Status']
type LiveStage = LiveStatuses['stages'][number]

const listsOf = ({ stage: _, ...lists }: LiveStage): ServiceStatus[] => Object.values(lists).flat()

export const stagesOf = ({ stages }: LiveStatuses): { id: string; name: string; statuses: ServiceStatus[] }[] =>
  stages.map((each) => ({ id: each.stage.id, name: each.stage.name, statuses: listsOf(each) }))

export const statusesIn = (live: LiveStatuses): Map<string, ServiceStatus> =>
  new Map(live.stages.flatMap((stage) => listsOf(stage).map((status) => [status.id, status])))

/** All services of an environment, by stage, in one request. */
export const live = (environmentId: string) =>
  queryOptions({
    queryKey: ['live', environmentId],
    queryFn: () => answerOf(client.GET('/environment/{environmentId}/statusesWithStages', inPath({ environmentId }))),
    staleTime: Number.POSITIVE_INFINITY,
  })

/** The states of an environment; the stream of its organization keeps them up to date (`live.ts`). */
export const useLiveEnvironment = (environmentId: string | null): LiveStatuses | undefined =>
  useQuery({ ...live(environmentId ?? ''), enabled: environmentId !== null }).data

/** Current deployments, anywhere in the organization. */
export const activeDeployments = (organizationId: string) =>
  queryOptions({
    queryKey: ['active deployments', organizationId],
    queryFn: () =>
      resultsOf(client.GET('/organization/{organizationId}/activeDeployments', inPath({ organizationId }))),
    staleTime: Number.POSITIVE_INFINITY,
  })

/** The title of the window. */
export const useTitle = (...words: (string | undefined)[]): void => {
  const title = [...words.filter((word) => word !== undefined), 'Slipway'].join(' · ')
  useEffect(() => {
    document.title = title
  }, [title])
}
