/** Reads what git hosts answer: nothing is assumed to have its form. Pure. */
import type { Json } from './request.ts'

export const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const at = (value: unknown, ...path: string[]): unknown =>
  path.reduce<unknown>(
    (inner, name) => (isObject(inner) && Object.hasOwn(inner, name) ? inner[name] : undefined),
    value,
  )

export const textAt = (value: unknown, ...path: string[]): string => {
  const found = at(value, ...path)
  return typeof found === 'string' ? found : ''
}

/** An id: hosts have numbers and texts. */
export const idAt = (value: unknown, ...path: string[]): string => {
  const found = at(value, ...path)
  const text = typeof found === 'number' && Number.isSafeInteger(found) ? String(found) : found
  return typeof text === 'string' && /^[\w{}-]{1,100}$/.test(text) ? text : ''
}

export const listOf = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : [])

/** One line without control characters. */
export const oneLine = (text: string, most: number): string => {
  const line = text
    .replace(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ')
    .trim()
    .toWellFormed()
  return line.length <= most ? line : `${line.slice(0, most - 1).toWellFormed()}…`
}
