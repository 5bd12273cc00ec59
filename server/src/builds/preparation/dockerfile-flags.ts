/** Up to the first blank outside of quotes, and where it ends. */
const firstWord = (text: string): [word: string, end: number] => {
  let quote = ''
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at]!
    if (quote === '' && char.trim() === '') return [text.slice(0, at), at]
    if (quote === '' && (char === '"' || char === "'")) quote = char
    else if (char === quote) quote = ''
  }
  return [text, text.length]
}

/** `--mount="type=cache,target=/x"` is the flag without its quotes. */
const withoutQuotes = (flag: string): string => flag.replaceAll(/"([^"]*)"|'([^']*)'/g, '$1$2')

/** Flags before an instruction's words, and reading words so that an error names its line. Pure. */
import { readJson } from '../../lib/foreign-text/read-json.ts'
import { BadWord } from './bad-word.ts'
import { unreadable } from './dockerfile-lines.ts'
import type { Heredoc } from './heredocs.ts'

export interface Common {
  /** Place in the file, from 1, of all its instructions. */
  step: number
  line: number
  /** On one line, otherwise as written. */
  text: string
  /** The here-documents after the line. */
  heredocs?: Heredoc[]
}

const unsupported = 'is not supported.'
const maxFlags = 50

export type Flags = Map<string, string[]>

/** Flags before an instruction's words: literal, at most one for each name, except for `repeated` ones. */
export const readFlags = (rest: string, { line }: Common, repeated = ''): { flags: Flags; rest: string } => {
  const flags: Flags = new Map()
  let left = rest
  let count = 0
  while (left.startsWith('--')) {
    const [word = '', end] = firstWord(left)
    const flag = withoutQuotes(word)
    const found = /^--([a-z]{1,40}(?:-[a-z]{1,40}){0,3})(?:=([A-Za-z0-9._/:@${}+,=*?[\]~!^#% -]{0,500}))?$/.exec(flag)
    if (found === null) throw unreadable(line, `the flag ${flag.slice(0, 40)} cannot be read.`)
    const [, name = '', value = ''] = found
    const before = flags.get(name) ?? []
    count += 1
    if (count > maxFlags || (before.length > 0 && name !== repeated))
      throw unreadable(line, `the flag --${name} is repeated.`)
    flags.set(name, [...before, value])
    left = left.slice(end).trim()
  }
  return { flags, rest: left }
}

export const refuseFlags = (word: string, flags: Flags, known: string[], { line }: Common): void => {
  for (const name of flags.keys()) if (!known.includes(name)) throw unreadable(line, `${word} --${name} ${unsupported}`)
}

export const one = (flags: Flags, name: string): string | null => flags.get(name)?.[0] ?? null

/** A flag that may stand alone. */
export const isOn = (flags: Flags, name: string, { line }: Common): boolean => {
  const value = one(flags, name)?.toLowerCase() ?? 'false'
  if (!['', 'true', 'false'].includes(value)) throw unreadable(line, `--${name} must be true or false.`)
  return value !== 'false'
}

/** The meaning of a word; an error names its line. */
export const reading = <T>({ line }: Pick<Common, 'line'>, read: () => T): T => {
  try {
    return read()
  } catch (error) {
    if (error instanceof BadWord) throw unreadable(line, `${error.message}.`)
    throw error
  }
}

/** A JSON array of words; null for other texts, which are commands for a shell. */
export const readWords = (text: string, line: number): string[] | null => {
  let parsed: unknown
  try {
    parsed = readJson(text)
  } catch {
    return null
  }
  if (!Array.isArray(parsed) || parsed.length === 0 || !parsed.every((word) => typeof word === 'string'))
    throw unreadable(line, 'the JSON form must be a list of strings.')
  return parsed
}
