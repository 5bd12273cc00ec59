/** Path prefixes of one host: which of them a request's path is below. Pure. */

/** Characters that mean the same when they are not encoded. */
const unreserved = /%(2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])/g

/** Programs disagree about what these mean: some take them for a slash, or for the end. */
const ambiguous = /%(2f|5c|00)|\\/i

/**
 * A path for comparing: slashes in a row are one, and unreserved characters are plain. Null for one that programs read
 * differently than we do, so that it could get past a prefix.
 */
const plainPath = (path: string): string | null => {
  const decoded = path.includes('%') ? path.replaceAll(unreserved, (code) => decodeURIComponent(code)) : path
  if (ambiguous.test(decoded)) return null
  if (/(^|\/)\.\.?(;[^/]*)?(\/|$)/.test(decoded)) return null
  return decoded.includes('//') ? decoded.replaceAll(/\/+/g, '/') : decoded
}

const split = (target: string): [path: string, query: string] => {
  const at = target.search(/[?#]/)
  return at < 0 ? [target, ''] : [target.slice(0, at), target.slice(at)]
}

/** Whether it can be a prefix. */
export const isPrefix = (path: unknown): path is string =>
  typeof path === 'string' && /^(\/[A-Za-z0-9._~@:+,=-]+)+$/.test(path) && plainPath(path) === path

/** The longest of the prefixes above a path; undefined if there is none, null if the path is ambiguous. */
export const findPrefix = <Kind extends { route: { path?: string } }>(
  candidates: readonly Kind[],
  target: string,
): Kind | undefined | null => {
  const path = plainPath(split(target)[0])
  if (path === null) return null
  let best: Kind | undefined
  for (const candidate of candidates) {
    const prefix = candidate.route.path ?? ''
    const isBelow = path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/')
    if (isBelow && prefix.length >= (best?.route.path ?? '').length) best = candidate
  }
  return best
}

/** The path for the program: with its prefix replaced if the route has a rewrite. */
export const rewritten = (target: string, { path = '', rewrite }: { path?: string; rewrite?: string }): string => {
  if (rewrite === undefined) return target
  const [before, query] = split(target)
  const rest = (plainPath(before) ?? before).slice(path.length)
  const prefix = rewrite.endsWith('/') ? rewrite.slice(0, -1) : rewrite
  return `${prefix}${rest === '' && prefix === '' ? '/' : rest}${query}`
}
