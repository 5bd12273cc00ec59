/** The text of a `.env` file as keys and values. Pure. */
import { invalidField } from '../lib/errors.ts'

const escapes: Record<string, string> = { n: '\n', r: '\r', t: '\t' }

/** Between double quotes a backslash escapes the next character. */
const unescaped = (text: string): string =>
  text.replaceAll(/\\([\s\S])/g, (_, letter: string) => escapes[letter] ?? letter)

// A key, then a value: in quotes, which may span lines and may be followed by a comment, or the rest of the line.
const entry =
  /[ \t]*(?:export[ \t]+)?([^\s=#]+)[ \t]*=[ \t]*(?:(?:"((?:[^"\\]|\\[\s\S])*)"|'([^']*)'|`([^`]*)`)[ \t]*(?:#[^\n]*)?|([^\n]*))(?:\n|$)/y
const skipped = /[ \t]*(?:#[^\n]*)?(?:\n|$)/y

/** A comment begins at a number sign after a space. */
const withoutComment = (rest: string): string => {
  const at = rest.startsWith('#') ? 0 : rest.search(/\s#/)
  return (at < 0 ? rest : rest.slice(0, at)).trimEnd()
}

const lineAt = (text: string, index: number): number => text.slice(0, index).split('\n').length

/** Entries in order; of a duplicate key the last one counts. Throws a 400 that names the invalid line. */
export const parseDotenv = (source: string, field = '/dotenv'): { key: string; value: string }[] => {
  const text = source.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n')
  const entries = new Map<string, string>()
  for (let at = 0; at < text.length; ) {
    skipped.lastIndex = at
    entry.lastIndex = at
    const empty = skipped.exec(text)
    const found = empty === null ? entry.exec(text) : null
    if (empty === null && found === null)
      throw invalidField(field, `line ${lineAt(text, at)} is not of the form KEY=value`)
    if (found !== null) {
      const [, key, double, single, tick, bare] = found
      entries.set(key!, double === undefined ? (single ?? tick ?? withoutComment(bare ?? '')) : unescaped(double))
    }
    at = found === null ? skipped.lastIndex : entry.lastIndex
  }
  return [...entries].map(([key, value]) => ({ key, value }))
}
