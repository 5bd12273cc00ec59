/**
 * A piece of a stage on the engine: POST /build with the classic builder (`version=1`), a Dockerfile of ours that names
 * its base by id, and no RUN: nothing of a tenant runs here, nothing is fetched and no name is looked up. Closing the
 * request ends it.
 */
import type { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Engine, EngineError, engineUnavailable } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { readJson } from '../../lib/foreign-text/read-json.ts'
import { readLines } from '../../lib/foreign-text/read-lines.ts'
import { tellingLine } from '../../lib/last-words.ts'
import type { BuildLeftovers } from './build-containers.ts'
import type { BuildLog } from './build-log.ts'

export interface PieceLine {
  /** The line that the engine gets. */
  text: string
  /** The line in the log; null for a line of our own. */
  display: string | null
  /** Line of its instruction in the file; null for a line of our own. */
  line: number | null
}

export interface Piece {
  tar: Readable
  /** Where the Dockerfile is in it. */
  dockerfile: string
  lines: PieceLine[]
  /** Lines of the text before `lines`. */
  headLines: number
  buildArgs: Record<string, string>
  /** For reading the context until the engine's first message. */
  deadlineMs: number
}

interface BuildMessage {
  stream?: string
  status?: string
  aux?: { ID?: string }
  error?: string
  errorDetail?: { message?: string }
}

const maxLine = 1 << 20

const queryOf = (piece: Piece) => ({
  version: 1,
  dockerfile: piece.dockerfile,
  buildargs: JSON.stringify(piece.buildArgs),
  networkmode: 'none',
  rm: true,
  forcerm: true,
})

/** Messages as they come, those of one chunk together. */
async function* readMessages(stream: Readable): AsyncGenerator<BuildMessage[]> {
  const tooLong = (): Error => new Error('the engine sent a message that is too long')
  for await (const lines of readLines(stream, { longest: maxLine, tooLong, hasOpenEnd: true })) {
    yield lines.filter((line) => line.trim() !== '').map((line) => readJson(line, { mostValues: 1000 }) as BuildMessage)
    await nextTurn()
  }
}

/** A long command is at the beginning, its result at the end. */
const shorten = (text: string): string => (text.length > 300 ? `${text.slice(0, 150)} … ${text.slice(-140)}` : text)

const isOfBuilder = (line: string): boolean => /^(Step \d| --->)/.test(line)

/** The last output of the programs of the failed step. */
const saidAtLast = (lines: readonly string[]): string[] =>
  lines.slice(lines.findLastIndex((line) => /^Step \d/.test(line)) + 1).filter((line) => !isOfBuilder(line))

const lastWords = (said: readonly string[]): string => {
  const line = tellingLine(said)
  return line === null ? '' : `. It said: ${line}`
}

export const buildFailure = (log: BuildLog, message: string, cause?: unknown): DeploymentError => {
  log.end()
  const text = log.scrub(message).trim()
  const lines = log.lastLines()
  const said = saidAtLast(lines)
  if (!lines.some((line) => line.includes(text))) lines.push(text.slice(0, 500))
  return new DeploymentError('build_failed', `The build failed: ${shorten(text)}${lastWords(said)}`, {
    lines: lines.slice(-30),
    cause,
  })
}

/** Translates the engine's messages about our lines into messages about the instructions as written. */
const createNarrator = (lines: PieceLine[], onRun: () => void, started: (id: string) => void) => {
  let isOurs = true
  let line: number | null = null
  const narrate = (text: string): string => {
    const step = /^Step (\d{1,5})\/\d+ : /.exec(text)
    if (step !== null) {
      const found = lines[Number(step[1]) - 1]
      const message = found?.display ?? null
      line = found?.line ?? null
      isOurs = message === null
      return message ?? ''
    }
    const running = /^ ---> Running in ([0-9a-f]+)\n?$/.exec(text)
    if (running !== null) {
      started(running[1]!)
      onRun()
    }
    if (/^Successfully built /.test(text)) isOurs = true
    return isOurs ? '' : text
  }
  /** Line of the file that the engine is at; null for one of ours. */
  return { narrate, line: () => line }
}

type Narrator = ReturnType<typeof createNarrator>

/** The engine's message about an error, with the line of the file instead of the line of our text. */
const engineReason = ({ lines, headLines }: Piece, message: string, current: number | null): string => {
  const [, number, said] = /^dockerfile parse error(?: on)? line (\d{1,6}): (.*)$/is.exec(message.trim()) ?? []
  const line = number === undefined ? current : (lines[Number(number) - 1 - headLines]?.line ?? null)
  // It ends with the path on the engine's machine, which it leaves empty.
  const why = (said ?? message).trim().replace(/ \(\)$/, '')
  return line === null ? why : `line ${line}: ${why}`
}

/** The image's id; null when the engine ended its answer without one. */
const follow = async (
  stream: Readable,
  log: BuildLog,
  piece: Piece,
  { narrate, line }: Narrator,
): Promise<string | null> => {
  let image: string | null = null
  for await (const messages of readMessages(stream)) {
    let text = ''
    for (const message of messages) {
      text += message.stream === undefined ? '' : narrate(message.stream)
      image = message.aux?.ID ?? image
      const error = message.errorDetail?.message ?? message.error
      if (error === undefined) continue
      log.write(text)
      throw buildFailure(log, engineReason(piece, error, line()))
    }
    log.write(text)
  }
  return image
}

/**
 * Resolves to the image's id. Rejects with `build_failed`, or the signal's reason. `onWork` is called when a step is
 * not in the engine's cache.
 */
export const buildPiece = async (
  engine: Engine,
  made: BuildLeftovers,
  piece: Piece,
  log: BuildLog,
  onWork: () => void,
  signal: AbortSignal,
): Promise<string> => {
  try {
    const stream = await engine.stream('POST', '/build', {
      query: queryOf(piece),
      body: piece.tar,
      signal,
      deadlineMs: piece.deadlineMs,
    })
    const image = await follow(stream, log, piece, createNarrator(piece.lines, onWork, made.add))
    if (image === null) throw engineUnavailable(new Error('the build ended without an image'))
    return image
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof EngineError) throw buildFailure(log, engineReason(piece, error.message, null), error)
    const { errored } = piece.tar
    if (errored instanceof DeploymentError) throw errored
    if (errored) throw new Error('the build context could not be read', { cause: errored })
    throw error instanceof DeploymentError ? error : engineUnavailable(error)
  } finally {
    piece.tar.destroy()
  }
}
