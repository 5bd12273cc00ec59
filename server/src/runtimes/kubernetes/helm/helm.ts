/**
 * Charts on a Kubernetes cluster by the operator's helm: a chart is rendered, judged, and installed as exactly what was
 * judged; revisions, rollback, removal.
 *
 * Promises: nothing reaches the cluster before it was judged. An upgrade that fails is rolled back. A run that was killed
 * is settled by the next one. Whoever calls sees to it that there is one call at a time for each release.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { Pin } from '../../../lib/net/pinned-connector.ts'
import { type ChartDifference, type ChartedObject, differences, judge } from './charted.ts'
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
import { type RenderedChart, render, writeFixedChart } from './render.ts'
import { readScopes, readVersions } from './scopes.ts'
import type { HelmSession, HelmTool } from './tool.ts'
import { judgeWays } from './ways-in.ts'

export type { HelmOptions, HelmPlace, HelmRevision }

export interface Chart {
  /** The archive with all dependencies. */
  archive: Buffer
  /** Values files, variables put in; the last one counts most. */
  values: readonly string[]
  allowClusterWide: boolean
  /** Hosts that it may be reached by, and wildcards of such. */
  domains: readonly string[]
  /** What is installed of what was judged; without, just that. */
  complete?(objects: readonly ChartedObject[]): ChartedObject[]
}

export interface HelmPlan {
  chart: string
  differences: ChartDifference[]
}

/** What an upgrade has made. */
export interface MadeByChart {
  objects: ChartedObject[]
  /** Domains that nothing of it names: they lead nowhere. */
  unled: string[]
}

/** All reject with a `DeploymentError`: `tool_missing`, `chart_refused`, `helm_failed`; or a `KubernetesError`. */
export interface Helm {
  plan(place: HelmPlace, chart: Chart, signal?: AbortSignal): Promise<HelmPlan>
  /** Installs or upgrades, waits until it is ready; what fails is taken back. */
  upgrade(place: HelmPlace, chart: Chart, options: HelmOptions): Promise<MadeByChart>
  /** Ends what a killed run began; resolves to what there is then, the newest first. */
  settle(place: HelmPlace, options: HelmOptions): Promise<HelmRevision[]>
  /** What the newest revision has made, without hooks. */
  installed(place: HelmPlace, signal?: AbortSignal): Promise<ChartedObject[]>
  rollback(place: HelmPlace, revision: number, options: HelmOptions): Promise<void>
  /** What is not there is removed. */
  uninstall(place: HelmPlace, options: HelmOptions): Promise<void>
  /** The newest first; empty where there is none. */
  history(place: HelmPlace, signal?: AbortSignal): Promise<HelmRevision[]>
}

const isHook = ({ metadata }: ChartedObject): boolean => metadata.annotations?.['helm.sh/hook'] !== undefined

const renderJudged = async (
  session: HelmSession,
  { api, namespace, release }: HelmPlace,
  { archive, values, allowClusterWide, domains, complete = (objects) => [...objects] }: Chart,
  isUpgrade: boolean,
  signal?: AbortSignal,
): Promise<RenderedChart & { unled: string[] }> => {
  const versions = await readVersions(api, signal)
  const rendered = await render(session, { release, namespace, archive, values, isUpgrade, ...versions, signal })
  const all = [...rendered.crds, ...rendered.objects]
  judge(all, { scopeOf: await readScopes(api, all, signal), namespace, allowClusterWide })
  const unled = judgeHosts(all, domains)
  judgeWays(all)
  return { ...rendered, unled, objects: complete(rendered.objects) }
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
          // What failed is taken back in as much time again.
          { ...options, timeoutMs: 2 * options.timeoutSeconds * 1000 + shortMs },
        )
        const [newest] = await readHistory(session, place, options.signal)
        // Helm says nothing when it cannot write this down.
        if (newest?.status !== 'deployed')
          throw new DeploymentError(
            'helm_failed',
            'Helm could not keep the new revision: it needs all rights on secrets.',
          )
        return { objects: [...rendered.crds, ...rendered.objects], unled: rendered.unled }
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
