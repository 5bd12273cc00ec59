/**
 * Removes known secret values from text that comes in chunks, even if a chunk boundary splits them. Pure. Whatever the
 * values and the text are, each character costs a bounded time: a long value is recognized by its beginning, and
 * masked for as long as the text continues like it.
 */

const shortest = 6
/** This much of a value is searched for; longer ones begin with a text of this length. */
const headLength = 64
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

interface Masker {
  /** The text that can be shown so far; the start of a possible secret is held back. */
  write(text: string): string
  /** Returns the text held back. */
  end(): string
}

/** Whether some head continues after `text`; `heads` is sorted. */
const isBeginning = (heads: readonly string[], text: string): boolean => {
  let [from, to] = [0, heads.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if (heads[middle]! <= text) from = middle + 1
    else to = middle
  }
  return heads[from]?.startsWith(text) === true
}

/** The longest end of `text` that is the beginning of a head, but not a whole one. */
const heldLength = (heads: readonly string[], text: string): number => {
  for (let length = Math.min(text.length, headLength - 1); length > 0; length -= 1)
    if (isBeginning(heads, text.slice(-length))) return length
  return 0
}

/** Numbers of six characters each: each takes five bits more than those behind it, and the seventh has left. */
const next = (hash: number, code: number): number => ((hash << 5) ^ code) & 0x3fffffff
const slots = 1 << 16
const slotOf = (hash: number): number => (hash ^ (hash >>> 14)) & (slots - 1)

/** Heads with the same beginning: their lengths, the longest first, and by head the values that begin with it. */
interface Bucket {
  lengths: number[]
  values: Map<string, string[]>
}

interface Index {
  heads: string[]
  /** 1: a beginning may be in `buckets`. */
  filter: Uint8Array
  buckets: Map<string, Bucket>
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

const indexOf = (needles: readonly string[]): Index => {
  const filter = new Uint8Array(slots)
  const buckets = new Map<string, Bucket>()
  for (const needle of needles) {
    const [beginning, head] = [needle.slice(0, shortest), needle.slice(0, headLength)]
    let hash = 0
    for (let at = 0; at < shortest; at += 1) hash = next(hash, needle.charCodeAt(at))
    filter[slotOf(hash)] = 1
    const bucket = buckets.get(beginning) ?? { lengths: [], values: new Map() }
    bucket.values.set(head, [...(bucket.values.get(head) ?? []), needle])
    buckets.set(beginning, bucket)
  }
  for (const bucket of buckets.values())
    bucket.lengths = [...new Set([...bucket.values.keys()].map(({ length }) => length))].sort((a, b) => b - a)
  const heads = [...buckets.values()].flatMap(({ values }) => [...values.keys()])
  return { heads: heads.sort(byText), filter, buckets }
}

/** Values that the masked text may still continue like: those from `from` to `to`, which are equal up to `depth`. */
interface Inside {
  values: readonly string[]
  from: number
  to: number
  depth: number
}

/**
 * The first of the values from `from` to `to` whose character at `depth` is at least `code`; one that has ended counts
 * as less.
 */
const firstWith = ({ values, from, to, depth }: Inside, code: number): number => {
  let [low, high] = [from, to]
  while (low < high) {
    const middle = (low + high) >> 1
    const value = values[middle]!
    if (depth >= value.length || value.charCodeAt(depth) < code) low = middle + 1
    else high = middle
  }
  return low
}

/**
 * Advances through `text` from `at`, for as long as it equals one of the values; returns the position where it no
 * longer does.
 */
const follow = (inside: Inside, text: string, at: number): number => {
  let end = at
  while (end < text.length) {
    const code = text.charCodeAt(end)
    const from = firstWith(inside, code)
    const to = inside.to - from > 1 ? firstWith({ ...inside, from }, code + 1) : inside.to
    if (from >= to || inside.values[from]!.charCodeAt(inside.depth) !== code) return end
    Object.assign(inside, { from, to, depth: inside.depth + 1 })
    end += 1
  }
  return end
}

/** Values shorter than 6 characters are not masked: that would affect ordinary text. */
export const createMasker = (secrets: readonly string[]): Masker => {
  const all = secrets.filter((value) => value.length >= shortest).flatMap(formsOf)
  const needles = [...new Set(all)].filter((needle) => needle.length >= shortest).sort(byText)
  if (needles.length === 0) return { write: (text) => text, end: () => '' }
  const { heads, filter, buckets } = indexOf(needles)

  /** The values that match at a position, and where the match ends; null if it is not a secret. */
  const matchAt = (text: string, at: number, border: number): { inside: Inside; end: number } | null => {
    const bucket = buckets.get(text.slice(at, at + shortest))
    for (const length of bucket?.lengths ?? []) {
      const values = at + length > border ? undefined : bucket!.values.get(text.slice(at, at + length))
      if (values === undefined) continue
      return { inside: { values, from: 0, to: values.length, depth: length }, end: at + length }
    }
    return null
  }

  let held = ''
  /** The text so far has ended within a masked value. */
  let inside: Inside | null = null

  /**
   * Masks secrets that begin before `border`, and returns the text with the position after which nothing may be shown
   * yet.
   */
  const pass = (text: string, border: number): [shown: string, at: number] => {
    let at = 0
    if (inside !== null) {
      at = follow(inside, text, 0)
      if (at === text.length) return ['', at]
      inside = null
    }
    let shown = ''
    let hash = 0
    let from = at
    for (let end = at; end < text.length && end - shortest + 1 < border; end += 1) {
      hash = next(hash, text.charCodeAt(end))
      const start = end - shortest + 1
      if (start < from || filter[slotOf(hash)] === 0) continue
      const match = matchAt(text, start, text.length)
      if (match === null) continue
      shown += text.slice(from, start) + mask
      from = follow(match.inside, text, match.end)
      if (from === text.length) {
        inside = match.inside
        return [shown, from]
      }
      // The six characters that end before it are part of the masked text.
      end = from - 1
      hash = 0
    }
    const to = Math.max(from, border)
    return [shown + text.slice(from, to), to]
  }

  return {
    write(text) {
      const joined = held + text
      const [shown, at] = pass(joined, joined.length - heldLength(heads, joined))
      held = joined.slice(at)
      return shown
    },
    end() {
      const rest = held
      held = ''
      const [shown] = pass(rest, rest.length)
      inside = null
      return shown
    },
  }
}
