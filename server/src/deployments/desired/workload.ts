/**
 * From a service's configuration and resolved variables to its workload, and to the fingerprint that shows whether
 * that has changed. Pure, except for the key of the fingerprint.
 */
import { createHmac } from 'node:crypto'
import { Secret } from '../../lib/secret.ts'
import type { AppContent, AppSettings } from '../../runtimes/apps.ts'
import type { ChartContent, ChartSettings } from '../../runtimes/charts.ts'
import type { Artifact, Workload } from '../../runtimes/runtime.ts'
import { type DeployableKind, mainTask, type Source, type Tasks, type WorkloadSpec } from '../deployments.ts'
import type { EffectiveVariables } from '../parts.ts'
import { ownersLabelsIn } from './owners-labels.ts'

/**
 * What a release keeps in the open, as all versions of this server have stored it: what only instances of an image have is
 * there for charts and apps too. The environment is sealed beside it.
 */
export type FrozenWorkload = Omit<Workload, 'artifact' | 'env' | 'files' | 'image'> & {
  /** Its content is sealed. */
  chart?: ChartSettings
  /** The same. */
  app?: AppSettings
  tasks?: Tasks
  /** The source of its image; absent in releases of earlier versions. */
  from?: Source
}

type Wanted = WorkloadSpec & { tasks?: Tasks }

export const freezeWorkload = (
  ids: Pick<Workload, 'organizationId' | 'projectId' | 'environmentId' | 'serviceId' | 'revision' | 'aliases'>,
  spec: Wanted,
  from: Source,
): FrozenWorkload => ({ ...ids, ...spec, from })

/** The content of a release that has no image. */
export interface SealedContent {
  chart?: ChartContent | undefined
  app?: AppContent | undefined
}

/** Made by a chart or an app, whose images are the cluster's, or by a module, whose tool's image each run pulls. */
export const hasNoImage = ({ chart, app, from }: Pick<FrozenWorkload, 'chart' | 'app' | 'from'>): boolean =>
  chart !== undefined || app !== undefined || from?.from === 'module'

/** Opens a stored release as its artifact. The product of a module has an image by the time that its tool runs. */
export const thawWorkload = (
  { tasks: _, from: __, chart, app, ...frozen }: FrozenWorkload,
  image: string,
  secrets: Pick<EffectiveVariables, 'env' | 'files'> & SealedContent,
): Artifact => {
  if (chart !== undefined && secrets.chart !== undefined)
    return { artifact: 'chart', ...revisionOf(frozen), chart: { ...chart, content: new Secret(secrets.chart) } }
  if (app !== undefined && secrets.app !== undefined)
    return { artifact: 'app', ...revisionOf(frozen), app: { ...app, content: new Secret(secrets.app) } }
  return { artifact: 'image', ...frozen, image, env: new Secret(secrets.env), files: new Secret(secrets.files) }
}

const revisionOf = ({
  organizationId,
  projectId,
  environmentId,
  serviceId,
  revision,
  readyTimeoutMs,
}: Omit<FrozenWorkload, 'tasks' | 'from' | 'chart' | 'app'>) => ({
  ...{ organizationId, projectId, environmentId, serviceId, revision, readyTimeoutMs },
})

/** Of what scales or runs tasks, which is always an image. */
export const ofImage = (artifact: Artifact): Workload => {
  if (artifact.artifact === 'image') return artifact
  throw new Error(`the service ${artifact.serviceId} has no image`)
}

/** JSON with sorted keys, so that equal things have equal texts. */
export const canonical = (value: unknown): string =>
  JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  )

/** In the form that was always stored, so that an update of Slipway makes no service out of date. */
const counted = ({ tasks = {}, eagerReadiness: _, withoutRoot: __, ...rest }: Wanted): object => {
  const { [mainTask]: task, ...named } = tasks
  return {
    ...rest,
    ...(task === undefined ? {} : { task }),
    ...(Object.keys(named).length === 0 ? {} : { tasks: named }),
  }
}

/**
 * Fingerprint of everything that a deployment uses: requested source, configuration and variables. Built-in variables
 * count only if one of the user's refers to them: a new service's host name alone makes nothing out of date. Keyed,
 * because secrets of few bits could be guessed from a plain hash.
 */
export const fingerprint = (
  key: Buffer,
  source: Source,
  spec: Wanted,
  variables: Pick<EffectiveVariables, 'env' | 'files' | 'origins' | 'external' | 'asWritten'>,
): string => {
  const { env: all, files, external = [] } = variables.asWritten ?? variables
  const env = Object.entries(all).filter(([name]) => variables.origins[name]?.scope !== 'BUILT_IN')
  const accesses = Object.fromEntries(external.map(({ key: name, accessId }) => [name, accessId]))
  const from = external.length === 0 ? {} : { accesses }
  const text = canonical({ source, spec: counted(spec), env: Object.fromEntries(env), files, ...from })
  return createHmac('sha256', key).update(text).digest('hex')
}

/** A DNS label from a name: lower case, other characters as dashes, at most 63. Empty when nothing is left. */
export const dnsLabel = (name: string): string =>
  name
    .toLowerCase()
    .normalize('NFKD')
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, 63)
    .replace(/^-+|-+$/g, '')

/** Names of a service on its environment's network: from its name, and one from its id that never changes. */
export const aliasesOf = (name: string, serviceId: string): string[] =>
  [dnsLabel(name), `service-${serviceId}`].filter((alias) => alias !== '')

export const desiredOf = (kind: DeployableKind, spec: Record<string, unknown>): { source: Source; spec: Wanted } => {
  const tasks = kind.tasks?.(spec)
  const own = { ...kind.workload(spec), ...ownersLabelsIn(spec) }
  return { source: kind.source(spec), spec: tasks === undefined ? own : { ...own, tasks } }
}

/** For kinds whose services see no variables. */
export const noVariables: EffectiveVariables = { env: {}, files: [], secretValues: [], origins: {} }
