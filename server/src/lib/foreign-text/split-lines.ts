/** Lines of untrusted text in memory. */
import { ForeignTextError } from './foreign-text-error.ts'

/** The lines of a text, which are counted first. Throws a `ForeignTextError` for more than `most`. Pure. */
export const splitLines = (text: string, most = 100_000): string[] => {
  if (text.length > most) {
    let count = 1
    for (let feed = text.indexOf('\n'); feed !== -1; feed = text.indexOf('\n', feed + 1)) {
      count += 1
      if (count > most) throw new ForeignTextError('too_many_values', `has more than ${most} lines`)
    }
  }
  return text.split('\n')
}
