/** The objects of an app in the namespace of its environment: the applied ones, and the present ones. */

import { forEachParallel } from '../../../lib/concurrency/parallel.ts'
import { readJson } from '../../../lib/foreign-text/read-json.ts'
import type { AppObject, AppObjects } from '../../apps.ts'
import type { Found, Objects } from '../objects.ts'
import { kindsOfApps } from './manifests.ts'
import { type Application, type AppResource, commitOf, resourcesOf } from './verdict.ts'

/** For one app; each is one request to the cluster. */
const mostObjects = 100
const longestText = 32 * 1024
const parallel = 8
const appliedName = 'kubectl.kubernetes.io/last-applied-configuration'

const isText = (text: string): boolean => text.length <= longestText

/** From the annotation that Argo CD stores on applied objects. */
const targetOf = ({ metadata }: Found): string => {
  try {
    const text = JSON.stringify(readJson(metadata.annotations?.[appliedName] ?? ''))
    return isText(text) ? text : ''
  } catch {
    return ''
  }
}

const liveOf = (kind: string, found: Found): string => {
  const {
    managedFields: _,
    annotations = {},
    ...metadata
  } = found.metadata as Found['metadata'] & Record<string, unknown>
  const { [appliedName]: __, ...others } = annotations
  const text = JSON.stringify({ kind, ...found, metadata: { ...metadata, annotations: others } })
  return isText(text) ? text : ''
}

const kindOf = ({ group, kind }: AppResource) =>
  kindsOfApps.find((each) => each.group === group && each.kind === kind)?.kind

export const readAppObjects = async (
  objects: Objects,
  app: Application,
  namespace: string,
  signal: AbortSignal,
): Promise<AppObjects> => {
  const own = resourcesOf(app)
    .filter((each) => each.namespace === namespace && kindOf(each) !== undefined)
    .slice(0, mostObjects)
  const read = new Map<AppResource, AppObject>()
  await forEachParallel(parallel, own, async (each) => {
    const { kind, name } = each
    const found = await objects.get(kindOf(each)!, namespace, name, signal)
    const texts = found === null ? { target: '', live: '' } : { target: targetOf(found), live: liveOf(kind, found) }
    read.set(each, { kind, name, namespace, ...texts })
  })
  return { commit: commitOf(app), objects: own.map((each) => read.get(each)!) }
}
