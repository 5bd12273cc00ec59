/**
 * Charts on a Kubernetes cluster, installed by the operator's helm: a chart is rendered, checked, and installed
 * exactly as checked; revisions, rollback, removal.
 *
 * Promises: nothing reaches the cluster before it was checked. An upgrade that fails is rolled back. A killed run is
 * settled by the next one. The caller ensures that there is one call at a time for each release.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { KubernetesApi } from '../../../lib/kubernetes/kubernetes-api.ts'
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import type { Pin } from '../../../lib/net/pinned-connector.ts'
import { type ChartDifference, type ChartedObject, differences, judge, type ScopeOf } from './charted.ts'
import { judgeHosts } from './claims.ts'
import {
  type HelmOptions,
  type HelmPlace,
  type HelmRevision,
  installedObjects,
  kept,
  kubeconfigOf,
  readHistory,
  removeRelease,
  returnTo,
  settle,
  shortMs,
  waitOf,
} from './release.ts'
import { type ChartToRender, type RenderedChart, render, writeFixedChart } from './render.ts'
import type { HelmSession, HelmTool } from './tool.ts'
import { judgeWays } from './ways-in.ts'

type Asking = Pick<KubernetesApi, 'get'>

const mostVersions = 500
const isVersion = (text: unknown): text is string =>
  typeof text === 'string' && /^[a-z0-9.-]{1,253}(\/[a-z0-9]{1,63})?$/.test(text)

/** The API versions of a cluster, and the scopes of its kinds. */
const readVersions = async ({ get }: Asking, signal?: AbortSignal) => {
  const [{ gitVersion }, { groups = [] }] = await Promise.all([
    get<{ gitVersion?: unknown }>('/version', { signal }),
    get<{ groups?: { versions?: { groupVersion?: unknown }[] }[] }>('/apis', { signal }),
  ])
  const all = groups.flatMap(({ versions = [] }) => versions.map(({ groupVersion }) => groupVersion))
  const [kubeVersion = 'v1.28.0'] = /^v1\.\d+\.\d+/.exec(String(gitVersion)) ?? []
  return { kubeVersion, apiVersions: all.filter(isVersion).slice(0, mostVersions) }
}

interface Resources {
  resources?: { kind?: unknown; name?: unknown; namespaced?: unknown }[]
}

const readKinds = async ({ get }: Asking, apiVersion: string, signal?: AbortSignal): Promise<[string, boolean][]> => {
  if (!isVersion(apiVersion)) return []
  try {
    const { resources = [] } = await get<Resources>(`/${apiVersion.includes('/') ? 'apis' : 'api'}/${apiVersion}`, {
      signal,
    })
    return resources
      .filter(({ name }) => !String(name).includes('/'))
      .map(({ kind, namespaced }) => [String(kind), namespaced === true])
  } catch (error) {
    if (error instanceof KubernetesError && error.status === 404) return []
    throw error
  }
}

/** For the kinds of the given objects, including those that their definitions will add. */
const readScopes = async (api: Asking, objects: readonly ChartedObject[], signal?: AbortSignal): Promise<ScopeOf> => {
  const known = new Map<string, boolean>()
  for (const apiVersion of new Set(objects.map((each) => each.apiVersion)))
    for (const [kind, isNamespaced] of await readKinds(api, apiVersion, signal))
      known.set(`${apiVersion} ${kind}`, isNamespaced)
  for (const { kind, spec } of objects) {
    const { group, names, scope, versions } = (spec ?? {}) as Record<
      string,
      { kind?: unknown; name?: unknown }[] & { kind?: unknown }
    >
    if (kind !== 'CustomResourceDefinition' || !Array.isArray(versions)) continue
    for (const { name } of versions) {
      const key = `${String(group)}/${String(name)} ${String(names?.kind)}`
      if (!known.has(key)) known.set(key, String(scope) === 'Namespaced')
    }
  }
  return (apiVersion, kind) => {
    const isNamespaced = known.get(`${apiVersion} ${kind}`)
    if (isNamespaced === undefined) return null
    return isNamespaced ? 'namespaced' : 'cluster'
  }
}

export interface Chart extends Pick<ChartToRender, 'archive' | 'values'> {
  allowClusterWide: boolean
  /** Hosts that it may use, and wildcards of such. */
  domains: readonly string[]
  /** The objects to install from the checked ones; without it, exactly those. */
  complete?(objects: readonly ChartedObject[]): ChartedObject[]
}

interface MadeByChart {
  objects: ChartedObject[]
  /** Domains that no object of it names: they lead nowhere. */
  unrouted: string[]
}

