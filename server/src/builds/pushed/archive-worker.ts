/**
 * The thread that reads an archive: gzip and tar on its standard input become a stream for `git fast-import` on its
 * standard output. It has a limit on memory and is killed at its deadline; the server's own thread never waits. The
 * stream ends with `done` only if the whole archive was read: git refuses one that does not.
 */
import { once } from 'node:events'
import { pipeline } from 'node:stream'
import { parentPort, workerData } from 'node:worker_threads'
import { createGunzip } from 'node:zlib'
import type { ArchiveEnd, ArchiveJob } from './archive-job.ts'
import { type ArchiveEntry, type ArchiveLimits, ArchiveRefused, mostRatio, readTar, smallBytes } from './tar-reader.ts'

const { limits, author, at, message, parent } = workerData as ArchiveJob
const atOnce = 65_536

let pieces: Buffer[] = []
let size = 0

const flush = async (): Promise<void> => {
  const all = Buffer.concat(pieces)
  pieces = []
  size = 0
  if (all.length > 0 && !process.stdout.write(all)) await once(process.stdout, 'drain')
}

const put = async (bytes: Buffer | string): Promise<void> => {
  // A copy: small views would keep the large buffers that they are parts of.
  const piece = Buffer.from(bytes as Buffer)
  pieces.push(piece)
  size += piece.length
  if (size >= atOnce) await flush()
}

async function* inflated({ inflatedBytes }: ArchiveLimits): AsyncGenerator<Buffer> {
  const gunzip = createGunzip()
  let bytes = 0
  pipeline(process.stdin, gunzip, () => {})
  for await (const chunk of gunzip as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > inflatedBytes)
      throw new ArchiveRefused(`The archive has more than ${Math.floor(inflatedBytes / 2 ** 20)} MB of files.`)
    if (bytes > smallBytes && bytes > mostRatio * gunzip.bytesWritten)
      throw new ArchiveRefused(`The archive inflates to more than ${mostRatio} times its size.`)
    yield chunk
  }
}

const quoted = (path: string): string => `"${path.replace(/["\\]/g, (found) => `\\${found}`)}"`

const data = async (length: number, content: AsyncIterable<Buffer>): Promise<void> => {
  await put(`data ${length}\n`)
  for await (const piece of content) await put(piece)
  await put('\n')
}

const begin = async (): Promise<void> => {
  const words = Buffer.from(message)
  const person = `${author} <slipway@localhost> ${at} +0000`
  await put(`commit refs/slipway/made\nauthor ${person}\ncommitter ${person}\ndata ${words.length}\n`)
  await put(words)
  await put(`\n${parent === null ? '' : `from ${parent}\n`}deleteall\n`)
}

const putEntry = async ({ path, mode, size: length, content }: ArchiveEntry): Promise<void> => {
  await put(`M ${mode} inline ${quoted(path)}\n`)
  await data(length, content)
}

const read = async (): Promise<void> => {
  let count = 0
  await begin()
  for await (const entry of readTar(inflated(limits), limits)) {
    await putEntry(entry)
    count += 1
  }
  if (count === 0) throw new ArchiveRefused('The archive has no files.')
  await put('\ndone\n')
  await flush()
}

const wordsFor = (error: unknown): string => {
  if (error instanceof ArchiveRefused) return error.message
  const { code = '' } = error as { code?: string }
  if (/^Z_|^ERR_STREAM_PREMATURE/.test(code)) return 'The archive is not a complete gzip file.'
  throw error
}

let end: ArchiveEnd = { refused: null }
try {
  await read()
} catch (error) {
  end = { refused: wordsFor(error) }
}
parentPort!.postMessage(end)
// Ends this thread even if input is left; its output has been handed over.
process.exit()
