/**
 * Which lines of a log a client wants, in the part of LogQL that consoles write: labels in braces, then texts that a
 * line must or must not contain. Pure. Patterns are lists of words (`error|warn`): nothing a client sends is run as a
 * regular expression.
 */
import { badRequest } from '../lib/errors.ts'

export interface LabeledLine {
  text: string
  labels: Readonly<Record<string, string>>
}

export type LogFilter = (line: LabeledLine) => boolean

type Operator = '=' | '!=' | '=~' | '!~'

const maxConditions = 20

const word = String.raw`"((?:[^"\\]|\\.)*)"`
const labelForm = new RegExp(String.raw`^\s*,?\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*${word}`)
const textForm = new RegExp(String.raw`^\s*(\|=|!=)\s*${word}`)
const wordList = /^[\w.:/-]+(\|[\w.:/-]+)*$/

const refuse = (): never => {
  throw badRequest(
    'query: write labels in braces, then texts to find, such as {level="error"} |= "timeout"; patterns are lists of words, such as level=~"error|warn".',
  )
}

const unquote = (text: string): string => text.replaceAll(/\\(.)/g, '$1')

const isAmong = (value: string, words: readonly string[]): boolean =>
  words.some((one) => one.toLowerCase() === value.toLowerCase())

const labelFilter = (name: string, operator: Operator, value: string): LogFilter => {
  const isPattern = operator === '=~' || operator === '!~'
  if (isPattern && !wordList.test(value)) refuse()
  const words = isPattern ? value.split('|') : [value]
  const isWanted = operator === '=' || operator === '=~'
  return ({ labels }) => isAmong(labels[name] ?? '', words) === isWanted
}

/** Throws a 400 for a query in any other form. Labels are compared in any case; a label that a line lacks is empty. */
export const parseLogQuery = (query: string): LogFilter => {
  const found: LogFilter[] = []
  let rest = query.trim()
  const take = (form: RegExp): RegExpExecArray | null => {
    const match = form.exec(rest)
    if (match !== null) rest = rest.slice(match[0].length)
    return match
  }
  if (rest.startsWith('{')) {
    rest = rest.slice(1)
    for (let match = take(labelForm); match !== null; match = take(labelForm))
      found.push(labelFilter(match[1]!, match[2] as Operator, unquote(match[3]!)))
    if (take(/^\s*}/) === null) refuse()
  }
  for (let match = take(textForm); match !== null; match = take(textForm)) {
    const [, operator, quoted] = match
    const text = unquote(quoted!)
    found.push((line) => line.text.includes(text) === (operator === '|='))
  }
  if (rest.trim() !== '' || found.length > maxConditions) refuse()
  return (line) => found.every((fits) => fits(line))
}
