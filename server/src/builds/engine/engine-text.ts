/**
 * Values in the text of a Dockerfile that the engine's own parser reads, whatever its age: it takes each as it is. A
 * value that cannot be in such a text, because of a line end in it or its length, is a build argument. Pure.
 */
import type { Escape } from '../preparation/dockerfile-lines.ts'

/** Build arguments of a piece. */
export type Values = [name: string, value: string][]

export interface EngineText {
  values: Values
  /** One word, in double quotes or by the name of its argument. */
  quoted(value: string): string
  list(words: readonly string[]): string
}

/** Characters of one value, and of all values, in a line. */
const longest = 2000
const most = 20_000
// biome-ignore lint/suspicious/noControlCharactersInRegex: they would end the line, or the word
const controls = /[\u0000-\u001f\u007f\u0085\u2028\u2029]/

const escapeChars = (text: string, special: string, sign: Escape): string =>
  [...text].map((char) => (special.includes(char) || char === sign ? `${sign}${char}` : char)).join('')

export const createEngineText = (sign: Escape, freshName: () => string): EngineText => {
  const values: Values = []
  let room = most
  return {
    values,
    quoted(value) {
      room -= value.length
      if (value.length <= longest && room > 0 && !controls.test(value)) return `"${escapeChars(value, '"$', sign)}"`
      const name = freshName()
      values.push([name, value])
      return `"\${${name}}"`
    },
    list: (words) => JSON.stringify(words.map((word) => escapeChars(word, `"'$`, sign))),
  }
}
