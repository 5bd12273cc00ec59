/**
 * The rules of .dockerignore. Pure. Patterns run as small automata, never as regular expressions: they come from
 * repositories, and no pattern takes longer than its length times the path's. The size of the file and the total number
 * of comparisons are limited.
 */
import { DeploymentError } from '../../lib/errors.ts'

type Token =
  | { kind: 'char'; char: string }
  | { kind: 'one' }
  | { kind: 'some' }
  | { kind: 'any' }
  | { kind: 'folders' }
  | { kind: 'set'; not: boolean; ranges: [string, string][] }

interface Rule {
  keep: boolean
  matches: Match
}

/** Whether a pattern matches the path or one of its parent folders. `spend` is called for each comparison. */
type Match = (path: Int32Array, spend: (comparisons: number) => void) => boolean

const maxRules = 1000
const maxRuleLength = 1024
/** At most ten seconds of work; a hundred rules for ten thousand files take a tenth of that. */
const usualComparisons = 250_000_000

const refused = (sentence: string): DeploymentError => new DeploymentError('build_refused', sentence)

const readSet = (pattern: readonly string[], start: number): { token: Token; end: number } | null => {
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

const readTokens = (text: string): Token[] => {
  const pattern = [...text]
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

/** One loop equivalent to two in a row; null if there is none. */
const joinLoops = (first: Token, second: Token): Token | null => {
  if (first.kind === 'any' || second.kind === 'any') return { kind: 'any' }
  if (first.kind === second.kind) return first
  // Any number of folders and then the rest of a name means anything at all.
  return first.kind === 'folders' ? { kind: 'any' } : null
}

/** Collapses runs of stars to one or two: the same paths match, and recursion is at most three deep. */
const collapse = (tokens: Token[]): Token[] => {
  const kept: Token[] = []
  for (let token of tokens) {
    while (isLoop(token) && isLoop(kept.at(-1))) {
      const joined = joinLoops(kept.at(-1)!, token)
      if (joined === null) break
      kept.pop()
      token = joined
    }
    kept.push(token)
  }
  return kept
}

/** Tokens as numbers, because they are compared a hundred million times. */
interface Program {
  kind: Uint8Array
  char: Int32Array
  tokens: readonly Token[]
}

const kinds = { char: 0, one: 1, set: 2, some: 3, any: 4, folders: 5, end: 6 } as const
const slash = 47

const programOf = (tokens: readonly Token[]): Program => ({
  kind: Uint8Array.from([...tokens.map(({ kind }) => kinds[kind]), kinds.end]),
  char: Int32Array.from([...tokens.map((token) => (token.kind === 'char' ? token.char.codePointAt(0)! : -1)), -1]),
  tokens,
})

const isInSet = (token: Token, code: number): boolean => {
  if (token.kind !== 'set') return false
  const char = String.fromCodePoint(code)
  return token.ranges.some(([low, high]) => low <= char && char <= high) !== token.not
}

const accepts = ({ kind, char, tokens }: Program, state: number, code: number): boolean => {
  if (kind[state] === kinds.char) return char[state] === code
  if (kind[state] === kinds.one) return code !== slash
  return kind[state] === kinds.set && code !== slash && isInSet(tokens[state]!, code)
}

/** The states of a pattern at one position of a path, each once. */
const createStates = (count: number) => ({
  list: new Int32Array(count),
  seenAt: new Int32Array(count).fill(-1),
  size: 0,
})

type States = ReturnType<typeof createStates>

/** Adds `state` and those reached from it without a character; `at` identifies the position in the path. */
const enter = (states: States, { kind }: Program, state: number, at: number): void => {
  for (let next = state; states.seenAt[next] !== at; next += 1) {
    states.seenAt[next] = at
    states.list[states.size] = next
    states.size += 1
    if (kind[next]! < kinds.some || kind[next] === kinds.end) return
  }
}

const step = (from: States, to: States, program: Program, code: number, at: number): void => {
  to.size = 0
  for (let index = 0; index < from.size; index += 1) {
    const state = from.list[index]!
    const kind = program.kind[state]
    if (kind === kinds.any || (kind === kinds.some && code !== slash)) enter(to, program, state, at)
    else if (kind === kinds.folders) {
      // Inside a folder's name only the loop continues; after its slash the rest may begin.
      if (code === slash) enter(to, program, state, at)
      else if (to.seenAt[state] !== at) {
        to.seenAt[state] = at
        to.list[to.size] = state
        to.size += 1
      }
    } else if (accepts(program, state, code)) enter(to, program, state + 1, at)
  }
}

const compile = (tokens: readonly Token[]): Match => {
  const program = programOf(tokens)
  const end = tokens.length
  let now = createStates(end + 1)
  let next = createStates(end + 1)
  let place = 0
  return (path, spend) => {
    now.size = 0
    place += 1
    enter(now, program, 0, place)
    let spent = 0
    for (const code of path) {
      if (code === slash && now.seenAt[end] === place) break
      spent += now.size
      place += 1
      step(now, next, program, code, place)
      ;[now, next] = [next, now]
      if (now.size === 0) break
    }
    spend(spent)
    return now.size > 0 && now.seenAt[end] === place
  }
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
  if (text.length > maxRuleLength)
    throw refused(`A rule in .dockerignore has ${text.length} characters: at most ${maxRuleLength} are allowed.`)
  const keep = text.startsWith('!')
  const pattern = cleanPattern(keep ? text.slice(1).trim() : text)
  return pattern === '' ? null : { keep, matches: compile(collapse(readTokens(pattern))) }
}

/**
 * Returns whether a path (without a slash at either end) is excluded from the build context. Throws `build_refused` for
 * rules that are too many or too long, and once all paths together needed more than `comparisons`.
 */
export const parseIgnoreFile = (text: string, comparisons = usualComparisons): ((path: string) => boolean) => {
  const rules = text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .map(parseRule)
    .filter((rule) => rule !== null)
  if (rules.length > maxRules)
    throw refused(`.dockerignore has ${rules.length} rules: at most ${maxRules} are allowed.`)
  let left = comparisons
  const spend = (made: number): void => {
    left -= made
    if (left < 0)
      throw refused(
        `The rules in .dockerignore need more than ${comparisons} comparisons for the paths of this repository: use fewer and simpler rules.`,
      )
  }
  return (path) => {
    const codes = Int32Array.from([...path], (char) => char.codePointAt(0)!)
    let ignored = false
    for (const rule of rules) if (rule.keep === ignored && rule.matches(codes, spend)) ignored = !rule.keep
    return ignored
  }
}
