/**
 * Readers of a log whose lines are numbers: how many came, whether each is the one after the last. Both forms, the
 * engine's frames and server-sent events, are looked at byte by byte, so that reading costs the two sides the same.
 */

export interface Reading {
  lines: number
  /** Lines that are not the one after the line before. */
  breaks: number
  /** Numbers that never came between the first and the last. */
  missing: number
  first: number
  last: number
  /** From the first line to the last. */
  ms: number
}

/**
 * The bytes of one line in a chunk: where its number begins, and where the next line begins; null: not all there yet.
 */
type NextLine = (bytes: Buffer, offset: number) => { number: number; next: number } | null

const space = 32
const headerBytes = 8
const zero = 48

const numberAt = (bytes: Buffer, start: number): number => {
  let value = 0
  for (let at = start; ; at++) {
    const digit = bytes[at]! - zero
    if (!(digit >= 0 && digit <= 9)) return at === start ? Number.NaN : value
    value = value * 10 + digit
  }
}

/** A frame of the engine: eight bytes of header, the time, a space, the text. */
export const engineLine: NextLine = (bytes, offset) => {
  if (bytes.length - offset < headerBytes) return null
  const next = offset + headerBytes + bytes.readUInt32BE(offset + 4)
  if (next > bytes.length) return null
  return { number: numberAt(bytes, bytes.indexOf(space, offset + headerBytes) + 1), next }
}

const message = Buffer.from('"message":"')

/** An event: lines up to an empty one. One without a message is a comment. */
export const eventLine: NextLine = (bytes, offset) => {
  const end = bytes.indexOf('\n\n', offset)
  if (end === -1) return null
  // The field is in the first hundred bytes of its event, or missing.
  const at = bytes.subarray(offset, Math.min(end, offset + 100)).indexOf(message)
  return { number: at === -1 ? Number.NaN : numberAt(bytes, offset + at + message.length), next: end + 2 }
}

/** Reads until `last` has come or the stream ends; `onLine` hears of each number. */
export const readNumbers = async (
  stream: AsyncIterable<Buffer>,
  nextLine: NextLine,
  last: number,
  onLine: (number: number) => void = () => {},
): Promise<Reading> => {
  const reading: Reading = { lines: 0, breaks: 0, missing: 0, first: 0, last: 0, ms: 0 }
  let rest: Buffer = Buffer.alloc(0)
  let start = 0
  for await (const chunk of stream) {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    let offset = 0
    for (let line = nextLine(bytes, offset); line !== null; line = nextLine(bytes, offset)) {
      offset = line.next
      if (Number.isNaN(line.number)) continue
      onLine(line.number)
      if (reading.lines++ === 0) {
        start = performance.now()
        reading.first = line.number
      } else if (line.number !== reading.last + 1) {
        reading.breaks++
        reading.missing += Math.max(0, line.number - reading.last - 1)
      }
      reading.last = line.number
    }
    if (reading.last === last) break
    rest = bytes.subarray(offset)
  }
  return { ...reading, ms: performance.now() - start }
}
