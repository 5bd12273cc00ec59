/**
 * Charts on a Kubernetes cluster by the operator's helm: a chart is rendered, judged, and installed as exactly what was
 * judged; revisions, rollback, removal.
 *
 * Promises: nothing reaches the cluster before it was judged. An upgrade that fails is rolled back. A run that was killed
 * is settled by the next one. Whoever calls sees to it that there is one call at a time for each release.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { KubernetesAccess } from '../../../lib/kubernetes/kubeconfig.ts'
import type { KubernetesApi } from '../../../lib/kubernetes/kubernetes-api.ts'
import type { Pin } from '../../../lib/net/pinned-connector.ts'
import { type ChartDifference, type ChartedObject, differences, judge, readObjects } from './charted.ts'
import { type RenderedChart, render, writeFixedChart } from './render.ts'
import { readScopes, readVersions } from './scopes.ts'
import type { HelmSession, HelmTool } from './tool.ts'

export interface HelmPlace {
  access: KubernetesAccess
  api: Pick<KubernetesApi, 'get'>
  namespace: string
  release: string
}

export interface Chart {
  /** The archive with all dependencies. */
  archive: Buffer
  /** Values files, variables put in; the last one counts most. */
  values: readonly string[]
  allowClusterWide: boolean
}

export interface HelmRevision {
  revision: number
  /** `deployed`, `superseded`, `failed`, …: helm's words. */
  status: string
  chart: string
  appVersion: string
  updated: string
  description: string
}

export interface HelmOptions {
  /** Until the workloads are ready. */
  timeoutSeconds: number
  signal?: AbortSignal
  onOutput?: (text: string) => void
}

export interface HelmPlan {
  chart: string
  differences: ChartDifference[]
}

/** All reject with a `DeploymentError`: `tool_missing`, `chart_refused`, `helm_failed`; or a `KubernetesError`. */
export interface Helm {
  plan(place: HelmPlace, chart: Chart, signal?: AbortSignal): Promise<HelmPlan>
  /** Installs or upgrades, waits until it is ready; what fails is taken back. Resolves to what it made. */
  upgrade(place: HelmPlace, chart: Chart, options: HelmOptions): Promise<ChartedObject[]>
  rollback(place: HelmPlace, revision: number, options: HelmOptions): Promise<void>
  /** What is not there is removed. */
  uninstall(place: HelmPlace, options: HelmOptions): Promise<void>
  /** The newest first; empty where there is none. */
  history(place: HelmPlace, signal?: AbortSignal): Promise<HelmRevision[]>
}

const shortMs = 60_000
const kept = 10

const kubeconfigOf = (
  { host, port, path, serverName, ca, cert, key, token }: KubernetesAccess,
  address: string,
): string => {
  const base64 = (text: string | undefined): string | undefined => text && Buffer.from(text).toString('base64')
  const place = address.includes(':') ? `[${address}]` : address
  const isName = /[a-z]/i.test(host) && !host.startsWith('[')
  const cluster = {
    server: `https://${place}:${port}${path}`,
    'certificate-authority-data': base64(ca),
    'tls-server-name': serverName ?? (isName ? host : undefined),
  }
  const user = {
    token: token?.reveal(),
    'client-certificate-data': base64(cert),
    'client-key-data': base64(key?.reveal()),
  }
  return JSON.stringify({
    ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'it' },
    clusters: [{ name: 'it', cluster }],
    users: [{ name: 'it', user }],
    contexts: [{ name: 'it', context: { cluster: 'it', user: 'it' } }],
  })
}

const parseHistory = (text: string): HelmRevision[] => {
  const rows = JSON.parse(text) as Record<string, unknown>[]
  const word = (value: unknown): string => (typeof value === 'string' ? value.slice(0, 500) : '')
  return rows
    .map((row) => ({
      ...{ revision: Number(row.revision), status: word(row.status), chart: word(row.chart) },
      ...{ appVersion: word(row.app_version), updated: word(row.updated), description: word(row.description) },
    }))
    .sort((left, right) => right.revision - left.revision)
}

