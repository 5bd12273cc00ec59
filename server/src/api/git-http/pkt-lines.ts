/**
 * Lines of git's protocol: four hexadecimal digits with the length, then the text; `0000` ends a list. Pure.
 * https://git-scm.com/docs/gitprotocol-common
 */
import { badRequest } from '../../lib/errors.ts'

export const flush = '0000'

const digits = (length: number): string => (length + 4).toString(16).padStart(4, '0')

export const pktLine = (text: string | Buffer): Buffer => {
  const bytes = Buffer.from(text as Buffer)
  return Buffer.concat([Buffer.from(digits(bytes.length)), bytes])
}

const invalid = () => badRequest('This is not a Git request.')

/** The beginning of a push: its lines up to the flush; `rest` is the remaining stream. */
export const readLines = async (
  source: AsyncIterable<Buffer>,
  mostBytes: number,
): Promise<{ lines: Buffer[]; rest: AsyncIterable<Buffer>; leave(): void }> => {
  const chunks = source[Symbol.asyncIterator]()
  let held: Buffer = Buffer.alloc(0)
  let read = 0
  const take = async (count: number): Promise<Buffer> => {
    while (held.length < count) {
      const { done, value } = await chunks.next()
      if (done === true) throw invalid()
      held = held.length === 0 ? value : Buffer.concat([held, value])
    }
    const taken = held.subarray(0, count)
    held = held.subarray(count)
    read += count
    if (read > mostBytes) throw badRequest('This push names too many branches and tags at once.')
    return taken
  }
  const lines: Buffer[] = []
  /** The rest is not read: it can be discarded. */
  const leave = (): void => void chunks.return?.()?.catch(() => {})
  try {
    for (;;) {
      const text = (await take(4)).toString('latin1')
      const length = /^[0-9a-f]{4}$/i.test(text) ? Number.parseInt(text, 16) : 1
      if (length === 0) break
      if (length < 4) throw invalid()
      lines.push(await take(length - 4))
    }
  } catch (error) {
    leave()
    throw error
  }
  async function* rest(): AsyncGenerator<Buffer> {
    if (held.length > 0) yield held
    for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) yield next.value
  }
  return { lines, rest: rest(), leave }
}

export const bands = { data: 1, progress: 2 } as const
const mostInBand = 65_515

export const inBand = (band: number, bytes: Buffer): Buffer => {
  const packets: Buffer[] = []
  for (let at = 0; at === 0 || at < bytes.length; at += mostInBand)
    packets.push(pktLine(Buffer.concat([Buffer.from([band]), bytes.subarray(at, at + mostInBand)])))
  return Buffer.concat(packets)
}
