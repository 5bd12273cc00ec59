/**
 * Marks of control planes as ConfigMaps of the namespace `default`, which every cluster has: our login may create and
 * remove ConfigMaps in all namespaces. A mark is created, never changed: of two writers the API server refuses the
 * second.
 */
import { KubernetesError } from '../../lib/kubernetes/kubernetes-errors.ts'
import { type Mark, type Marks, markName, newestFirst, readMark, scopeMark } from '../marks.ts'
import { type Found, type Objects, pathOf } from './objects.ts'

const namespace = 'default'
const labels = { owner: 'slipway.generation-of', scope: 'slipway.generation-scope' } as const
const most = 1000

type MarkMap = Found & { data?: Record<string, unknown> }

const markOf = ({ data }: MarkMap): Mark | null => readMark(data?.generation, data?.nonce, data?.writer)

export const createMarks = ({ api, place: { ownerId } }: Pick<Objects, 'api' | 'place'>): Marks => {
  const find = (labelSelector: string, signal: AbortSignal): Promise<MarkMap[]> =>
    api.list<MarkMap>(pathOf('ConfigMap', namespace), most, { query: { labelSelector }, signal })
  const drop = async (name: string, signal: AbortSignal): Promise<void> => {
    await api.remove(pathOf('ConfigMap', namespace, name), { signal })
  }
  return {
    async list(scope, signal) {
      const found = await find(`${labels.scope}=${scopeMark(ownerId, scope)}`, signal)
      return found.flatMap((each) => markOf(each) ?? []).sort(newestFirst)
    },
    async put(scope, mark, signal) {
      const name = markName(ownerId, scope, mark.generation)
      const body = {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name, namespace, labels: { [labels.owner]: ownerId, [labels.scope]: scopeMark(ownerId, scope) } },
        data: { generation: String(mark.generation), nonce: mark.nonce, writer: mark.writer },
      }
      try {
        await api.create(pathOf('ConfigMap', namespace), body, { signal })
        return mark
      } catch (error) {
        if (!(error instanceof KubernetesError) || error.status !== 409) throw error
        return markOf(await api.get<MarkMap>(pathOf('ConfigMap', namespace, name), { signal })) ?? mark
      }
    },
    remove: (scope, { generation }, signal) => drop(markName(ownerId, scope, generation), signal),
    async clear(signal) {
      for (const { metadata } of await find(`${labels.owner}=${ownerId}`, signal)) await drop(metadata.name, signal)
    },
  }
}
