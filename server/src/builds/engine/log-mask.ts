/** Removes known secret values from text that comes in chunks, even if a chunk boundary splits them. Pure. */

const shortest = 6
const mask = '***'

/** All full groups of three bytes: the rest of the encoding depends on what follows the value. */
const stableBase64 = (value: string): string => {
  const bytes = Buffer.from(value)
  return bytes.subarray(0, bytes.length - (bytes.length % 3)).toString('base64')
}

/** encodeURIComponent fails on half a surrogate pair. */
const urlEncoded = (value: string): string => {
  try {
    return encodeURIComponent(value)
  } catch {
    return value
  }
}

const formsOf = (value: string): string[] => {
  const base64 = Buffer.from(value).toString('base64')
  const url = urlEncoded(value)
  const lower = url.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase())
  const stable = stableBase64(value)
  const forms = [value, value.replaceAll('\n', '\r\n'), base64, stable, url, lower, url.replaceAll('%20', '+')]
  return [...forms, base64.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')]
}

const escapeRegExp = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')

export interface Masker {
  /** The text that can be shown so far; the start of a possible secret is held back. */
  write(text: string): string
  /** What was held back. */
  end(): string
}

/** The longest end of `text` that is the beginning of a needle, but not a whole one. */
const heldLength = (text: string, needles: readonly string[], firsts: ReadonlySet<string>, longest: number): number => {
  for (let at = Math.max(0, text.length - longest + 1); at < text.length; at += 1) {
    if (!firsts.has(text[at]!)) continue
    const tail = text.slice(at)
    if (needles.some((needle) => needle.startsWith(tail))) return tail.length
  }
  return 0
}

/** Values shorter than 6 characters are not masked: that would affect ordinary text. */
export const createMasker = (secrets: readonly string[]): Masker => {
  const all = secrets.filter((value) => value.length >= shortest).flatMap(formsOf)
  const needles = [...new Set(all)].filter((needle) => needle.length >= shortest).sort((a, b) => b.length - a.length)
  if (needles.length === 0) return { write: (text) => text, end: () => '' }
  const pattern = new RegExp(needles.map(escapeRegExp).join('|'), 'g')
  const firsts = new Set(needles.map((needle) => needle[0]!))
  const longest = needles[0]!.length
  let held = ''
  return {
    write(text) {
      const joined = held + text
      const border = joined.length - heldLength(joined, needles, firsts, longest)
      let shown = ''
      let at = 0
      for (const { 0: found, index } of joined.matchAll(pattern)) {
        if (index >= border) break
        shown += joined.slice(at, index) + mask
        at = index + found.length
      }
      shown += joined.slice(at, Math.max(at, border))
      held = joined.slice(Math.max(at, border))
      return shown
    },
    end() {
      const rest = held
      held = ''
      return rest.replace(pattern, mask)
    },
  }
}
