/** The engine's frames of a program without a terminal: its standard output as bytes, its standard error as lines. */
import { StringDecoder } from 'node:string_decoder'
import { maxLineBytes } from '../logs/log-frames.ts'

const headerBytes = 8
const stderrStream = 2

/** Lines of at most `maxLineBytes`; the rest of a longer one is dropped. */
const createLines = (onLine: (line: string) => void) => {
  const decoder = new StringDecoder('utf8')
  let open = ''
  const end = (): void => {
    onLine(open.replace(/\r$/, ''))
    open = ''
  }
  const add = (text: string): void => {
    for (let from = 0; from < text.length; ) {
      const at = text.indexOf('\n', from)
      const piece = text.slice(from, at === -1 ? undefined : at)
      open += piece.slice(0, Math.max(0, maxLineBytes - open.length))
      if (at === -1) return
      end()
      from = at + 1
    }
  }
  return {
    write: (bytes: Buffer): void => add(decoder.write(bytes)),
    flush(): void {
      add(decoder.end())
      if (open !== '') end()
    },
  }
}

/** Passes on each piece as it comes, also of a frame that has not arrived whole. */
export async function* readFrames(
  stream: AsyncIterable<Buffer>,
  onLine: (line: string) => void,
): AsyncGenerator<Buffer> {
  const lines = createLines(onLine)
  let header: Buffer = Buffer.alloc(0)
  let source = 0
  let left = 0
  for await (const chunk of stream)
    for (let at = 0; at < chunk.length; ) {
      if (left === 0) {
        const wanted = headerBytes - header.length
        header = Buffer.concat([header, chunk.subarray(at, at + wanted)])
        at += wanted
        if (header.length < headerBytes) break
        source = header[0]!
        left = header.readUInt32BE(4)
        header = Buffer.alloc(0)
        continue
      }
      const piece = chunk.subarray(at, at + left)
      at += piece.length
      left -= piece.length
      if (source === stderrStream) lines.write(piece)
      else yield piece
    }
  lines.flush()
  if (left > 0 || header.length > 0) throw new Error('the connection to a program broke in the middle of its output')
}
