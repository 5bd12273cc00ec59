/**
 * Programs whose standard streams are connected to this server: attached before they start, so that nothing is lost, and
 * removed at the end. If this process dies, their input ends; the next call with its id replaces the container, or it
 * is swept with its owner.
 */
import type { Duplex } from 'node:stream'
import { untilAborted } from '../../../lib/concurrency/waiting.ts'
import type { Engine } from '../../../lib/docker/docker-engine.ts'
import { drained } from '../../../lib/drained.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { PipedTask, PipeEnd, Pipes } from '../../pipes.ts'
import type { Runtime } from '../../runtime.ts'
import type { Containers } from '../containers.ts'
import type { Creator } from '../create.ts'
import { describePipe, labels, taskName } from '../describe.ts'
import { removeContainer } from '../endings.ts'
import { whyNotStarted } from '../program/not-started.ts'
import { readFrames } from './frames.ts'

interface PipeParts {
  engine: Engine
  containers: Containers
  creator: Creator
  ownerId: string
  clock: Clock
}

/** How long the engine may take to report the end of a program whose streams have ended. */
const endMs = 30_000
const lastLines = 20

class TimeIsUp extends Error {}

/** Its own end of the connection is closed at the end of the input. A program that ends before reads no more. */
const feed = async (socket: Duplex, stdin: AsyncIterable<Uint8Array> | undefined): Promise<void> => {
  if (stdin !== undefined)
    for await (const chunk of stdin) {
      if (socket.destroyed || socket.writableEnded) return
      if (!socket.write(chunk)) await drained(socket)
    }
  socket.end()
}

async function* readSocket(socket: Duplex): AsyncGenerator<Buffer> {
  for await (const chunk of socket) yield chunk as Buffer
}

const drop = async (bytes: AsyncIterable<Uint8Array>): Promise<void> => {
  for await (const _ of bytes);
}

/** Both directions to their ends; the first error ends both. */
const exchange = async (socket: Duplex, { stdin, stdout = drop, onLine }: Pipes): Promise<void> => {
  // An error of the connection is seen where it is read.
  socket.on('error', () => {})
  const failed = Promise.withResolvers<never>()
  failed.promise.catch(() => {})
  const output = readFrames(readSocket(socket), onLine)
  const feeding = feed(socket, stdin).catch((error: unknown) => {
    failed.reject(error)
    socket.destroy()
  })
  const taking = stdout(output).then(() => drop(output))
  try {
    await Promise.race([taking, failed.promise])
  } finally {
    socket.destroy()
    taking.catch(() => {})
  }
  // An input that waits for its source is of no use any more.
  feeding.catch(() => {})
}

export const createPipe = ({ engine, containers, creator, ownerId, clock }: PipeParts): Runtime['pipe'] => {
  /** What an earlier process left under this name; a container of another owner is not touched. */
  const removeEarlier = async ({ taskId }: PipedTask, signal: AbortSignal): Promise<void> => {
    for (const row of await containers.list({ [labels.task]: taskId }, { tasks: true, signal }))
      if (row.Names.some((name) => name.replace(/^\//, '') === taskName(taskId))) await removeContainer(engine, row.Id)
  }

  const create = async (task: PipedTask, signal: AbortSignal): Promise<string> => {
    const context = { environmentId: task.environmentId, progress: () => {}, signal }
    return creator.create(taskName(task.taskId), describePipe(task, ownerId), context, {
      files: task.files,
      folders: [],
    })
  }

  const endOf = async (id: string, signal: AbortSignal): Promise<Pick<PipeEnd, 'exitCode' | 'oomKilled'>> => {
    await engine.call('POST', `/containers/${id}/wait`, { deadlineMs: endMs, signal })
    const { State } = await containers.inspect(id, signal)
    return { exitCode: State.ExitCode, oomKilled: State.OOMKilled }
  }

  const play = async (id: string, task: PipedTask, pipes: Pipes, signal: AbortSignal): Promise<PipeEnd> => {
    await creator.writeFiles(id, task.files)
    const query = { stream: true, stdin: true, stdout: true, stderr: true }
    const socket = await engine.connect(`/containers/${id}/attach`, { query, signal })
    const last: string[] = []
    const onLine = (line: string): void => {
      last.push(line)
      if (last.length > lastLines) last.shift()
      pipes.onLine(line)
    }
    try {
      await creator.start(id, task.environmentId)
      await untilAborted(exchange(socket, { ...pipes, onLine }), signal)
      const ended = await endOf(id, signal)
      const why = ended.exitCode === 0 ? null : await whyNotStarted(engine, id, last, signal)
      return { ...ended, timedOut: false, ...(why === null ? {} : { notStarted: why }) }
    } finally {
      socket.destroy()
    }
  }

  return async (task, pipes, signal) => {
    signal.throwIfAborted()
    const over = new AbortController()
    const either = AbortSignal.any([signal, over.signal])
    const done = new AbortController()
    clock.sleep(task.timeoutMs, AbortSignal.any([signal, done.signal])).then(
      () => over.abort(new TimeIsUp()),
      () => {},
    )
    let id: string | undefined
    try {
      await removeEarlier(task, either)
      id = await create(task, either)
      return await play(id, task, pipes, either)
    } catch (error) {
      if (error instanceof TimeIsUp) return { exitCode: 137, oomKilled: false, timedOut: true }
      signal.throwIfAborted()
      throw error
    } finally {
      done.abort()
      if (id !== undefined) await removeContainer(engine, id)
    }
  }
}
