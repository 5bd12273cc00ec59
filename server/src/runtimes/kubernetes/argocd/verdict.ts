/** An Argo CD's report of an app: its state, whether a synchronization has ended, and why not. Pure. */
import type { Told } from '../../apps.ts'
import type { Instance } from '../../runtime.ts'
import { labels } from '../manifests/describe.ts'
import type { Found } from '../objects.ts'
import { said } from '../verdict.ts'
import { hostsLabel } from './manifests.ts'

interface Health {
  status?: unknown
  message?: unknown
}

/** Written by an untrusted controller: any field may be missing, or of another type. */
export interface Application extends Found {
  operation?: { info?: unknown }
  status?: {
    health?: Health
    sync?: { status?: unknown; revision?: unknown }
    conditions?: unknown
    resources?: unknown
    history?: unknown
    operationState?: {
      phase?: unknown
      message?: unknown
      finishedAt?: unknown
      operation?: { info?: unknown }
      syncResult?: { resources?: unknown }
    }
  }
}

/** One object of an app, as named in its status. */
export interface AppResource {
  group: string
  kind: string
  namespace: string
  name: string
  health: Health
}

const mostRead = 500
const mostTold = 3

type Plain = Record<string, unknown>

const isPlain = (value: unknown): value is Plain => typeof value === 'object' && value !== null && !Array.isArray(value)
const listOf = (value: unknown): Plain[] => (Array.isArray(value) ? value.slice(0, mostRead).filter(isPlain) : [])
const textOf = (value: unknown): string => (typeof value === 'string' ? said(value.slice(0, 10_000)) : '')

const joined = (...parts: string[]): string => parts.filter((each) => each !== '').join(': ')
const sentences = (parts: readonly string[]): string =>
  [...new Set(parts)]
    .filter((each) => each !== '')
    .map((each) => `${each}.`)
    .join(' ')

export const resourcesOf = ({ status }: Application): AppResource[] =>
  listOf(status?.resources).map(({ group, kind, namespace, name, health }) => ({
    group: textOf(group),
    kind: textOf(kind),
    namespace: textOf(namespace),
    name: textOf(name),
    health: isPlain(health) ? health : {},
  }))

/** Objects that are not healthy, and the errors of the app itself. */
const reasonsOf = (app: Application): string[] => {
  const { conditions, health, operationState } = app.status ?? {}
  const wrong = listOf(conditions).filter(({ type }) => textOf(type).endsWith('Error'))
  const failed = listOf(operationState?.syncResult?.resources).filter(({ status }) => status === 'SyncFailed')
  const ill = resourcesOf(app).filter(({ health: { status } }) => /^(Degraded|Missing|Suspended)$/.test(textOf(status)))
  return [
    ...wrong.slice(0, mostTold).map(({ type, message }) => joined(textOf(type), textOf(message))),
    ...failed
      .slice(0, mostTold)
      .map(({ kind, name, message }) => joined(`${textOf(kind)} ${textOf(name)}`, textOf(message))),
    ...ill
      .slice(0, mostTold)
      .map((each) => joined(`${each.kind} ${each.name}`, textOf(each.health.status), textOf(each.health.message))),
    textOf(health?.message),
  ]
}

const adviceFor = (reasons: readonly string[]): string[] =>
  reasons.some((each) => /:(Ingress|HTTPRoute|GRPCRoute) is not permitted in project/.test(each))
    ? [`Apps may not publish host names unless the namespace of Argo CD has the label ${hostsLabel}=any`]
    : []

const statesByHealth: Record<string, Told['state']> = {
  Healthy: 'RUNNING',
  Progressing: 'STARTING',
  Suspended: 'WARNING',
  Degraded: 'ERROR',
  Missing: 'ERROR',
}

const hasFailed = (app: Application): boolean => /^(Failed|Error)$/.test(textOf(app.status?.operationState?.phase))

