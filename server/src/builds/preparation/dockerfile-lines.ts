/**
 * The lines of a Dockerfile joined to one instruction each, as the classic builder joins them. Pure and linear: a text
 * is read character by character or by whole lines, never with an expression that could backtrack.
 */
import { DeploymentError } from '../../lib/errors.ts'
import { BadWord } from './bad-word.ts'
import { type Heredoc, type HeredocWord, heredocsIn } from './heredocs.ts'

export type Escape = '\\' | '`'

interface JoinedLine {
  text: string
  /** Number of its first line, from 1. */
  line: number
  /** The here-documents that follow it. */
  heredocs: Heredoc[]
}

const maxChars = 256 * 1024

export const unreadable = (line: number, why: string): DeploymentError =>
  new DeploymentError('build_failed', `The Dockerfile cannot be built: line ${line}: ${why}`)

export const refused = (line: number, why: string): DeploymentError =>
  new DeploymentError('build_refused', `The Dockerfile is refused: line ${line}: ${why}`)

/** `name=value` of a comment that has the form of a directive. */
const directiveOf = (line: string): { name: string; value: string } | null => {
  const text = line.trim()
  const equals = text.indexOf('=')
  if (!text.startsWith('#') || equals === -1) return null
  const name = text.slice(1, equals).trim()
  return /^[a-zA-Z][a-zA-Z0-9]*$/.test(name) ? { name: name.toLowerCase(), value: text.slice(equals + 1).trim() } : null
}

/** Docker's own frontend, whatever its version: its syntax is read here. Others would be programs. */
const ownSyntax = /^(docker\.io\/)?docker\/dockerfile(-upstream)?(:[a-z0-9._-]{1,60})?(@sha256:[0-9a-f]{64})?$/

/**
 * Builders disagree about directives: which exist, and whether an unknown one ends the list. So only those with one
 * meaning everywhere are accepted: `# syntax=docker/dockerfile…`, which requests the syntax that is supported anyway,
 * `# check=`, which is about warnings, and `# escape=`. Lines further down that only look like a directive are
 * comments.
 */
const readDirectives = (lines: string[]): Escape => {
  let sign: Escape = '\\'
  const seen = new Set<string>()
  for (const [index, line] of lines.entries()) {
    const found = directiveOf(line)
    if (found === null) return sign
    const { name, value } = found
    const known = name === 'syntax' || name === 'escape' || name === 'check'
    if (!known) throw refused(index + 1, `the directive "${name.slice(0, 40)}" is not supported.`)
    if (seen.has(name)) throw refused(index + 1, `the directive ${name} is repeated.`)
    seen.add(name)
    if (name === 'syntax' && !ownSyntax.test(value))
      throw refused(
        index + 1,
        'only syntax=docker/dockerfile is supported: another frontend is a program that would read the build.',
      )
    if (name !== 'escape') continue
    if (value !== '\\' && value !== '`') throw refused(index + 1, String.raw`escape must be \ or a backtick.`)
    sign = value
  }
  return sign
}

/** True when the line continues on the next one; a doubled escape sign is a literal sign. */
const goesOn = (trimmed: string, sign: Escape): boolean => trimmed.endsWith(sign) && trimmed.at(-2) !== sign

const refuseControls = (text: string, line: number): void => {
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code < 32 && code !== 9) throw unreadable(line, 'it contains a control character.')
  }
}

/** The lines of a here-document from `start` to its end, and the index of the line after it. */
const readHeredoc = (raw: string[], start: number, name: string, chomp: boolean): { content: string; next: number } => {
  for (let at = start; at < raw.length; at += 1) {
    const line = raw[at]!.replace(/\r$/, '')
    if ((chomp ? line.replace(/^\t+/, '') : line) !== name) continue
    const content = raw
      .slice(start, at)
      .map((each) => `${each}\n`)
      .join('')
    if (content.includes('\0')) throw unreadable(start, 'a here-document contains a control character.')
    return { content, next: at + 1 }
  }
  throw unreadable(start, `the here-document ${name} does not end: a line with ${name} alone is missing.`)
}

const findHeredocs = (text: string, line: number): HeredocWord[] => {
  try {
    return heredocsIn(text)
  } catch (error) {
    if (error instanceof BadWord) throw unreadable(line, `${error.message}.`)
    throw error
  }
}

/** Instructions on one line each; comments and empty lines are removed. */
export const joinLines = (text: string): { sign: Escape; lines: JoinedLine[] } => {
  if (text.length > maxChars) throw new DeploymentError('build_refused', 'The Dockerfile is larger than 256 kB.')
  const raw = (text.startsWith('\uFEFF') ? text.slice(1) : text).split('\n')
  const sign = readDirectives(raw)
  const lines: JoinedLine[] = []
  let open: string[] = []
  let first = 0
  let at = 0
  const end = (): void => {
    const joined = open.join('').trim()
    refuseControls(joined, first)
    open = []
    if (joined === '') return
    const heredocs: Heredoc[] = []
    for (const word of findHeredocs(joined, first)) {
      const { content, next } = readHeredoc(raw, at, word.name, word.chomp)
      heredocs.push({ ...word, content })
      at = next
    }
    lines.push({ text: joined, line: first, heredocs })
  }
  while (at < raw.length) {
    const each = raw[at]!
    at += 1
    const trimmed = each.trim()
    if (trimmed === '' || trimmed.startsWith('#')) continue
    if (open.length === 0) first = at
    const right = (open.length === 0 ? each.trimStart() : each).trimEnd()
    const more = goesOn(right, sign)
    open.push(more ? right.slice(0, -1) : each.trimEnd())
    if (!more) end()
  }
  end()
  return { sign, lines }
}
