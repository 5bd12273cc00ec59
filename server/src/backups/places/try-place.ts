/** Whether a place works: a small object is written, read, listed and removed there. */
import { randomBytes } from 'node:crypto'
import { type Place, PlaceError, type PlaceProblem } from './place.ts'

export interface Trouble {
  code: PlaceProblem
  /** One sentence, or two. */
  message: string
}

const limitMs = 30_000
const clearMs = 5000

async function* once(content: Buffer): AsyncGenerator<Uint8Array> {
  yield content
}

const readSmall = async (place: Place, name: string, most: number, signal: AbortSignal): Promise<Buffer> => {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of await place.get(name, signal)) {
    bytes += chunk.length
    if (bytes > most) throw new PlaceError('damaged', 'More came back than was written.')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

const isListed = async (place: Place, name: string, signal: AbortSignal): Promise<boolean> => {
  for await (const stored of place.list(name, signal)) if (stored.name === name) return true
  return false
}

interface Step {
  /** The end of "A small test object …". */
  failed: string
  run(): Promise<unknown>
}

const stepsOf = (place: Place, name: string, signal: AbortSignal): Step[] => {
  const content = randomBytes(1000)
  const compare = async (): Promise<void> => {
    if (!(await readSmall(place, name, content.length, signal)).equals(content))
      throw new PlaceError('damaged', 'Something else came back than was written.')
  }
  const find = async (): Promise<void> => {
    if (!(await isListed(place, name, signal))) throw new PlaceError('missing', 'It is not in the list.')
  }
  return [
    { failed: 'could not be written', run: () => place.put(name, once(content), signal) },
    { failed: 'could not be read', run: compare },
    { failed: 'could not be listed', run: find },
    { failed: 'could not be deleted', run: () => place.remove(name, signal) },
  ]
}

/** What is wrong with the place; null if it works. */
export const tryPlace = async (place: Place): Promise<Trouble | null> => {
  const late = AbortSignal.timeout(limitMs)
  const name = `check/${randomBytes(8).toString('hex')}`
  for (const [index, { failed, run }] of stepsOf(place, name, late).entries())
    try {
      await run()
    } catch (error) {
      const isLate = late.aborted
      if (!isLate && !(error instanceof PlaceError)) throw error
      // What was written is not left behind, if that is possible; a write that failed leaves nothing.
      if (index > 0) await place.remove(name, AbortSignal.timeout(clearMs)).catch(() => {})
      const { code, message } = isLate
        ? new PlaceError('unreachable', 'The storage did not answer in time.')
        : (error as PlaceError)
      return { code, message: `A small test object ${failed}. ${message}` }
    }
  return null
}
