/** Reads a whole backup and compares every part with its list: what a restore needs, without a database. */
import { createHash } from 'node:crypto'
import { type Place, PlaceError } from '../places/place.ts'
import { type Part, readArchive } from './archive.ts'
import { CannotOpen, type Key, unlock } from './lock.ts'
import type { Beginning, End } from './manifest.ts'

export interface OneBackup {
  place: Place
  name: string
  key: Key
  signal: AbortSignal
}

const damaged = (name: string, error: unknown): CannotOpen =>
  new CannotOpen(`the backup ${name} is damaged or incomplete: ${(error as Error).message}`, error)

/** What the place or the key says of itself stays; everything else is the backup's fault. */
const explain = (name: string, signal: AbortSignal, error: unknown): unknown => {
  if (signal.aborted) return signal.reason
  return error instanceof CannotOpen || error instanceof PlaceError ? error : damaged(name, error)
}

/** The same values; an error of what makes them is explained, one of their reader is not. */
async function* explained<T>(values: AsyncIterable<T>, say: (error: unknown) => unknown): AsyncGenerator<T> {
  const all = values[Symbol.asyncIterator]()
  try {
    for (;;) {
      const next = await all.next().catch((error: unknown) => {
        throw say(error)
      })
      if (next.done === true) return
      yield next.value
    }
  } finally {
    await all.return?.()
  }
}

/** The parts of a stored backup, each compared with its list before the last one comes. */
export async function* readBackup(
  { place, name, key, signal }: OneBackup,
  seen: (chunk: Uint8Array) => void = () => {},
): AsyncGenerator<Part> {
  const say = (error: unknown): unknown => explain(name, signal, error)
  const stored = await place.get(name, signal)
  async function* watched() {
    for await (const chunk of stored) {
      signal.throwIfAborted()
      seen(chunk)
      yield chunk
    }
  }
  const opened = await unlock(watched(), key).catch((error: unknown) => {
    throw say(error)
  })
  for await (const part of explained(readArchive(opened), say))
    yield part.kind === 'table' ? { ...part, rows: explained(part.rows, say) } : part
}

/** With `sha256`: the whole file, as it was sent, must have this hash. */
export const checkBackup = async (
  backup: OneBackup & { sha256?: string },
): Promise<{ beginning: Beginning; end: End }> => {
  const hash = createHash('sha256')
  let beginning: Beginning | undefined
  let end: End | undefined
  for await (const part of readBackup(backup, (chunk) => void hash.update(chunk))) {
    if (part.kind === 'beginning') beginning = part.beginning
    if (part.kind === 'end') end = part.end
    if (part.kind === 'table') for await (const _ of part.rows);
  }
  if (backup.sha256 !== undefined && hash.digest('hex') !== backup.sha256)
    throw damaged(backup.name, new Error('what is stored is not what was sent'))
  return { beginning: beginning!, end: end! }
}
