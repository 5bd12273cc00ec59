/**
 * Reads the parts of Terraform's files from which forms are filled in: values of variables, and the variables that a
 * module declares. A scanner, not an evaluator: expressions are answered as they are written. Pure, and linear in the
 * text.
 */
import { readJson } from '../../lib/foreign-text/read-json.ts'

interface Entry {
  name: string
  /** Between the name and what follows: labels of a block, or null for `name = value`. */
  labels: string[] | null
  /** The expression of an attribute, or the content of a block's braces. */
  body: string
}

const closers: Record<string, string> = { '{': '}', '[': ']', '(': ')' }

/** The end of a quoted text that begins at `at`. */
const endOfText = (text: string, at: number): number => {
  let index = at + 1
  while (index < text.length && text[index] !== '"' && text[index] !== '\n') index += text[index] === '\\' ? 2 : 1
  return Math.min(index + 1, text.length)
}

/** The end of a comment that begins at `at`; `at` if none does. */
const endOfComment = (text: string, at: number): number => {
  if (text[at] === '#' || text.startsWith('//', at)) {
    const end = text.indexOf('\n', at)
    return end === -1 ? text.length : end
  }
  if (!text.startsWith('/*', at)) return at
  const end = text.indexOf('*/', at + 2)
  return end === -1 ? text.length : end + 2
}

/** The end of `<<EOT … EOT` that begins at `at`; `at` if none does. */
const endOfHeredoc = (text: string, at: number): number => {
  const [begin, word] = /^<<-?([A-Za-z_]\w{0,100})\r?\n/.exec(text.slice(at, at + 120)) ?? []
  if (begin === undefined) return at
  let line = at + begin.length
  while (line < text.length) {
    const end = text.indexOf('\n', line)
    const stop = end === -1 ? text.length : end
    if (text.slice(line, stop).trim() === word) return stop
    line = stop + 1
  }
  return text.length
}

/** From `at` to the first of `stops` outside of brackets, texts and comments. */
const scanTo = (text: string, at: number, stops: string): number => {
  const open: string[] = []
  let index = at
  while (index < text.length) {
    const sign = text[index]!
    const past = Math.max(endOfComment(text, index), sign === '<' ? endOfHeredoc(text, index) : index)
    if (past > index) {
      index = past
      continue
    }
    if (open.length === 0 && stops.includes(sign)) return index
    if (sign === '"') {
      index = endOfText(text, index)
      continue
    }
    if (closers[sign] !== undefined) open.push(closers[sign])
    else if (sign === open.at(-1)) open.pop()
    index += 1
  }
  return text.length
}

const head =
  /([A-Za-z_][\w-]{0,254}|"[^"\n]{0,1000}")((?:[ \t]+(?:"[^"\n]{0,1000}"|[A-Za-z_][\w-]{0,254}))*)[ \t]*(=(?!=)|\{)/y

const entriesIn = (text: string): Entry[] => {
  const entries: Entry[] = []
  let at = 0
  while (at < text.length) {
    const past = endOfComment(text, at)
    head.lastIndex = at
    const found = past > at ? null : head.exec(text)
    if (found === null) {
      at = past > at ? past : scanTo(text, at, '\n') + 1
      if (/\s/.test(text[at - 1] ?? '')) while (at < text.length && /\s/.test(text[at]!)) at += 1
      continue
    }
    const start = at + found[0].length
    const isBlock = found[3] === '{'
    const end = scanTo(text, start, isBlock ? '}' : '\n')
    const labels = [...found[2]!.matchAll(/"([^"]*)"|([\w-]+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')
    entries.push({
      name: found[1]!.replaceAll('"', ''),
      labels: isBlock ? labels : null,
      body: text.slice(start, end).trim(),
    })
    at = end + 1
    while (at < text.length && /\s/.test(text[at]!)) at += 1
  }
  return entries
}

/** Without a comment at the end of its last line. */
const withoutComment = (body: string): string => {
  const line = body.lastIndexOf('\n') + 1
  const at = body.slice(line).search(/#|\/\//)
  return (at === -1 ? body : body.slice(0, line + at)).trim()
}

/** A text without its quotes; anything else as it is written, without a comment after it. */
const plainValue = (body: string): string => {
  const end = body.startsWith('"') ? endOfText(body, 0) : 0
  const rest = body.slice(end).trim()
  if (end > 0 && (rest === '' || endOfComment(rest, 0) === rest.length)) {
    try {
      return String(readJson(body.slice(0, end)))
    } catch {
      return body.slice(0, end)
    }
  }
  const [heredoc] = /^<<-?\w+\r?\n/.exec(body) ?? []
  if (heredoc !== undefined) return body.slice(heredoc.length, body.lastIndexOf('\n') + 1)
  return /^[\w.-]/.test(body) ? withoutComment(body) : body
}

export const readValues = (path: string, text: string): Record<string, string> => {
  if (path.endsWith('.json')) {
    try {
      const found = readJson(text)
      if (typeof found !== 'object' || found === null || Array.isArray(found)) return {}
      const asText = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))
      return Object.fromEntries(Object.entries(found).map(([name, value]) => [name, asText(value)]))
    } catch {
      return {}
    }
  }
  const values = entriesIn(text).filter(({ labels }) => labels === null)
  return Object.fromEntries(values.map(({ name, body }) => [name, plainValue(body)]))
}

interface DeclaredVariable {
  key: string
  sensitive: boolean
  nullable: boolean
  /** Null without one, and for a sensitive one. */
  default: string | null
  description: string | null
  source: string
}

export const readDeclarations = (path: string, text: string): DeclaredVariable[] =>
  entriesIn(text).flatMap(({ name, labels, body }) => {
    const key = labels?.[0]
    if (name !== 'variable' || key === undefined) return []
    const fields = new Map(entriesIn(body).map((entry) => [entry.name, plainValue(entry.body)]))
    const sensitive = fields.get('sensitive') === 'true'
    const given = fields.get('default') ?? null
    return [
      {
        key,
        sensitive,
        nullable: fields.get('nullable') !== 'false',
        default: sensitive || given === 'null' ? null : given,
        description: fields.get('description') ?? null,
        source: path,
      },
    ]
  })
