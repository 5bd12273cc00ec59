/**
 * One build on the engine: POST /build with the classic builder (`version=1`). Not BuildKit, though engines have it: it
 * ignores limits of memory and CPU for the steps of a build, and a build here may be anyone's. The price: Dockerfiles
 * that need BuildKit (`RUN --mount`, here-documents) fail, and the engine says so. Closing the request ends the build.
 */
import type { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Engine, EngineError, engineUnavailable } from '../lib/docker-engine.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { BuildContainers } from './build-containers.ts'
import type { BuildLog } from './build-log.ts'

export interface EngineBuild {
  context: { tar: Readable /** Where the Dockerfile is in it. */; dockerfile: string }
  tag: string
  targetStage: string | null
  buildArgs: Record<string, string>
  memoryMb: number
  cpuMillicores: number
  /** For reading the context and the engine's first word. */
  deadlineMs: number
}

interface Told {
  stream?: string
  status?: string
  aux?: { ID?: string }
  error?: string
  errorDetail?: { message?: string }
}

const maxLine = 1 << 20
const cpuPeriodUs = 100_000

const queryOf = (build: EngineBuild) => ({
  version: 1,
  t: build.tag,
  dockerfile: build.context.dockerfile,
  target: build.targetStage ?? undefined,
  buildargs: JSON.stringify(build.buildArgs),
  memory: build.memoryMb * 2 ** 20,
  memswap: build.memoryMb * 2 ** 20,
  cpuperiod: cpuPeriodUs,
  cpuquota: Math.max(1000, Math.round((build.cpuMillicores * cpuPeriodUs) / 1000)),
  networkmode: 'default',
  rm: true,
  forcerm: true,
})

/** Messages as they come, those of one chunk together: 100 MB of output are a million messages. */
async function* readMessages(stream: Readable): AsyncGenerator<Told[]> {
  let open = ''
  for await (const chunk of stream.setEncoding('utf8') as AsyncIterable<string>) {
    const lines = (open + chunk).split('\n')
    open = lines.pop()!.slice(0, maxLine)
    yield lines.filter((line) => line.trim() !== '').map((line) => JSON.parse(line) as Told)
    // Whoever else waits for us takes a turn: a build can print faster than we read.
    await nextTurn()
  }
  if (open.trim() !== '') yield [JSON.parse(open) as Told]
}

/** A long command stands at the beginning, how it ended at the end. */
const shorten = (text: string): string => (text.length > 300 ? `${text.slice(0, 150)} … ${text.slice(-140)}` : text)

const failure = (log: BuildLog, message: string, cause?: unknown): DeploymentError => {
  const text = log.scrub(message).trim()
  const lines = log.lastLines()
  if (!lines.some((line) => line.includes(text))) lines.push(text.slice(0, 500))
  return new DeploymentError('build_failed', `The build failed: ${shorten(text)}`, {
    lines: lines.slice(-30),
    cause,
  })
}

/** The image's id. `image` is null when the engine ended its answer without one. */
const follow = async (stream: Readable, log: BuildLog, started: (id: string) => void): Promise<string | null> => {
  let image: string | null = null
  for await (const messages of readMessages(stream)) {
    let text = ''
    for (const told of messages) {
      text += told.stream ?? ''
      const running = told.stream === undefined ? null : /^ ---> Running in ([0-9a-f]+)\n?$/.exec(told.stream)
      if (running !== null) started(running[1]!)
      image = told.aux?.ID ?? image
      const error = told.errorDetail?.message ?? told.error
      if (error === undefined) continue
      log.write(text)
      log.end()
      throw failure(log, error)
    }
    log.write(text)
  }
  log.end()
  return image
}

/** Answers the image's id. Rejects with `build_failed`, or the signal's reason once nothing of the build runs any more. */
export const buildOnEngine = async (
  engine: Engine,
  containers: BuildContainers,
  build: EngineBuild,
  log: BuildLog,
  signal: AbortSignal,
): Promise<string> => {
  const made = containers.open()
  try {
    const stream = await engine.stream('POST', '/build', {
      query: queryOf(build),
      body: build.context.tar,
      signal,
      deadlineMs: build.deadlineMs,
    })
    const image = await follow(stream, log, made.add)
    if (image === null) throw engineUnavailable(new Error('the build ended without an image'))
    return image
  } catch (error) {
    signal.throwIfAborted()
    const { errored } = build.context.tar
    if (errored instanceof DeploymentError) throw errored
    if (error instanceof EngineError) throw failure(log, error.message, error)
    if (errored) throw new Error('the build context could not be read', { cause: errored })
    throw error instanceof DeploymentError ? error : engineUnavailable(error)
  } finally {
    build.context.tar.destroy()
    await made.end()
  }
}
