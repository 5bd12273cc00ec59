/**
 * The objects of a chart: read from the text that helm renders, and checked before anything is applied. Pure.
 * Everything here is untrusted: the chart, and the values.
 */

import { DeploymentError } from '../../../lib/errors.ts'
import { isObject, type Json } from '../../../lib/foreign-text/fields.ts'
import { ForeignTextError, readJson, refuseExcess } from '../../../lib/foreign-text/read-json.ts'
import { splitLines } from '../../../lib/foreign-text/split-lines.ts'

export interface ChartedObject {
  apiVersion: string
  kind: string
  metadata: { name: string; namespace?: string; annotations?: Record<string, unknown>; [field: string]: unknown }
  [field: string]: unknown
}

/** The scope of a kind; null if the cluster does not know it. */
export type ScopeOf = (apiVersion: string, kind: string) => 'namespaced' | 'cluster' | null

interface Verdict {
  scopeOf: ScopeOf
  namespace: string
  allowClusterWide: boolean
}

const mostObjects = 500
const deepestList = 3

export const refuse = (message: string): never => {
  throw new DeploymentError('chart_refused', message)
}

const mostLines = 500_000
/** All objects together: the event loop parses them. */
const mostValues = 400_000

const bounded = <T>(read: () => T): T => {
  try {
    return read()
  } catch (error) {
    if (!(error instanceof ForeignTextError) || error.code === 'malformed') throw error
    return refuse(`The chart's output ${error.message}: it is too large.`)
  }
}

const linesIn = (text: string): string[] => bounded(() => splitLines(text, mostLines))

/** The values of lines of JSON, counted together before the first is parsed. `begin`: only lines that begin so. */
export const parseLines = (text: string, begin = ''): unknown[] => {
  bounded(() => refuseExcess(text, { mostBytes: text.length, mostValues, mostDepth: 200 }))
  return linesIn(text)
    .filter((line) => line.trim() !== '' && line.startsWith(begin))
    .map((line) => readJson(line, { mostBytes: line.length, mostValues, mostDepth: 200 }))
}

/** The documents of helm's output; those without content are left out. In time linear in the text. */
export const splitDocuments = (text: string): string[] => {
  const documents: string[][] = [[]]
  for (const line of linesIn(text)) {
    if (/^---(\s|$)/.test(line)) documents.push([line.slice(3)])
    else documents.at(-1)!.push(line)
  }
  const found = documents.filter((lines) => lines.some((line) => /^\s*[^\s#]/.test(line)))
  if (found.length > mostObjects)
    refuse(`The chart makes ${found.length} objects: at most ${mostObjects} are possible.`)
  return found.map((lines) => lines.join('\n'))
}

const listIn = (value: Json): unknown[] | null =>
  typeof value.kind === 'string' && value.kind.endsWith('List') && Array.isArray(value.items) ? value.items : null

const isNamed = (value: Json): value is Json & ChartedObject =>
  isObject(value.metadata) && typeof value.metadata.name === 'string'

/** An object, or those of a list, as helm reads them. */
const flatten = (value: unknown, depth = 0): ChartedObject[] => {
  if (!isObject(value)) return refuse('The chart makes something that is not an object of Kubernetes.')
  const items = listIn(value)
  if (items !== null) {
    if (depth === deepestList) refuse('The chart makes lists of lists of lists.')
    return items.flatMap((item) => flatten(item, depth + 1))
  }
  const { apiVersion, kind } = value
  if (typeof apiVersion !== 'string' || typeof kind !== 'string')
    return refuse('The chart makes an object without an apiVersion and a kind.')
  if (!isNamed(value)) return refuse(`The chart makes an object of kind ${kind.slice(0, 100)} without a name.`)
  return [value]
}

/** Objects of lines of JSON, one for each document. `begin`: other lines are left out. */
export const readObjects = (lines: string, begin = ''): ChartedObject[] => {
  const found = parseLines(lines, begin).flatMap((value) => flatten(value))
  if (found.length > mostObjects)
    refuse(`The chart makes ${found.length} objects: at most ${mostObjects} are possible.`)
  return found
}

/** `ClusterRole reader`. */
export const nameOf = ({ kind, metadata }: ChartedObject): string =>
  `${kind.slice(0, 100)} ${String(metadata.name).slice(0, 253)}`

const listed = (objects: readonly ChartedObject[]): string => {
  const names = [...new Set(objects.map(nameOf))]
  const rest = names.length - 5
  return names.slice(0, 5).join(', ') + (rest > 0 ? ` and ${rest} more` : '')
}

/** Helm's own revisions: writing them would make helm, which has our login, remove any object. */
const isHelms = ({ kind, type, metadata }: ChartedObject): boolean => {
  if (kind !== 'Secret' && kind !== 'ConfigMap') return false
  const { labels } = metadata as { labels?: { owner?: unknown } | null }
  return (
    /^sh\.helm\.release\./i.test(String(metadata.name)) ||
    String(type ?? '').startsWith('helm.sh/') ||
    String(labels?.owner ?? '').toLowerCase() === 'helm'
  )
}

/** Throws `chart_refused` for objects that a chart may not contain. */
export const judge = (objects: readonly ChartedObject[], { scopeOf, namespace, allowClusterWide }: Verdict): void => {
  const scopes = objects.map((object) => ({ object, scope: scopeOf(object.apiVersion, object.kind) }))
  const unknown = scopes.find(({ scope }) => scope === null)
  if (unknown !== undefined) {
    const { object } = unknown
    refuse(
      `The chart makes ${nameOf(object)} of ${object.apiVersion.slice(0, 200)}, which the cluster does not know: install what defines it first.`,
    )
  }
  const elsewhere = objects.filter(
    ({ metadata }, index) => scopes[index]!.scope === 'namespaced' && (metadata.namespace ?? namespace) !== namespace,
  )
  if (elsewhere.length > 0)
    refuse(`The chart makes objects in other namespaces than its own (${listed(elsewhere)}): that is not possible.`)
  const records = objects.filter(isHelms)
  if (records.length > 0) refuse(`The chart makes records of helm itself (${listed(records)}): that is not possible.`)
  const wide = objects.filter((_, index) => scopes[index]!.scope === 'cluster')
  if (wide.length > 0 && !allowClusterWide)
    refuse(
      `The chart makes objects for the whole cluster (${listed(wide)}): set allow_cluster_wide_resources if it may.`,
    )
}

export interface ChartDifference {
  name: string
  change: 'added' | 'removed' | 'changed'
}

const keyOf = (object: ChartedObject): string =>
  `${object.apiVersion.replace(/\/?v[^/]*$/, '')} ${nameOf(object)} ${object.metadata.namespace ?? ''}`

/** The changes of an upgrade, by name alone: values may be secret. */
export const differences = (before: readonly ChartedObject[], after: readonly ChartedObject[]): ChartDifference[] => {
  const old = new Map(before.map((object) => [keyOf(object), object]))
  const wanted = new Map(after.map((object) => [keyOf(object), object]))
  const changeOf = (key: string, object: ChartedObject): ChartDifference['change'] | null => {
    const known = old.get(key)
    if (known === undefined) return 'added'
    return JSON.stringify(known) === JSON.stringify(object) ? null : 'changed'
  }
  const found: ChartDifference[] = []
  for (const [key, object] of wanted) {
    const change = changeOf(key, object)
    if (change !== null) found.push({ name: nameOf(object), change })
  }
  for (const [key, object] of old) if (!wanted.has(key)) found.push({ name: nameOf(object), change: 'removed' })
  return found
}
