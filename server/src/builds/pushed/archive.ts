/**
 * Makes a commit from a directory as tar and gzip. The archive is read in a separate thread with limits; a refusal is
 * one sentence. Only git's objects are written to disk, in an intake that is removed.
 */
import { pipeline } from 'node:stream/promises'
import { Worker } from 'node:worker_threads'
import { ApiError } from '../../lib/errors.ts'
import { deathOf, type ThreadDeath } from '../../lib/thread-death.ts'
import type { ArchiveEnd, ArchiveJob } from './archive-job.ts'
import { atMost, explainIntake, type Intake, pushRefused } from './intake.ts'
import { type ArchiveLimits, smallBytes } from './tar-reader.ts'

const program = new URL('./archive-worker.ts', import.meta.url)
const heapMb = 64
/** How many times its own size an archive may expand to. */
const inflation = 5

const archiveLimits = (maxBytes: number): ArchiveLimits => ({
  maxBytes,
  inflatedBytes: Math.max(inflation * maxBytes, smallBytes),
  entries: 50_000,
  pathBytes: 1024,
  allPathBytes: 8 * 2 ** 20,
})

const archiveRefused = (message: string): ApiError => new ApiError(400, 'archive_refused', message)

const explainDeath = (death: ThreadDeath): Error =>
  death.of === 'crash'
    ? new Error(`the thread that read an archive died: ${death.message}`)
    : pushRefused('The archive needs more memory than is allowed for it.')

const tooSlow = (): ApiError => archiveRefused('The archive did not arrive, or could not be read, in time.')

const cutOff = (): ApiError => archiveRefused('The connection was closed before the whole archive arrived.')

const personOf = (name: string): string =>
  name
    .replace(/[<>\p{Cc}]/gu, '')
    .trim()
    .slice(0, 200) || 'Slipway'

interface SentArchive {
  author: string
  at: Date
  message: string
  parent: string | null
  maxBytes: number
  timeoutMs: number
}

/** The commit made from an archive. Rejects with an `ApiError`. */
export const commitArchive = async (
  intake: Pick<Intake, 'make'>,
  archive: AsyncIterable<Buffer>,
  { author, at, message, parent, maxBytes, timeoutMs }: SentArchive,
): Promise<string> => {
  const limits = archiveLimits(maxBytes)
  const seconds = Math.floor(at.getTime() / 1000)
  const worker = new Worker(program, {
    workerData: { limits, author: personOf(author), at: seconds, message, parent } satisfies ArchiveJob,
    resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 16 },
    env: {},
    execArgv: [],
    stdin: true,
    stdout: true,
    stderr: true,
  })
  worker.stderr.resume()
  const { promise: ended, resolve } = Promise.withResolvers<ArchiveEnd | ThreadDeath>()
  worker.once('message', resolve)
  worker.on('error', (error) => resolve(deathOf(error, 1)))
  worker.once('exit', (code) => resolve(deathOf(undefined, code)))
  const stop = new AbortController()
  const late = setTimeout(() => stop.abort(tooSlow()), timeoutMs)
  let failure: unknown = null
  const fail = (error: unknown): void => {
    failure ??= error
    stop.abort(error)
  }
  // Ended only by the thread's own message: a stream that breaks off must not look complete.
  const stream = untilEnd(worker, ended, stop.signal)
  const over = new AbortController()
  const sending = pipeline(atMost(archive, maxBytes), worker.stdin!, { signal: over.signal }).catch(
    (error: unknown) => {
      // The thread stops reading an archive that it refuses.
      if (error instanceof ApiError) fail(error)
      else if ((error as { code?: string }).code === 'ECONNRESET') fail(cutOff())
    },
  )
  try {
    return await intake.make(stream, timeoutMs)
  } catch (error) {
    throw failure ?? (stop.signal.aborted ? stop.signal.reason : explainIntake(error, maxBytes))
  } finally {
    clearTimeout(late)
    over.abort()
    await worker.terminate()
    await sending
  }
}

async function* untilEnd(
  worker: Worker,
  ended: Promise<ArchiveEnd | ThreadDeath>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const onAbort = (): void => void worker.stdout.destroy(signal.reason as Error)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    for await (const chunk of worker.stdout as AsyncIterable<Buffer>) yield chunk
    const end = await ended
    if ('kind' in end) throw explainDeath(end)
    if (end.refused !== null) throw archiveRefused(end.refused)
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
