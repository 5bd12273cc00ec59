/** The engine's log stream → lines. Frames are the engine's messages, not lines: a long line comes in several. */
import type { Readable } from 'node:stream'
import type { LogLine } from '../../runtime.ts'

/** Longer lines are cut, so that a program without line breaks cannot use up our memory. */
export const maxLineBytes = 64 * 1024

const headerBytes = 8
/** Engines cut at 16 kB; one on another machine is not trusted. */
const maxFrameBytes = 8 << 20
const newline = 10
const space = 32

interface Partial {
  at: string
  parts: Buffer[]
  bytes: number
}

const toLine = (partial: Partial, stream: LogLine['stream'], instance: string, revision: string): LogLine => {
  const bytes = partial.parts.length === 1 ? partial.parts[0]! : Buffer.concat(partial.parts)
  const end = bytes.at(-1) === 13 ? bytes.length - 1 : bytes.length
  return { at: partial.at, text: bytes.toString('utf8', 0, end), stream, instance, revision }
}

const append = (partial: Partial, piece: Buffer): void => {
  const room = maxLineBytes - partial.bytes
  if (room <= 0) return
  // A copy: a slice would keep its whole chunk in memory.
  partial.parts.push(Buffer.from(piece.subarray(0, room)))
  partial.bytes += Math.min(room, piece.length)
}

/** Takes payloads of frames and returns the lines that they complete. */
const createAssembler = (instance: string, revision: string) => {
  const open: Record<LogLine['stream'], Partial | null> = { stdout: null, stderr: null }
  const add = (stream: LogLine['stream'], payload: Buffer, lines: LogLine[]): void => {
    const stamp = payload.indexOf(space)
    const at = payload.toString('latin1', 0, stamp)
    let start = stamp + 1
    for (;;) {
      const end = payload.indexOf(newline, start)
      const before = open[stream]
      if (end === -1) {
        if (start === payload.length && before === null) return
        open[stream] ??= { at, parts: [], bytes: 0 }
        append(open[stream], payload.subarray(start))
        return
      }
      const piece = payload.subarray(start, end)
      const partial = before ?? { at, parts: [], bytes: 0 }
      if (before === null) {
        partial.parts.push(piece.subarray(0, maxLineBytes))
      } else append(partial, piece)
      open[stream] = null
      lines.push(toLine(partial, stream, instance, revision))
      start = end + 1
      if (start >= payload.length) return
    }
  }
  const flush = (lines: LogLine[]): void => {
    for (const stream of ['stdout', 'stderr'] as const)
      if (open[stream] !== null) lines.push(toLine(open[stream], stream, instance, revision))
  }
  return { add, flush }
}

/** Batches of lines, one per chunk that arrived; reading slowly slows the engine down. */
export async function* readLines(stream: Readable, instance: string, revision: string): AsyncGenerator<LogLine[]> {
  const assembler = createAssembler(instance, revision)
  let rest: Buffer = Buffer.alloc(0)
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const lines: LogLine[] = []
    let offset = 0
    while (bytes.length - offset >= headerBytes) {
      const length = bytes.readUInt32BE(offset + 4)
      if (length > maxFrameBytes) throw new Error('the engine sent a frame that is too long')
      const end = offset + headerBytes + length
      if (end > bytes.length) break
      assembler.add(bytes[offset] === 2 ? 'stderr' : 'stdout', bytes.subarray(offset + headerBytes, end), lines)
      offset = end
    }
    rest = Buffer.from(bytes.subarray(offset))
    if (lines.length > 0) yield lines
  }
  const lines: LogLine[] = []
  assembler.flush(lines)
  if (lines.length > 0) yield lines
}