/** The state of an app, in the words of our states. */
export const toldOf = (app: Application): Told => {
  if (app.metadata.deletionTimestamp !== undefined) return { state: 'WARNING', message: 'Argo CD removes the app.' }
  const { health, sync, operationState } = app.status ?? {}
  const [healthy, synced] = [textOf(health?.status), textOf(sync?.status)]
  if (healthy === '' && synced === '')
    return {
      state: 'STARTING',
      message: 'Argo CD has not looked at the app yet: is its application controller running?',
    }
  const byHealth = statesByHealth[healthy] ?? 'WARNING'
  const state = byHealth === 'RUNNING' && synced !== 'Synced' ? 'WARNING' : byHealth
  if (state === 'RUNNING') return { state, message: null }
  const operation = hasFailed(app) ? [textOf(operationState?.message)] : []
  return {
    state,
    message: sentences([
      `Argo CD says ${healthy || 'Unknown'} and ${synced || 'Unknown'}`,
      ...operation,
      ...reasonsOf(app),
    ]),
  }
}

export interface Progress {
  is: 'done' | 'failed' | 'waiting'
  message: string
  /** While it waits: an error that may still pass. */
  isWrong?: boolean
}

export const commitOf = ({ status }: Application): string | null => {
  const revision = status?.sync?.revision
  return typeof revision === 'string' && /^[0-9a-f]{7,64}$/.test(revision) ? revision : null
}

/** Whether the requested synchronization has ended, and the app is at the commit and healthy. */
export const progressOf = (app: Application, commit: string): Progress => {
  const { operationState, sync } = app.status ?? {}
  const message = textOf(operationState?.message)
  const isRunning = /^(Running|Terminating)$/.test(textOf(operationState?.phase))
  if (app.operation !== undefined)
    return {
      is: 'waiting',
      message: isRunning
        ? sentences([joined('Argo CD synchronizes the app', message)])
        : 'Waiting for Argo CD to begin: is its application controller running?',
    }
  if (hasFailed(app)) {
    const reasons = [joined('Argo CD could not synchronize the app', message), ...reasonsOf(app)]
    return { is: 'failed', message: sentences([...reasons, ...adviceFor(reasons)]) }
  }
  const told = toldOf(app)
  if (told.state === 'RUNNING' && sync?.revision === commit) return { is: 'done', message: '' }
  if (told.state === 'RUNNING') return { is: 'waiting', message: 'Argo CD has not come to the commit yet.' }
  return { is: 'waiting', message: told.message ?? '', isWrong: told.state !== 'STARTING' }
}

/** It was synchronized before: there is a version to go back to, or to stop. */
export const wasSynchronized = ({ status }: Application): boolean => listOf(status?.history).length > 0

const revisionIn = (info: unknown): string | undefined =>
  listOf(info).find(({ name }) => name === labels.revision)?.value as string | undefined

/** A synchronization for this revision is requested, or has ended. */
export const isAskedFor = (app: Application, revision: string): 'now' | 'before' | null => {
  if (app.operation !== undefined) return revisionIn(app.operation.info) === revision ? 'now' : null
  return revisionIn(app.status?.operationState?.operation?.info) === revision ? 'before' : null
}

/** Another synchronization is in progress, and must end first. */
export const isInTheWay = (app: Application, revision: string): boolean =>
  app.operation !== undefined && isAskedFor(app, revision) === null

/** One instance for all objects of an app. */
export const toInstance = (app: Application): Instance => {
  const own = app.metadata.labels ?? {}
  return {
    id: app.metadata.name,
    name: app.metadata.name,
    organizationId: own[labels.organization] ?? '',
    environmentId: own[labels.environment] ?? '',
    serviceId: own[labels.service] ?? '',
    revision: own[labels.revision] ?? '',
    index: 0,
    state: 'running',
    exitCode: null,
    oomKilled: false,
    restarts: 0,
    startedAt: app.metadata.creationTimestamp ?? null,
    ports: [],
    told: toldOf(app),
  }
}
