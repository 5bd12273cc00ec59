/**
 * Here-documents of a Dockerfile: `RUN <<EOF`, `COPY <<-"EOF" /x`. As in BuildKit, a word begins one if it is a word
 * of RUN, COPY or ADD in shell form that consists of the operator and a name. Pure and linear.
 */
import { BadWord } from './bad-word.ts'
import { splitWords } from './dockerfile-words.ts'

export interface Heredoc {
  name: string
  /** Whether its variables are expanded: not if any part of the name was quoted. */
  expand: boolean
  /** Whether tabs at the beginning of lines are left out (`<<-`). */
  chomp: boolean
  /** Its lines as written, each with its end. */
  content: string
}

export type HeredocWord = Omit<Heredoc, 'content'>

const hosts = new Set(['RUN', 'COPY', 'ADD'])
const maxHeredocs = 50
const fileName = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$/

/** The here-document that a word begins; null for any other word. Throws `BadWord` for a name that cannot be used. */
export const readHeredocWord = (word: string): HeredocWord | null => {
  const found = /^\d{0,9}<<(-?)([^<]+)$/.exec(word)
  if (found === null) return null
  const written = found[2]!
  const name = written.replaceAll(/["'\\]/g, '')
  if (!fileName.test(name)) throw new BadWord('the name of a here-document can have only letters, digits and . _ -')
  return { name, expand: name === written, chomp: found[1] === '-' }
}

/** Those that an instruction begins, in their order. */
export const heredocsIn = (text: string): HeredocWord[] => {
  const end = text.search(/\s/)
  if (end === -1 || !text.includes('<<') || !hosts.has(text.slice(0, end).toUpperCase())) return []
  const rest = text.slice(end).trim()
  if (rest.startsWith('[')) return []
  const found = splitWords(rest, '\\')
    .map(readHeredocWord)
    .filter((each) => each !== null)
  if (found.length > maxHeredocs) throw new BadWord(`it has more than ${maxHeredocs} here-documents`)
  return found
}

/** Its content, without the tabs of `<<-`. */
export const heredocText = ({ content, chomp }: Heredoc): string => (chomp ? content.replaceAll(/^\t+/gm, '') : content)
