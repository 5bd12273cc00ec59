/** Which fields of a request to a cluster no module reads: the answer reports them as not applied. */
import type { TSchema } from 'typebox'
import { actingIn, type Path, pointerTo } from '../../../api/operations/effects.ts'
import type { Context } from '../../../api/operations/operation.ts'
import { type ClusterModule, readsField } from '../../../clusters/modules.ts'
import { isObject } from '../../../lib/foreign-text/fields.ts'

/** The parts of a field that a module does not get; the field itself if it gets nothing of it. */
const unreadOf = (module: ClusterModule | null, at: string, path: Path, value: unknown): Path[] => {
  const reads = module === null ? 'nothing' : readsField(module, at + pointerTo(path))
  if (reads === 'all') return []
  if (reads === 'nothing' || !isObject(value)) return reads === 'nothing' ? [path] : []
  return Object.entries(value).flatMap(([name, inner]) => unreadOf(module, at, [...path, name], inner))
}

/** `at`: the position of the body in the module's document, as a JSON pointer. */
export const noteUnreadFields = (context: Context, module: ClusterModule | null, schema: TSchema, at = ''): void => {
  for (const { path, value } of actingIn('module', schema, context.body))
    for (const unread of unreadOf(module, at, path, value)) context.onlyRecorded(unread)
}
