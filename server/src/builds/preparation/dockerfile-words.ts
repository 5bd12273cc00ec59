/**
 * Words of an instruction and the values of `$names` in them, as the classic builder's shell words: quotes group, the
 * escape sign takes the next character as it is, `${name:-other}` and `${name:+other}`. Pure and linear.
 */
import type { Escape } from './dockerfile-lines.ts'

/** Thrown for what has no meaning; the caller says in which line. */
export class BadWord extends Error {}

const isBlank = (char: string): boolean => char.trim() === ''
const isNameStart = (char: string | undefined): boolean => char !== undefined && /^[A-Za-z_]$/.test(char)
const isNamePart = (char: string | undefined): boolean => char !== undefined && /^[A-Za-z0-9_]$/.test(char)
const maxDepth = 10
/** Of all values in a word: names that hold twice what the last one held would grow without end. */
const maxValueChars = 65_536

/** Words at blanks, quotes and escapes left in them. */
export const splitWords = (text: string, sign: Escape): string[] => {
  const words: string[] = []
  let start = -1
  let quote = ''
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at]!
    if (quote === '' && isBlank(char)) {
      if (start !== -1) words.push(text.slice(start, at))
      start = -1
      continue
    }
    if (start === -1) start = at
    if (char === sign && quote !== "'") at += 1
    else if (quote === '' && (char === '"' || char === "'")) quote = char
    else if (char === quote) quote = ''
  }
  if (start !== -1) words.push(text.slice(start))
  return words
}

/** Words at blanks alone. */
export const plainWords = (text: string): string[] => text.split(/\s/).filter((word) => word !== '')

/** The name after a `$` at `at`. */
const nameAt = (text: string, at: number): string => {
  let end = at
  if (isNameStart(text[end])) while (isNamePart(text[end])) end += 1
  return text.slice(at, end)
}

const choose = (value: string | undefined, operator: string, other: () => string): string => {
  const present = operator.startsWith(':') ? value !== undefined && value !== '' : value !== undefined
  if (operator.endsWith('+')) return present ? other() : ''
  return present ? value! : other()
}

const createReader = (text: string, sign: Escape, find: (name: string) => string | undefined, hasQuotes: boolean) => {
  let at = 0
  let room = maxValueChars

  const lookUp = (name: string): string | undefined => {
    const value = find(name)
    room -= value?.length ?? 0
    if (room < 0) throw new BadWord('its value is too long')
    return value
  }

  const braced = (depth: number): string => {
    const name = nameAt(text, at)
    if (name === '') throw new BadWord('a name is missing after ${')
    at += name.length
    if (text[at] === '}') {
      at += 1
      return lookUp(name) ?? ''
    }
    const colon = text[at] === ':' ? ':' : ''
    const sign = text[at + colon.length]
    if (sign !== '-' && sign !== '+') throw new BadWord(`\${${name}…} has an unsupported operator`)
    at += colon.length + 1
    const other = read('}', depth + 1)
    if (text[at] !== '}') throw new BadWord(`\${${name}…} is not closed`)
    at += 1
    return choose(lookUp(name), colon + sign, () => other)
  }

  const dollar = (depth: number): string => {
    at += 1
    if (text[at] === '{') {
      at += 1
      return braced(depth)
    }
    const name = nameAt(text, at)
    at += name.length
    return name === '' ? '$' : (lookUp(name) ?? '')
  }

  const single = (): string => {
    const end = text.indexOf("'", at + 1)
    if (end === -1) throw new BadWord('a quote is not closed')
    const inner = text.slice(at + 1, end)
    at = end + 1
    return inner
  }

  const double = (depth: number): string => {
    at += 1
    const parts: string[] = []
    for (;;) {
      const char = text[at]
      if (char === undefined) throw new BadWord('a quote is not closed')
      if (char === '"') break
      if (char === '$') parts.push(dollar(depth))
      else {
        const next = text[at + 1]
        const escaped = char === sign && next !== undefined && ['"', '$', sign].includes(next)
        parts.push(escaped ? next : char)
        at += escaped ? 2 : 1
      }
    }
    at += 1
    return parts.join('')
  }

  const read = (stop: string, depth: number): string => {
    if (depth > maxDepth) throw new BadWord('it is nested too deeply')
    const parts: string[] = []
    while (at < text.length && text[at] !== stop) {
      const char = text[at]!
      if (hasQuotes && char === "'") parts.push(single())
      else if (hasQuotes && char === '"') parts.push(double(depth))
      else if (char === '$') parts.push(dollar(depth))
      else {
        const escaped = char === sign
        parts.push(escaped ? (text[at + 1] ?? '') : char)
        at += escaped ? 2 : 1
      }
    }
    return parts.join('')
  }
  return read
}

/** A word with its quotes and escapes taken away and its `$names` replaced; unknown names are empty. */
export const expandWord = (word: string, sign: Escape, lookUp: (name: string) => string | undefined): string =>
  createReader(word, sign, lookUp, true)('', 0)

/** A text in which only `$names` and escapes have a meaning. */
export const expandText = (text: string, lookUp: (name: string) => string | undefined): string =>
  createReader(text, '\\', lookUp, false)('', 0)
