/**
 * The subset of LogQL that log history understands, as a small strict parser: one selector of labels, then filters by
 * contained text and by label. Pure. There are no regular expressions: a pattern is a list of words, so that no query
 * can cost more than the lines it reads.
 */
import { badRequest } from '../lib/errors.ts'
import { words } from '../lib/words.ts'

/** The labels that can select a line. */
export const labelNames = words('qovery_com_service_id qovery_com_deployment_id level pod container app namespace')
export type LabelName = (typeof labelNames)[number]
export type Labels = Readonly<Record<LabelName, string>>

interface LabelMatch {
  label: LabelName
  /** One of them, or none of them. */
  is: boolean
  values: string[]
}

interface TextMatch {
  text: string
  contained: boolean
}

export interface LogQuery {
  serviceId: string
  labels: LabelMatch[]
  texts: TextMatch[]
}

/** A query that cannot be understood; `message` is a sentence for its author. */
export class LogQueryError extends Error {}

const fail = (message: string): never => {
  throw new LogQueryError(message)
}

const tokenForm = /\s*(?:("(?:[^"\\\n]|\\.)*"|`[^`]*`)|(\|=|\|~|!=|!~|=~|[{}=,|])|([A-Za-z_][A-Za-z0-9_]*))/y

interface Token {
  kind: 'text' | 'mark' | 'name'
  value: string
}

const escapes: Record<string, string> = { n: '\n', t: '\t', r: '\r', '"': '"', '\\': '\\', "'": "'" }

const unquote = (quoted: string): string => {
  if (quoted.startsWith('`')) return quoted.slice(1, -1)
  return quoted
    .slice(1, -1)
    .replaceAll(/\\(.)/gs, (_, sign: string) => escapes[sign] ?? fail('A text has an escape that is not supported.'))
}

const tokensOf = (query: string): Token[] => {
  const tokens: Token[] = []
  const form = new RegExp(tokenForm)
  while (form.lastIndex < query.trimEnd().length) {
    const at = form.lastIndex
    const found = form.exec(query)
    if (found === null) return fail(`The query cannot be read from character ${at + 1} on.`)
    const [, text, mark, name] = found
    if (text !== undefined) tokens.push({ kind: 'text', value: unquote(text) })
    else if (mark !== undefined) tokens.push({ kind: 'mark', value: mark })
    else tokens.push({ kind: 'name', value: name! })
  }
  return tokens
}

const maxParts = 20

const isLabel = (name: string): name is LabelName => labelNames.some((each) => each === name)

const wordsOf = (pattern: string): string[] =>
  /^[\w .:/@-]+(\|[\w .:/@-]+)*$/.test(pattern)
    ? pattern.split('|')
    : fail('A pattern may only be words with | between them: regular expressions are not supported.')

/** `service="…"`, from its name on. */
const readMatch = (take: () => Token | undefined): LabelMatch => {
  const name = take()
  if (name?.kind !== 'name') return fail('A label is expected: the form is {label="value"}.')
  if (!isLabel(name.value)) return fail(`Unknown label: use one of ${labelNames.join(', ')}.`)
  const mark = take()
  const text = take()
  if (mark?.kind !== 'mark' || !['=', '!=', '=~', '!~'].includes(mark.value) || text?.kind !== 'text')
    return fail(`The label ${name.value} needs =, !=, =~ or !~ and a text in quotes.`)
  const isPattern = mark.value.endsWith('~')
  return {
    label: name.value,
    is: !mark.value.startsWith('!'),
    values: isPattern ? wordsOf(text.value) : [text.value],
  }
}

/** The one service that a selector names. */
const serviceIn = (labels: readonly LabelMatch[]): string => {
  const named = labels.filter(({ label, is }) => label === 'qovery_com_service_id' && is)
  const [first, ...more] = named.flatMap(({ values }) => values)
  if (first === undefined || more.length > 0)
    return fail('The query must select one service: {qovery_com_service_id="…"}.')
  return first
}

/** Throws a `LogQueryError`. */
export const parseLogQuery = (query: string): LogQuery => {
  const tokens = tokensOf(query)
  const take = (): Token | undefined => tokens.shift()
  const takeMark = (...marks: string[]): string | null => {
    const [token] = tokens
    if (token?.kind !== 'mark' || !marks.includes(token.value)) return null
    tokens.shift()
    return token.value
  }
  const labels: LabelMatch[] = []
  const texts: TextMatch[] = []
  if (takeMark('{') === null) fail('The query must begin with a selector: {qovery_com_service_id="…"}.')
  do labels.push(readMatch(take))
  while (takeMark(',') !== null && tokens[0]?.value !== '}')
  if (takeMark('}') === null) fail('The selector must end with }.')
  while (tokens.length > 0) {
    if (labels.length + texts.length > maxParts) fail(`A query may have at most ${maxParts} conditions.`)
    const mark = takeMark('|=', '!=', '|')
    if (mark === null) fail('Only the filters |= "text", != "text" and | label="value" can follow the selector.')
    else if (mark === '|') labels.push(readMatch(take))
    else {
      const text = take()
      if (text?.kind !== 'text') fail(`The filter ${mark} needs a text in quotes.`)
      else texts.push({ text: text.value, contained: mark === '|=' })
    }
  }
  return { serviceId: serviceIn(labels), labels, texts }
}

/** The query in the field `query` of a request; throws a 400. */
export const readLogQuery = (text: string): LogQuery => {
  try {
    return parseLogQuery(text)
  } catch (error) {
    throw error instanceof LogQueryError ? badRequest(`query: ${error.message}`) : error
  }
}

/** Whether a line is one of those that a query asks for. */
export const fits = ({ labels, texts }: LogQuery, has: Labels, line: string): boolean =>
  labels.every(({ label, is, values }) => values.includes(has[label]) === is) &&
  texts.every(({ text, contained }) => line.includes(text) === contained)
