/**
 * The output of a build on its way to the deployment's log: scrubbed, capped, with the last lines kept for the error.
 */
import { createMasker } from './log-mask.ts'

const maxChars = 2 * 2 ** 20
const tailChars = 32_768
const tailLines = 30
const maxLine = 500

export interface BuildLog {
  write(text: string): void
  end(): void
  /** The last lines so far, including those beyond the cap. */
  lastLines(): string[]
  /** A single text, scrubbed. */
  scrub(text: string): string
}

export const createBuildLog = (secrets: readonly string[], onLog: (text: string) => void): BuildLog => {
  const masker = createMasker(secrets)
  let room = maxChars
  let tail = ''
  const pass = (text: string): void => {
    if (text === '') return
    tail += text
    // Cut now and then only: each cut copies what stays.
    if (tail.length > 4 * tailChars) tail = tail.slice(-tailChars)
    if (room === 0) return
    onLog(text.slice(0, room))
    room = Math.max(0, room - text.length)
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
        .map((line) => line.slice(-maxLine)),
    scrub(text) {
      const own = createMasker(secrets)
      return own.write(text) + own.end()
    },
  }
}
