/**
 * The thread in which builds are prepared, one job at a time (see preparation.ts). Its input is untrusted: it has
 * limits on time and memory, and is killed when it exceeds them; the server's own thread never waits.
 */
import type { Readable } from 'node:stream'
import { parentPort, workerData } from 'node:worker_threads'
import { createGit } from '../git/process.ts'
import { readSourceTree, readTreeFor } from '../git/source-tree.ts'
import { openContext } from './context.ts'
import { parseDockerfile } from './dockerfile.ts'
import type { ContextJob, FromWorker, Job, Prepared, ReadJob, ToWorker, WorkerSetup } from './job.ts'
import { toPlain } from './job.ts'
import { toolDockerfile } from './tool-dockerfile.ts'

const setup = workerData as WorkerSetup
const port = parentPort!
const chunkBytes = 128 * 1024

const running = new Set<number>()
let turn = 0
let isCanceled = false
let credit = 0
let wake = (): void => {}
let onQuiet = (): void => {}

const endGroup = (group: number): void => {
  try {
    process.kill(-group, 'SIGKILL')
  } catch {
    // It has already exited.
  }
}

const onChild = (group: number): (() => void) => {
  running.add(group)
  const place = Math.max(setup.groups.indexOf(0), 0)
  Atomics.store(setup.groups, place, group)
  if (isCanceled) endGroup(group)
  return () => {
    running.delete(group)
    Atomics.store(setup.groups, place, 0)
    if (running.size === 0) onQuiet()
  }
}

const git = createGit({ ...setup.git, onChild })

const post = (message: FromWorker): void => port.postMessage(message)

const read = async ({ mirror, commitId, rootPath, dockerfilePath, tool, limits }: ReadJob): Promise<Prepared> => {
  const reading = { git, mirror, commitId, limits }
  const fragment = tool?.fragment ?? null
  const path = fragment !== null && 'path' in fragment ? `${rootPath}/${fragment.path}` : null
  const text = fragment !== null && 'text' in fragment ? fragment.text : null
  // A tool gets the whole repository, because modules refer to others outside their own folder.
  const tree =
    tool === undefined
      ? await readSourceTree(reading, rootPath, dockerfilePath)
      : await readTreeFor(reading, path, (found) => toolDockerfile(found ?? text, tool.image))
  return { tree, dockerfile: parseDockerfile(tree.dockerfile.toString('utf8')) }
}

const sendChunk = async (pieces: Buffer[], size: number): Promise<void> => {
  while (credit === 0) {
    if (isCanceled) throw new Error('canceled')
    await new Promise<void>((resolve) => {
      wake = resolve
    })
  }
  credit -= 1
  const bytes = new Uint8Array(size)
  let at = 0
  for (const piece of pieces) {
    bytes.set(piece, at)
    at += piece.length
  }
  port.postMessage({ kind: 'chunk', bytes } satisfies FromWorker, [bytes.buffer])
}

const send = async (tar: Readable): Promise<void> => {
  let pieces: Buffer[] = []
  let size = 0
  for await (const piece of tar as AsyncIterable<Buffer>) {
    pieces.push(piece)
    size += piece.length
    if (size < chunkBytes) continue
    await sendChunk(pieces, size)
    pieces = []
    size = 0
  }
  if (size > 0) await sendChunk(pieces, size)
}

const context = async ({ tree, own, limits }: ContextJob): Promise<void> => {
  const tar = await openContext(git, { ...tree, dockerfile: Buffer.from(tree.dockerfile) }, own, limits)
  post({ kind: 'opened' })
  await send(tar)
  post({ kind: 'end' })
}

const work = async (job: Job): Promise<void> => {
  const mine = turn
  isCanceled = false
  credit = 0
  try {
    if (job.kind === 'read') post({ kind: 'read', prepared: await read(job) })
    else await context(job)
  } catch (error) {
    post({ kind: 'failed', error: toPlain(error) })
  }
  // The next job must start without anything left of this one.
  if (running.size > 0)
    await new Promise<void>((resolve) => {
      onQuiet = resolve
    })
  turn = 0
  post({ kind: 'idle', turn: mine })
}

const cancel = (wanted: number): void => {
  if (wanted !== turn) post({ kind: 'idle', turn: wanted })
  else {
    isCanceled = true
    for (const group of running) endGroup(group)
  }
}

port.on('message', (message: ToWorker) => {
  if (message.kind === 'job') {
    turn = message.turn
    void work(message.job)
  } else if (message.kind === 'credit') credit += message.chunks
  else cancel(message.turn)
  wake()
})
