/** Reads answers of git hosts: nothing is assumed to have its form. Pure. */
import { at } from '../../lib/foreign-text/fields.ts'

/** An id: hosts have numbers and texts. */
export const idAt = (value: unknown, ...path: string[]): string => {
  const found = at(value, ...path)
  const text = typeof found === 'number' && Number.isSafeInteger(found) ? String(found) : found
  return typeof text === 'string' && /^[\w{}-]{1,100}$/.test(text) ? text : ''
}

/** One line without control characters. */
export const oneLine = (text: string, most: number): string => {
  const line = text
    .replace(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ')
    .trim()
    .toWellFormed()
  return line.length <= most ? line : `${line.slice(0, most - 1).toWellFormed()}…`
}
