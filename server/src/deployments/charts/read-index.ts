/**
 * Reads indexes of chart repositories, in a thread. Promises that an organization has one index in memory at a time,
 * however many it requests: they are large and untrusted.
 */
import { createSemaphore } from '../../lib/concurrency/semaphore.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { ForeignTextError, readJson } from '../../lib/foreign-text/read-json.ts'
import { createThreads } from '../../lib/foreign-text/threads.ts'
import { OutboundFailed } from '../../lib/net/outbound-errors.ts'
import type { ChartPlace, ChartVersions } from './chart-index.ts'
import type { IndexJob, IndexRead } from './index-thread.ts'

/** Names and versions: the event loop parses them. */
const mostRead = { mostBytes: 8 << 20, mostValues: 200_000 }

const inTurn = createSemaphore(3, 1, 6)

const threads = createThreads<IndexJob, string>(new URL('./index-thread.ts', import.meta.url), {
  heapMb: 256,
  timeMs: 15_000,
})

export const tooLargeIndex = (how: string): DeploymentError =>
  new DeploymentError('repository_too_large', `The index of this repository ${how}: use a smaller repository.`)

const read = (owner: string, fetch: () => Promise<Buffer>, job: IndexJob, signal: AbortSignal): Promise<IndexRead> =>
  inTurn(
    owner,
    async () => readJson(await threads.read(await fetch(), job, { owner, signal }), mostRead) as IndexRead,
    { signal },
  ).catch((error: unknown) => {
    if (signal.aborted) throw new OutboundFailed('aborted', 'the request was aborted', signal.reason)
    throw error instanceof ForeignTextError ? tooLargeIndex(error.message) : error
  })

/** The charts in an index, or one alone; null for a text that is not an index. `fetch` is called in its turn. */
export const listIndex = async (
  owner: string,
  fetch: () => Promise<Buffer>,
  chart: string | undefined,
  signal: AbortSignal,
): Promise<ChartVersions[] | null> => (await read(owner, fetch, { chart, version: null }, signal)).charts

/** Where one version of a chart is; null if the index does not list it. */
export const findInIndex = async (
  owner: string,
  fetch: () => Promise<Buffer>,
  { chart, version }: { chart: string; version: string },
  signal: AbortSignal,
): Promise<ChartPlace | null> => (await read(owner, fetch, { chart, version }, signal)).place
