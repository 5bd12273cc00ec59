/**
 * Words of an instruction and the values of `$names` in them, as BuildKit's shell words: quotes group, the escape sign
 * makes the next character literal, and `${name…}` may have the operators `-`, `+`, `?`, `#`, `%` and `/`. Pure. The
 * time is linear in the text except for patterns, whose comparisons are limited.
 */
import { BadWord } from './bad-word.ts'
import type { Escape } from './dockerfile-lines.ts'
import { createMatcher } from './shell-pattern.ts'

const isBlank = (char: string): boolean => char.trim() === ''
const isNamePart = (char: string | undefined): boolean => char !== undefined && /^[\p{L}\p{Nd}_]$/u.test(char)
const isDigit = (char: string | undefined): boolean => char !== undefined && /^\p{Nd}$/u.test(char)
/** One of these alone is the name of a parameter of the shell, which has no value here. */
const shellParameters = '@*#?-$!0'
const maxDepth = 10
/** Limit for all values in a word: names that each double the previous value would grow without end. */
const maxValueChars = 65_536

/** Splits at blanks; quotes and escapes are kept. */
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

/** Words at blanks alone, as COPY, ADD, EXPOSE and VOLUME have them. */
export const plainWords = (text: string): string[] => text.split(/\s/).filter((word) => word !== '')

const nameAt = (text: string, at: number): string => {
  const first = text[at]
  if (first !== undefined && shellParameters.includes(first) && first !== '0') return first
  const isPart = isDigit(first) ? isDigit : isNamePart
  let end = at
  while (isPart(text[end])) end += 1
  return text.slice(at, end)
}

/** The value of `${name-other}` and its variants; with a colon an empty value counts as none. */
const chosenValue = (name: string, operator: string, value: string | undefined, other: string): string => {
  const hasColon = operator.startsWith(':')
  const isPresent = value !== undefined && !(hasColon && value === '')
  if (operator.endsWith('+')) return isPresent ? other : ''
  if (isPresent) return value
  if (operator.endsWith('-')) return other
  throw new BadWord(`${name}: ${other === '' ? `it has no value${hasColon ? ', or an empty one' : ''}` : other}`)
}

const createReader = (text: string, sign: Escape, find: (name: string) => string | undefined, hasQuotes: boolean) => {
  let at = 0
  let room = maxValueChars
  const matcher = createMatcher()

  const lookUp = (name: string): string | undefined => {
    const value = find(name)
    room -= value?.length ?? 0
    if (room < 0) throw new BadWord('its value is too long')
    return value
  }

  /** The text up to `stop`, which is consumed. Its escapes are kept if it is a pattern. */
  const operand = (name: string, stop: string, depth: number, isPattern = false): string => {
    const found = read(stop, depth + 1, isPattern)
    if (text[at] !== stop) throw new BadWord(`\${${name}…} has no ${stop}`)
    at += 1
    return found
  }

  /** `-`, `+` and `?`, perhaps with a colon. */
  const choose = (name: string, depth: number): string => {
    const colon = text[at] === ':' ? ':' : ''
    const operator = text[at + colon.length] ?? ''
    if (!['-', '+', '?'].includes(operator)) throw new BadWord(`\${${name}…} has an operator that is not known`)
    at += colon.length + 1
    const other = operand(name, '}', depth)
    return chosenValue(name, colon + operator, lookUp(name), other)
  }

  const isDoubled = (): boolean => {
    const sign = text[at]
    at += 1
    if (text[at] !== sign) return false
    at += 1
    return true
  }

  const braced = (depth: number): string => {
    const name = nameAt(text, at)
    if (name === '') throw new BadWord('a name is missing after ${')
    at += name.length
    const operator = text[at]
    if (operator === undefined) throw new BadWord(`\${${name}…} is not closed`)
    if (operator === '}') {
      at += 1
      return lookUp(name) ?? ''
    }
    if (operator === '/') {
      const all = isDoubled()
      const pattern = operand(name, '/', depth, true)
      const replacement = operand(name, '}', depth, true)
      return matcher.replace(lookUp(name) ?? '', pattern, replacement, all)
    }
    if (operator !== '#' && operator !== '%') return choose(name, depth)
    const longest = isDoubled()
    const pattern = operand(name, '}', depth, true)
    const trim = operator === '#' ? matcher.trimStart : matcher.trimEnd
    return trim(lookUp(name) ?? '', pattern, longest)
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

  const read = (stop: string, depth: number, keepsEscapes = false): string => {
    if (depth > maxDepth) throw new BadWord('it is nested too deeply')
    const parts: string[] = []
    while (at < text.length && text[at] !== stop) {
      const char = text[at]!
      if (hasQuotes && char === "'") parts.push(single())
      else if (hasQuotes && char === '"') parts.push(double(depth))
      else if (char === '$') parts.push(dollar(depth))
      else {
        const escaped = char === sign
        if (!escaped) parts.push(char)
        else parts.push(keepsEscapes ? '\\' : '', text[at + 1] ?? '')
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

/** Throws `BadWord` for a word that has no meaning, whatever its variables are. */
export const checkWord = (word: string, sign: Escape): void => {
  if (!/["'$]/.test(word) && !word.includes(sign)) return
  expandWord(word, sign, () => 'x')
}

/** A text in which only `$names` and escapes have a meaning. */
export const expandText = (text: string, lookUp: (name: string) => string | undefined): string =>
  createReader(text, '\\', lookUp, false)('', 0)
