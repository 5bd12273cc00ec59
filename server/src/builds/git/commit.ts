/** Commits as git stores them. Pure. Everything in a commit, except its id, is its author's choice. */
import { sanitizeText } from '../../lib/sanitize-text.ts'
import type { Commit } from '../builder.ts'

/** A commit is written by a person; a larger one is not read. */
export const maxCommitBytes = 2 ** 20
const maxMessage = 4096
const maxAuthor = 1024

const decode = (bytes: Buffer, encoding: string | undefined): string => {
  try {
    return new TextDecoder(encoding ?? 'utf-8').decode(bytes)
  } catch {
    return bytes.toString('utf8')
  }
}

/** Without control characters, which a terminal would interpret. */
const clean = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it removes
  sanitizeText(text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, ''))

const field = (head: string, word: string): string =>
  head
    .split('\n')
    .find((line) => line.startsWith(`${word} `))
    ?.slice(word.length + 1) ?? ''

const secondsOf = (person: string): number => {
  const seconds = Number(/> ?(-?\d{1,12}) [-+]\d{4}$/.exec(person)?.[1] ?? 0)
  // The range of PostgreSQL and of four-digit years.
  return Math.min(Math.max(seconds, 0), 253_402_300_799)
}

export const committedAt = (bytes: Buffer): Date => {
  const end = bytes.indexOf('\n\n')
  const head = bytes.toString('latin1', 0, end === -1 ? bytes.length : end)
  return new Date(secondsOf(field(head, 'committer')) * 1000)
}

/** `id` is the requested one: a commit does not contain its own. */
export const parseCommit = (id: string, bytes: Buffer): Commit => {
  const end = bytes.indexOf('\n\n')
  const headBytes = bytes.subarray(0, end === -1 ? bytes.length : end)
  const encoding = field(headBytes.toString('latin1'), 'encoding') || undefined
  const author = field(decode(headBytes, encoding), 'author').replace(/ ?<.*$/s, '')
  const message = end === -1 ? '' : decode(bytes.subarray(end + 2, end + 2 + 16 * maxMessage), encoding)
  return {
    git_commit_id: id,
    message: clean(message).trim().slice(0, maxMessage).toWellFormed(),
    author_name: clean(author).replaceAll('\n', ' ').trim().slice(0, maxAuthor).toWellFormed(),
    created_at: committedAt(bytes).toISOString().replace('.000Z', 'Z'),
    tag: '',
  }
}

/** A placeholder for one that is too large to read, in a list of others. */
export const unreadCommit = (id: string): Commit => ({
  git_commit_id: id,
  message: 'This commit is too large to show.',
  author_name: '',
  created_at: '1970-01-01T00:00:00Z',
  tag: '',
})