/** That of helm 4 waits by watching, for a minute where there is nothing to wait for. */
const waitOf = ({ isFourth }: HelmSession): string => (isFourth ? '--wait=legacy' : '--wait')

const isHook = ({ metadata }: ChartedObject): boolean => metadata.annotations?.['helm.sh/hook'] !== undefined

/** `pin`: the address at which the API server may be reached. */
export const createHelm = (tool: HelmTool, pin: Pin): Helm => {
  const withPlace = <T>(place: HelmPlace, work: (session: HelmSession) => Promise<T>): Promise<T> =>
    tool.use(async (session) => {
      const { address } = await pin(place.access.host, place.access.port)
      await session.write('kubeconfig', kubeconfigOf(place.access, address))
      return work(session)
    })

  const readHistory = async ({ run }: HelmSession, { release, namespace }: HelmPlace, signal?: AbortSignal) => {
    try {
      const args = ['history', release, '--namespace', namespace, '--output', 'json', '--max', String(kept)]
      return parseHistory(await run(args, { timeoutMs: shortMs, signal }))
    } catch (error) {
      if (error instanceof DeploymentError && /release: not found/.test(error.message)) return []
      throw error
    }
  }

  const installedObjects = async ({ run }: HelmSession, { release, namespace }: HelmPlace, signal?: AbortSignal) => {
    const text = await run(['get', 'manifest', release, '--namespace', namespace], {
      ...{ timeoutMs: shortMs, maxOutput: 16 << 20 },
      signal,
    })
    return readObjects(
      text
        .split('\n')
        .filter((line) => line.startsWith('{'))
        .join('\n'),
    )
  }

  const renderJudged = async (
    session: HelmSession,
    { api, namespace, release }: HelmPlace,
    { archive, values, allowClusterWide }: Chart,
    isUpgrade: boolean,
    signal?: AbortSignal,
  ): Promise<RenderedChart> => {
    const versions = await readVersions(api, signal)
    const rendered = await render(session, { release, namespace, archive, values, isUpgrade, ...versions, signal })
    const all = [...rendered.crds, ...rendered.objects]
    judge(all, { scopeOf: await readScopes(api, all, signal), namespace, allowClusterWide })
    return rendered
  }

  const removeRelease = async (session: HelmSession, { release, namespace }: HelmPlace, options: HelmOptions) => {
    const timeout = `${options.timeoutSeconds}s`
    const words = ['--ignore-not-found', waitOf(session), '--timeout', timeout]
    await session.run(['uninstall', release, '--namespace', namespace, ...words], {
      ...options,
      timeoutMs: options.timeoutSeconds * 1000 + shortMs,
    })
  }

  const returnTo = async (
    session: HelmSession,
    { release, namespace }: HelmPlace,
    revision: number,
    options: HelmOptions,
  ) => {
    const words = [waitOf(session), '--cleanup-on-fail', '--timeout', `${options.timeoutSeconds}s`]
    await session.run(['rollback', release, String(revision), '--namespace', namespace, ...words], {
      ...options,
      timeoutMs: options.timeoutSeconds * 1000 + shortMs,
    })
  }

  /** Ends what a killed run began; helm does nothing more with the release before. Resolves to its revisions. */
  const settle = async (session: HelmSession, place: HelmPlace, options: HelmOptions): Promise<HelmRevision[]> => {
    const revisions = await readHistory(session, place, options.signal)
    const status = revisions[0]?.status ?? ''
    if (!status.startsWith('pending-') && status !== 'uninstalling') return revisions
    const last = revisions.find((each) => each.status === 'deployed')
    if (last === undefined || status === 'uninstalling') await removeRelease(session, place, options)
    else await returnTo(session, place, last.revision, options)
    return readHistory(session, place, options.signal)
  }

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
        return [...rendered.crds, ...rendered.objects]
      }),
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
