/**
 * The rules of .dockerignore. Pure. Patterns are run as small automata, never as regular expressions: they come from
 * repositories, and no pattern may take longer than its length times the path's.
 */

type Token =
  | { kind: 'char'; char: string }
  | { kind: 'one' }
  | { kind: 'some' }
  | { kind: 'any' }
  | { kind: 'folders' }
  | { kind: 'set'; not: boolean; ranges: [string, string][] }

interface Rule {
  keep: boolean
  tokens: Token[]
}

const maxRules = 1000

const readSet = (pattern: string, start: number): { token: Token; end: number } | null => {
  const not = pattern[start + 1] === '^' || pattern[start + 1] === '!'
  const ranges: [string, string][] = []
  let at = start + (not ? 2 : 1)
  while (at < pattern.length && (pattern[at] !== ']' || ranges.length === 0)) {
    if (pattern[at] === '\\') at += 1
    const low = pattern[at] ?? ''
    const isRange = pattern[at + 1] === '-' && pattern[at + 2] !== undefined && pattern[at + 2] !== ']'
    ranges.push([low, isRange ? pattern[at + 2]! : low])
    at += isRange ? 3 : 1
  }
  return at < pattern.length ? { token: { kind: 'set', not, ranges }, end: at } : null
}

const readTokens = (pattern: string): Token[] => {
  const tokens: Token[] = []
  for (let at = 0; at < pattern.length; at += 1) {
    const char = pattern[at]!
    if (char === '*' && pattern[at + 1] === '*') {
      at += 1
      const folders = pattern[at + 1] === '/'
      if (folders) at += 1
      tokens.push({ kind: folders ? 'folders' : 'any' })
    } else if (char === '*') tokens.push({ kind: 'some' })
    else if (char === '?') tokens.push({ kind: 'one' })
    else if (char === '[') {
      const set = readSet(pattern, at)
      tokens.push(set?.token ?? { kind: 'char', char })
      at = set?.end ?? at
    } else if (char === '\\' && at + 1 < pattern.length) {
      at += 1
      tokens.push({ kind: 'char', char: pattern[at]! })
    } else tokens.push({ kind: 'char', char })
  }
  return tokens
}

const isLoop = (token: Token | undefined): boolean =>
  token !== undefined && (token.kind === 'some' || token.kind === 'any' || token.kind === 'folders')

/** Adds `state` and those reached from it without a character. */
const enter = (states: Set<number>, tokens: Token[], state: number): void => {
  states.add(state)
  if (isLoop(tokens[state])) enter(states, tokens, state + 1)
}

const accepts = (token: Token, char: string): boolean => {
  switch (token.kind) {
    case 'char':
      return token.char === char
    case 'one':
      return char !== '/'
    case 'set':
      return char !== '/' && token.ranges.some(([low, high]) => low <= char && char <= high) !== token.not
    default:
      return false
  }
}

const advance = (states: Set<number>, tokens: Token[], char: string): Set<number> => {
  const next = new Set<number>()
  for (const state of states) {
    const token = tokens[state]
    if (token === undefined) continue
    if (token.kind === 'any' || (token.kind === 'some' && char !== '/')) enter(next, tokens, state)
    else if (token.kind === 'folders') {
      // Inside a folder's name only the loop goes on; after its slash the rest may begin.
      next.add(state)
      if (char === '/') enter(next, tokens, state + 1)
    } else if (accepts(token, char)) enter(next, tokens, state + 1)
  }
  return next
}

/** True when the pattern matches the path or one of the folders that hold it. */
const matches = (tokens: Token[], path: string): boolean => {
  let states = new Set<number>()
  enter(states, tokens, 0)
  for (const char of path) {
    if (char === '/' && states.has(tokens.length)) return true
    states = advance(states, tokens, char)
    if (states.size === 0) return false
  }
  return states.has(tokens.length)
}

const cleanPattern = (text: string): string => {
  const parts: string[] = []
  for (const part of text.split('/')) {
    if (part === '..') parts.pop()
    else if (part !== '' && part !== '.') parts.push(part)
  }
  return parts.join('/')
}

const parseRule = (line: string): Rule | null => {
  const text = line.trim()
  if (text === '' || line.startsWith('#')) return null
  const keep = text.startsWith('!')
  const pattern = cleanPattern(keep ? text.slice(1).trim() : text)
  return pattern === '' ? null : { keep, tokens: readTokens(pattern) }
}

/** Answers whether a path (without a slash at either end) is left out of the build context. */
export const parseIgnoreFile = (text: string): ((path: string) => boolean) => {
  const rules = text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .map(parseRule)
    .filter((rule) => rule !== null)
    .slice(0, maxRules)
  return (path) => {
    let ignored = false
    for (const rule of rules) if (rule.keep === ignored && matches(rule.tokens, path)) ignored = !rule.keep
    return ignored
  }
}
