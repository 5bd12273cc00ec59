/** Helm's commands about a release: its revisions, its objects, rollback and removal. */

import { DeploymentError } from '../../../lib/errors.ts'
import { readJson } from '../../../lib/foreign-text/read-json.ts'
import type { KubernetesAccess } from '../../../lib/kubernetes/kubeconfig.ts'
import type { KubernetesApi } from '../../../lib/kubernetes/kubernetes-api.ts'
import { readObjects } from './charted.ts'
import type { HelmSession } from './tool.ts'

export interface HelmPlace {
  access: KubernetesAccess
  api: Pick<KubernetesApi, 'get'>
  namespace: string
  release: string
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

export const shortMs = 60_000
/** Revisions. */
export const kept = 10

export const kubeconfigOf = (
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
  const rows = readJson(text) as Record<string, unknown>[]
  const word = (value: unknown): string => (typeof value === 'string' ? value.slice(0, 500) : '')
  return rows
    .map((row) => ({
      ...{ revision: Number(row.revision), status: word(row.status), chart: word(row.chart) },
      ...{ appVersion: word(row.app_version), updated: word(row.updated), description: word(row.description) },
    }))
    .sort((left, right) => right.revision - left.revision)
}

/** The wait of helm 4 uses watches, and takes a minute when there is nothing to wait for. */
export const waitOf = ({ isFourth }: HelmSession): string => (isFourth ? '--wait=legacy' : '--wait')

export const readHistory = async ({ run }: HelmSession, { release, namespace }: HelmPlace, signal?: AbortSignal) => {
  try {
    const args = ['history', release, '--namespace', namespace, '--output', 'json', '--max', String(kept)]
    return parseHistory(await run(args, { timeoutMs: shortMs, signal }))
  } catch (error) {
    if (error instanceof DeploymentError && /release: not found/.test(error.message)) return []
    throw error
  }
}

export const installedObjects = async (
  { run }: HelmSession,
  { release, namespace }: HelmPlace,
  signal?: AbortSignal,
) => {
  const text = await run(['get', 'manifest', release, '--namespace', namespace], {
    ...{ timeoutMs: shortMs, maxOutput: 16 << 20 },
    signal,
  })
  return readObjects(text, '{')
}

export const removeRelease = async (session: HelmSession, { release, namespace }: HelmPlace, options: HelmOptions) => {
  const timeout = `${options.timeoutSeconds}s`
  const words = ['--ignore-not-found', waitOf(session), '--timeout', timeout]
  await session.run(['uninstall', release, '--namespace', namespace, ...words], {
    ...options,
    timeoutMs: options.timeoutSeconds * 1000 + shortMs,
  })
}

export const returnTo = async (
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

/** Ends a killed run's work; helm does nothing more with the former release. Resolves to its revisions. */
export const settle = async (session: HelmSession, place: HelmPlace, options: HelmOptions): Promise<HelmRevision[]> => {
  const revisions = await readHistory(session, place, options.signal)
  const status = revisions[0]?.status ?? ''
  if (!status.startsWith('pending-') && status !== 'uninstalling') return revisions
  const last = revisions.find((each) => each.status === 'deployed')
  if (last === undefined || status === 'uninstalling') await removeRelease(session, place, options)
  else await returnTo(session, place, last.revision, options)
  return readHistory(session, place, options.signal)
}
