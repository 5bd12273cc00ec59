/**
 * The patterns of `${name#pattern}`, `${name%pattern}` and `${name/pattern/text}`: `*`, `?` and escaped characters.
 * Pure. Patterns and values are untrusted, so no regular expression is made of them, and the comparisons of one word
 * are counted.
 */
import { BadWord } from './bad-word.ts'

/** Comparisons of characters for all patterns of one word. */
const maxComparisons = 200_000

type Token = { any: 'one' | 'many' } | { char: string }

/** `/` and `}` need an escape inside `${}`; a backslash may also precede `*`, `?` and itself. */
const readPattern = (pattern: string): Token[] => {
  const tokens: Token[] = []
  const chars = [...pattern]
  for (let at = 0; at < chars.length; at += 1) {
    const char = chars[at]!
    if (char === '*') tokens.push({ any: 'many' })
    else if (char === '?') tokens.push({ any: 'one' })
    else if (char === '\\') {
      at += 1
      const escaped = chars[at]
      if (escaped === undefined || !'*?\\/}'.includes(escaped))
        throw new BadWord(`a pattern has the invalid escape \\${escaped ?? ''}`)
      tokens.push({ char: escaped })
    } else tokens.push({ char })
  }
  return tokens
}

/** The tokens that may come next when those of `many` match nothing. */
const withSkipped = (tokens: readonly Token[], places: Set<number>): Set<number> => {
  for (const place of places) {
    const token = tokens[place]
    if (token !== undefined && 'any' in token && token.any === 'many') places.add(place + 1)
  }
  return places
}

const fits = (token: Token | undefined, char: string): boolean =>
  token !== undefined && ('any' in token || token.char === char)

export const createMatcher = () => {
  let left = maxComparisons

  /** The end of the shortest or longest match that begins at `start`; null without one. */
  const endOf = (tokens: readonly Token[], chars: readonly string[], start: number, longest: boolean) => {
    let places = withSkipped(tokens, new Set([0]))
    let end: number | null = null
    for (let at = start; ; at += 1) {
      if (places.has(tokens.length)) {
        end = at
        if (!longest) return end
      }
      const char = chars[at]
      if (char === undefined || places.size === 0) return end
      left -= places.size
      if (left < 0) throw new BadWord('its value or its pattern is too long')
      const next = new Set<number>()
      for (const place of places) {
        if (!fits(tokens[place], char)) continue
        const token = tokens[place]!
        next.add('any' in token && token.any === 'many' ? place : place + 1)
      }
      places = withSkipped(tokens, next)
    }
  }

  const trim = (tokens: readonly Token[], chars: readonly string[], longest: boolean): readonly string[] =>
    chars.slice(endOf(tokens, chars, 0, longest) ?? 0)

  return {
    trimStart: (value: string, pattern: string, longest: boolean): string =>
      trim(readPattern(pattern), [...value], longest).join(''),
    trimEnd: (value: string, pattern: string, longest: boolean): string =>
      [...trim(readPattern(pattern).reverse(), [...value].reverse(), longest)].reverse().join(''),
    /** The first match, or all, each as long as it can be. */
    replace(value: string, pattern: string, text: string, all: boolean): string {
      const [tokens, chars] = [readPattern(pattern), [...value]]
      if (tokens.length === 0) return value
      const parts: string[] = []
      let at = 0
      for (let count = 0; at < chars.length && (all || count === 0); ) {
        const end = endOf(tokens, chars, at, true)
        if (end === null || end === at) {
          parts.push(chars[at]!)
          at += 1
          continue
        }
        parts.push(text)
        at = end
        count += 1
      }
      return parts.join('') + chars.slice(at).join('')
    },
  }
}
