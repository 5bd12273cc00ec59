/**
 * Where backups are kept: a folder of this server, or a bucket of an S3-compatible storage. A place promises that a name
 * holds the whole content that was put there or nothing, also when this process is killed in the middle. It does not
 * know what it keeps: encryption, checksums and retention are its caller's.
 */

/** What is wrong, for a caller that decides what to do next. */
export type PlaceProblem =
  /** No answer: try again later. */
  | 'unreachable'
  /** It answered, and does not let us do that: a wrong key, a missing bucket, an address that the policy forbids. */
  | 'refused'
  /** Nothing is kept under that name. */
  | 'missing'
  /** There is no room for it. */
  | 'full'
  /** What arrived is not what was sent. */
  | 'damaged'

/** `message` is one sentence for users, without secrets. */
export class PlaceError extends Error {
  readonly code: PlaceProblem

  constructor(code: PlaceProblem, message: string, cause?: unknown) {
    super(message.slice(0, 500), { cause })
    this.name = 'PlaceError'
    this.code = code
  }
}

export interface Stored {
  name: string
  bytes: number
  /** RFC 3339: when it was completely written. */
  at: string
}

/** Each method rejects with a `PlaceError`, or with the reason of `signal`. */
export interface Place {
  /**
   * Stores a stream under a name; appears whole or not at all, also when this process is killed. Replaces what was
   * there. Returns its size. An error of `content` ends it with that error, and nothing is kept. `content` itself ends, or
   * fails, when `signal` fires: a read of it that waits is not interrupted.
   */
  put(name: string, content: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<{ bytes: number }>
  /** Streams it; rejects with `missing` when it does not exist. The stream fails if less arrives than was stored. */
  get(name: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>
  /** What is kept under names that begin with `prefix`, in no certain order; never what is still being written. */
  list(prefix: string, signal: AbortSignal): AsyncIterable<Stored>
  /** Does nothing when it does not exist. */
  remove(name: string, signal: AbortSignal): Promise<void>
  /** Removes what writes have left whose process was killed: all that has not grown for a day. */
  tidy(signal: AbortSignal): Promise<void>
}

/** A write that has not grown for so long has no process that ends it. */
export const leftoverAfterMs = 24 * 3_600_000

const segment = /^[A-Za-z0-9_][A-Za-z0-9._=+@-]{0,127}$/

/**
 * Names are relative paths of at most 400 characters: letters, digits and `._=+@-` between slashes, no part beginning
 * with a dot. They are safe as names of files and of objects. Ours are made of ids, so another one is our own mistake.
 */
export const checkedName = (name: string): string => {
  if (name.length > 400 || !name.split('/').every((part) => segment.test(part)))
    throw new Error('the name of a stored file must be a relative path of letters, digits and ._=+@-')
  return name
}

/** The beginning of names: as a name, and its last part may be empty. */
export const checkedPrefix = (prefix: string): string => {
  if (prefix !== '') checkedName(prefix.endsWith('/') ? prefix.slice(0, -1) : prefix)
  return prefix
}
