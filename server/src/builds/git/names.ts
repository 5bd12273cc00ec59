/** Which URLs and branch names are passed to git. Pure: an accepted one cannot be an option or another transport. */
import { createHash } from 'node:crypto'

export const hash = (text: string): string => createHash('sha256').update(text).digest('hex')

const maxUrlLength = 2048
const maxBranchLength = 255
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const unprintable = /[\u0000-\u0020\u007f\u0080-\u009f\u2028\u2029]/

/**
 * `https://` and `http://` addresses without user name, query or fragment; whether their host may be reached is not
 * checked here.
 */
export const isValidGitUrl = (text: string): boolean => {
  if (text.length > maxUrlLength || unprintable.test(text) || text.includes('\\')) return false
  // Hosts only in plain letters: git must not parse one differently from us, because we check and pin its address.
  if (!/^https?:\/\/[0-9A-Za-z[][0-9A-Za-z.\-_:[\]]*(\/[^@?#]*)?$/.test(text) || !URL.canParse(text)) return false
  const url = new URL(text)
  return url.pathname.length > 1 && url.port !== '0' && !url.hostname.endsWith('.')
}

export const internalUrl = 'slipway:internal'

/**
 * The URL of a source that is such a repository: made from the application's own id and never from a request, so that
 * no application can name the repository of another one.
 */
export const internalUrlOf = (applicationId: string): string => `${internalUrl}/${applicationId}`

/** The application of such a URL; null for all others. */
export const internalIdIn = (url: string): string | null =>
  /^slipway:internal\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(url)?.[1] ?? null

const isValidComponent = (component: string): boolean =>
  component !== '' && !component.startsWith('.') && !component.endsWith('.lock')

/** The rules of git check-ref-format for a branch, and no more than 255 characters. */
export const isValidBranch = (name: string): boolean => {
  if (name.length === 0 || name.length > maxBranchLength || name.startsWith('-')) return false
  if (unprintable.test(name) || /[~^:?*[\\]/.test(name)) return false
  if (name.includes('..') || name.includes('@{') || name.endsWith('.') || name === '@' || name === 'HEAD') return false
  return name.split('/').every(isValidComponent)
}

export const isCommitId = (text: string): boolean => /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(text)
