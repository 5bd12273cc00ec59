/**
 * The output of a build on its way to the deployment's log: scrubbed, capped, with the last lines kept for the error.
 * A line without an end, or a progress bar, counts against the limit of the whole log only as far as it is kept.
 */
import { createMasker } from './log-mask.ts'

const maxChars = 2 * 2 ** 20
const tailChars = 32_768
const tailLines = 30
const maxTailLine = 500
/** A deployment's log keeps as much of a line. */
const maxLine = 16 * 1024
const cutMark = ' … (the rest of this line is left out)'

export interface BuildLog {
  write(text: string): void
  end(): void
  /** The last lines so far, including those beyond the cap. */
  lastLines(): string[]
  scrub(text: string): string
}

/** Cuts text, in any chunks, to the limit of its lines. */
const createLineCut = () => {
  let room = maxLine - cutMark.length
  const cut = (part: string): string => {
    const kept = part.slice(0, Math.max(0, room))
    const isFirstCut = room >= 0 && part.length > room
    room = part.length > room ? -1 : room - part.length
    return isFirstCut ? kept + cutMark : kept
  }
  return (text: string): string => {
    const [first = '', ...more] = text.split('\n')
    const parts = [cut(first)]
    for (const line of more) {
      room = maxLine - cutMark.length
      parts.push(cut(line))
    }
    return parts.join('\n')
  }
}

export const createBuildLog = (secrets: readonly string[], onLog: (text: string) => void): BuildLog => {
  const masker = createMasker(secrets)
  const cutLines = createLineCut()
  let room = maxChars
  let tail = ''
  const pass = (text: string): void => {
    if (text === '') return
    tail += text
    // Cut rarely: each cut copies the rest.
    if (tail.length > 4 * tailChars) tail = tail.slice(-tailChars)
    const shown = cutLines(text)
    if (room === 0 || shown === '') return
    onLog(shown.slice(0, room))
    room = Math.max(0, room - shown.length)
    if (room === 0) onLog('\nlog truncated\n')
  }
  return {
    write: (text) => pass(masker.write(text)),
    end: () => pass(masker.end()),
    lastLines: () =>
      tail
        .slice(-tailChars)
        .split('\n')
        .filter((line) => line.trim() !== '')
        .slice(-tailLines)
        .map((line) => line.slice(-maxTailLine)),
    scrub(text) {
      const own = createMasker(secrets)
      return own.write(text) + own.end()
    },
  }
}
