/**
 * Lines of a stream of strangers, however its bytes are cut, in time linear in them. Promises that no more than one line
 * of the longest allowed length is kept.
 */
import type { Readable } from 'node:stream'

export interface LineOptions {
  /** In characters. */
  longest: number
  /** What a longer line fails with; without it, the line is cut into pieces of about that length. */
  tooLong?: () => Error
  /** Whether what comes after the last line feed is a line. */
  hasOpenEnd?: boolean
}

/** The lines that each piece of the stream completes; none is empty. */
export async function* readLines(stream: Readable, options: LineOptions): AsyncGenerator<string[]> {
  const { longest, tooLong, hasOpenEnd = false } = options
  let pieces: string[] = []
  let length = 0
  const add = (piece: string): void => {
    if (piece === '') return
    pieces.push(piece)
    length += piece.length
  }
  const take = (): string => {
    const line = pieces.join('')
    pieces = []
    length = 0
    return line
  }
  for await (const chunk of stream.setEncoding('utf8') as AsyncIterable<string>) {
    const lines: string[] = []
    let from = 0
    for (let end = chunk.indexOf('\n'); end !== -1; end = chunk.indexOf('\n', from)) {
      add(chunk.slice(from, end))
      if (length > 0) lines.push(take())
      from = end + 1
    }
    add(chunk.slice(from))
    if (length > longest) {
      if (tooLong !== undefined) throw tooLong()
      lines.push(take())
    }
    if (lines.length > 0) yield lines
  }
  if (hasOpenEnd && length > 0) yield [take()]
}
