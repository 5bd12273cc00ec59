/**
 * Watches the deployments of an environment that run or wait the way a client does: again and again, over the public
 * API.
 */
import type { Json } from '../api.ts'
import { until } from '../until.ts'

export type Send = (method: string, path: string, body?: unknown) => Promise<{ status: number; body: Json }>

/** A deployment as the queue showed it; times in ms of the monotonic clock. */
export interface Seen {
  id: string
  trigger: string
  /** When it was first seen as the one whose turn it is. */
  headAt: number | null
  /** When the queue no longer showed it. */
  goneAt: number | null
}

export interface QueueWatch {
  environmentId: string
  /** In the order in which the queue showed them. */
  seen: Map<string, Seen>
  /** What the queue showed against its own order. */
  disorder: string[]
  /** Reads the queue now and answers the ids and actions in it. */
  look(): Promise<Seen[]>
  stop(): Promise<void>
}

const longestMs = 600_000

/**
 * What runs, then what waits. What waits is read first: what begins between the two reads is in both, never in none.
 * What has even ended between them, and made room for one behind it, no longer waits.
 */
const readOpen = async (send: Send, environmentId: string): Promise<Json[]> => {
  const read = async (path: string): Promise<Json[]> => {
    const { status, body } = await send('GET', `/environment/${environmentId}/${path}`)
    return status === 200 ? body.results : []
  }
  const waiting = await read('deploymentQueue')
  const history = await read('deploymentHistoryV2?pageSize=100')
  const begun = new Set(history.map((one) => one.identifier.deployment_request_id))
  return [
    ...history.filter((one) => one.action_status === 'ONGOING'),
    ...waiting.filter((one) => !begun.has(one.identifier.deployment_request_id)),
  ]
}

/** A part that waits may be ended alone, because its service is to be deleted. */
const hasBegun = (entry: Json): boolean =>
  entry.stages.some((stage: Json) => stage.status !== 'QUEUED' && stage.status !== 'CANCELED')

/** A deployment that runs although an earlier one still waits has overtaken it. */
const overtakers = (entries: readonly Json[]): string[] =>
  entries.flatMap((entry, index) =>
    index > 0 && hasBegun(entry)
      ? [`${entry.identifier.deployment_request_id} runs before ${entries[0].identifier.deployment_request_id}`]
      : [],
  )

const insertions = (ids: readonly string[], seen: ReadonlyMap<string, Seen>): string[] => {
  const places = [...seen.keys()]
  const order = ids.map((id) => places.indexOf(id))
  return order.every((place, index) => index === 0 || place > order[index - 1]!)
    ? []
    : [`the queue changed its order: ${ids.join()}`]
}

/** Watches until `stop`. An environment that is gone has an empty queue. */
export const watchQueue = (send: Send, environmentId: string): QueueWatch => {
  const seen = new Map<string, Seen>()
  const disorder: string[] = []
  let stopped = false
  const take = (entries: readonly Json[]): Seen[] => {
    const now = performance.now()
    const ids: string[] = entries.map((entry) => entry.identifier.deployment_request_id)
    for (const entry of entries) {
      const { deployment_request_id: id } = entry.identifier
      if (!seen.has(id)) seen.set(id, { id, trigger: entry.trigger_action, headAt: null, goneAt: null })
    }
    const head = seen.get(ids[0] ?? '')
    if (head !== undefined) head.headAt ??= now
    for (const one of seen.values()) if (!ids.includes(one.id)) one.goneAt ??= now
    disorder.push(...overtakers(entries), ...insertions(ids, seen))
    return ids.map((id) => seen.get(id)!)
  }
  // One look at a time: answers that overtake each other would show an order that never was.
  let looking: Promise<unknown> = Promise.resolve()
  const look = (): Promise<Seen[]> => {
    const next = looking.then(async () => take(await readOpen(send, environmentId)))
    looking = next.catch(() => {})
    return next
  }
  const lookAgain = async (): Promise<boolean> => {
    await look()
    return stopped
  }
  const watching = until(lookAgain, { timeoutMs: longestMs, what: 'the end of the watch' })
  return {
    environmentId,
    seen,
    disorder,
    look,
    async stop() {
      stopped = true
      await watching
    },
  }
}
