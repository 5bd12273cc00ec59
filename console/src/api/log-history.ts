/** Past lines of a service: from its existing containers, or from the stored output of a job. */

import { answerOf, client } from './client.ts'
import type { Line } from './log-line.ts'

interface Wanted {
  clusterId: string
  serviceId: string
  /** Milliseconds since 1970; the end is not included. */
  fromMs: number
  toMs: number
}

/** The most lines that the API returns at once: the newest within the time. */
export const mostPastLines = 5000

interface Stream {
  stream: { pod?: string; level?: string }
  values: [nanoseconds: string, text: string][]
}

/**
 * Names lines by their time, their instance and their number at that time, so that they have the same name after each
 * read.
 */
export const createLineNames = () => {
  const last = new Map<string, { at: number; count: number }>()
  return (at: number, from: string): string => {
    const before = last.get(from)
    const count = before?.at === at ? before.count + 1 : 1
    last.set(from, { at, count })
    return `${at}-${from}-${count}`
  }
}

/** The time in such a name. */
export const timeIn = (id: string): number => Number(/^\d+/.exec(id)?.[0] ?? Number.NaN)

/** Oldest first. */
export const readLines = async ({ clusterId, serviceId, fromMs, toMs }: Wanted): Promise<Line[]> => {
  const query = {
    endpoint: '/loki/api/v1/query_range',
    query: `{qovery_com_service_id="${serviceId}"}`,
    start: `${Math.trunc(fromMs)}000000`,
    end: `${Math.trunc(toMs)}000000`,
    limit: mostPastLines,
    direction: 'backward' as const,
  }
  const { response } = await answerOf(
    client.GET('/cluster/{clusterId}/logs', { params: { path: { clusterId }, query } }),
  )
  const { data } = JSON.parse(response) as { data: { result: Stream[] } }
  const nameOf = createLineNames()
  return data.result
    .flatMap(({ stream, values }) =>
      values.map(([ns, text]) => ({
        at: Number(ns.slice(0, -6)),
        text,
        isError: stream.level === 'error',
        from: stream.pod ?? '',
      })),
    )
    .reverse()
    .sort((a, b) => a.at - b.at)
    .map((line) => ({ ...line, id: nameOf(line.at, line.from) }))
}