/** All reject with a `DeploymentError`: `tool_missing`, `chart_refused`, `helm_failed`; or a `KubernetesError`. */
export interface Helm {
  plan(place: HelmPlace, chart: Chart, signal?: AbortSignal): Promise<{ chart: string; differences: ChartDifference[] }>
  /** Installs or upgrades, waits until it is ready; rolls back on failure. */
  upgrade(place: HelmPlace, chart: Chart, options: HelmOptions): Promise<MadeByChart>
  /** Ends a killed run's work; resolves to the resulting revisions, the newest first. */
  settle(place: HelmPlace, options: HelmOptions): Promise<HelmRevision[]>
  /** The objects of the newest revision, without hooks. */
  installed(place: HelmPlace, signal?: AbortSignal): Promise<ChartedObject[]>
  rollback(place: HelmPlace, revision: number, options: HelmOptions): Promise<void>
  /** Succeeds for a missing release. */
  uninstall(place: HelmPlace, options: HelmOptions): Promise<void>
  /** The newest first; empty if there is none. */
  history(place: HelmPlace, signal?: AbortSignal): Promise<HelmRevision[]>
}

const isHook = ({ metadata }: ChartedObject): boolean => metadata.annotations?.['helm.sh/hook'] !== undefined

const renderJudged = async (
  session: HelmSession,
  { api, namespace, release }: HelmPlace,
  { archive, values, allowClusterWide, domains, complete = (objects) => [...objects] }: Chart,
  isUpgrade: boolean,
  signal?: AbortSignal,
): Promise<RenderedChart & { unrouted: string[] }> => {
  const versions = await readVersions(api, signal)
  const rendered = await render(session, { release, namespace, archive, values, isUpgrade, ...versions, signal })
  const all = [...rendered.crds, ...rendered.objects]
  judge(all, { scopeOf: await readScopes(api, all, signal), namespace, allowClusterWide })
  const unrouted = judgeHosts(all, domains)
  judgeWays(all)
  return { ...rendered, unrouted, objects: complete(rendered.objects) }
}

/** `pin`: the address at which the API server may be reached. */
export const createHelm = (tool: HelmTool, pin: Pin): Helm => {
  const withPlace = <T>(place: HelmPlace, work: (session: HelmSession) => Promise<T>): Promise<T> =>
    tool.use(async (session) => {
      const { address } = await pin(place.access.host, place.access.port)
      await session.write('kubeconfig', kubeconfigOf(place.access, address))
      return work(session)
    })

  return {
    plan: (place, chart, signal) =>
      withPlace(place, async (session) => {
        const isUpgrade = (await readHistory(session, place, signal)).length > 0
        const rendered = await renderJudged(session, place, chart, isUpgrade, signal)
        const before = isUpgrade ? await installedObjects(session, place, signal) : []
        return {
          chart: `${rendered.name} ${rendered.version}`,
          differences: differences(
            before,
            rendered.objects.filter((each) => !isHook(each)),
          ),
        }
      }),
    upgrade: (place, chart, options) =>
      withPlace(place, async (session) => {
        const { release, namespace } = place
        const revisions = await settle(session, place, options)
        const rendered = await renderJudged(session, place, chart, revisions.length > 0, options.signal)
        const fixed = await writeFixedChart(session, rendered)
        await session.run(
          [
            ...['upgrade', '--install', release, fixed, '--namespace', namespace, waitOf(session)],
            session.isFourth ? '--rollback-on-failure' : '--atomic',
            ...['--timeout', `${options.timeoutSeconds}s`, '--history-max', String(kept)],
          ],
          // A rollback gets as much time again.
          { ...options, timeoutMs: 2 * options.timeoutSeconds * 1000 + shortMs },
        )
        const [newest] = await readHistory(session, place, options.signal)
        // Helm reports no error if it cannot store this.
        if (newest?.status !== 'deployed')
          throw new DeploymentError(
            'helm_failed',
            'Helm could not keep the new revision: it needs all rights on secrets.',
          )
        return { objects: [...rendered.crds, ...rendered.objects], unrouted: rendered.unrouted }
      }),
    settle: (place, options) => withPlace(place, (session) => settle(session, place, options)),
    installed: (place, signal) => withPlace(place, (session) => installedObjects(session, place, signal)),
    rollback: (place, revision, options) =>
      withPlace(place, async (session) => {
        const revisions = await settle(session, place, options)
        if (!revisions.some((each) => each.revision === revision))
          throw new DeploymentError('revision_gone', `Helm has no revision ${revision} of this chart any more.`)
        await returnTo(session, place, revision, options)
      }),
    uninstall: (place, options) => withPlace(place, (session) => removeRelease(session, place, options)),
    history: (place, signal) => withPlace(place, (session) => readHistory(session, place, signal)),
  }
}
