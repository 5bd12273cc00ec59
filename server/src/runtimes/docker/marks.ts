/** Marks of control planes as empty volumes: their data is in their labels. */
import { type Engine, ignoreGone } from '../../lib/docker/docker-engine.ts'
import { type Mark, type Marks, markName, newestFirst, readMark, scopeMark } from '../marks.ts'
import type { VolumeRow } from './volumes.ts'

/** Not the owner's label: a mark belongs to no service, and must not be found in searches for services. */
const labels = {
  owner: 'slipway.generation-of',
  scope: 'slipway.generation-scope',
  generation: 'slipway.generation',
  nonce: 'slipway.generation-nonce',
  writer: 'slipway.generation-writer',
} as const

const deadlineMs = 10_000

const markOf = ({ Labels }: Pick<VolumeRow, 'Labels'>): Mark | null =>
  readMark(Labels?.[labels.generation], Labels?.[labels.nonce], Labels?.[labels.writer])

export const createMarks = (engine: Engine, ownerId: string): Marks => {
  const find = async (label: string, signal: AbortSignal): Promise<VolumeRow[]> => {
    const query = { filters: JSON.stringify({ label: [label] }) }
    const found = await engine.call<{ Volumes: VolumeRow[] | null }>('GET', '/volumes', { query, deadlineMs, signal })
    return found.Volumes ?? []
  }
  const drop = (name: string, signal: AbortSignal): Promise<void> =>
    ignoreGone(engine.call('DELETE', `/volumes/${name}`, { deadlineMs, signal }))
  return {
    async list(scope, signal) {
      const rows = await find(`${labels.scope}=${scopeMark(ownerId, scope)}`, signal)
      return rows.flatMap((row) => markOf(row) ?? []).sort(newestFirst)
    },
    async put(scope, mark, signal) {
      // The engine answers with an existing volume of this name, if there is one.
      const made = await engine.call<VolumeRow>('POST', '/volumes/create', {
        body: {
          Name: markName(ownerId, scope, mark.generation),
          Labels: {
            [labels.owner]: ownerId,
            [labels.scope]: scopeMark(ownerId, scope),
            [labels.generation]: String(mark.generation),
            [labels.nonce]: mark.nonce,
            [labels.writer]: mark.writer,
          },
        },
        deadlineMs,
        signal,
      })
      return markOf(made) ?? mark
    },
    remove: (scope, { generation }, signal) => drop(markName(ownerId, scope, generation), signal),
    async clear(signal) {
      for (const { Name } of await find(`${labels.owner}=${ownerId}`, signal)) await drop(Name, signal)
    },
  }
}
