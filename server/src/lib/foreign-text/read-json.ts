/**
 * The one way in which untrusted text becomes values: bodies of requests, answers of other machines, files written by
 * programs of tenants. Promises that the text is counted before anything else reads it; that a text with more bytes,
 * values or depth than its bounds is refused without being parsed; and that texts above 256 KiB are decoded and
 * counted in a thread with limits of memory and time, so that the event loop is never blocked for longer than its
 * bounds allow: about 100 ns for each value that is handed over. Does not know what a text is about. If the process
 * dies here nothing is lost: the caller asks for the text again.
 */
import { findExcess, type ValueBounds } from './count-values.ts'
import { ForeignTextError } from './foreign-text-error.ts'
import { type Keep, keepOf } from './keep.ts'
import { createThreads } from './threads.ts'

export { ForeignTextError } from './foreign-text-error.ts'

export interface TextBounds extends ValueBounds {
  mostBytes: number
}

export const usualBounds: TextBounds = { mostBytes: 4 << 20, mostValues: 100_000, mostDepth: 100 }

/** Larger texts are read in a thread. */
export const loopBytes = 256 << 10

export const refuseExcess = (text: string, { mostBytes, ...bounds }: TextBounds): void => {
  if (text.length > mostBytes) throw new ForeignTextError('too_large', `is larger than ${mostBytes} bytes`)
  const excess = findExcess(text, bounds)
  if (excess === 'values') throw new ForeignTextError('too_many_values', `has more than ${bounds.mostValues} values`)
  if (excess === 'depth') throw new ForeignTextError('too_deep', 'is nested too deeply')
}

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    throw new ForeignTextError('malformed', 'is not JSON')
  }
}

/** The value of a text that is in memory and short by its own limits. Throws a `ForeignTextError`. */
export const readJson = (text: string, bounds: Partial<TextBounds> = {}): unknown => {
  refuseExcess(text, { ...usualBounds, ...bounds })
  return parse(text)
}

/** The same; undefined for a text that cannot be read. */
export const tryJson = (text: string, bounds: Partial<TextBounds> = {}): unknown => {
  try {
    return readJson(text, bounds)
  } catch {
    return undefined
  }
}

/** The first field of this name in a form (`application/x-www-form-urlencoded`); '' if it has none. */
const fieldOfForm = (form: string, name: string): string => {
  const at = form.startsWith(`${name}=`) ? 0 : form.indexOf(`&${name}=`) + 1
  if (!form.startsWith(`${name}=`, at)) return ''
  const end = form.indexOf('&', at)
  const field = form.slice(at + name.length + 1, end === -1 ? form.length : end)
  try {
    return decodeURIComponent(field.replaceAll('+', ' '))
  } catch {
    throw new ForeignTextError('malformed', 'is not a form')
  }
}

/** How a text is read, and which parts of it are kept. */
export interface JsonRequest {
  bounds: TextBounds
  keep: Keep | undefined
  /** The most values that are kept. */
  mostKept: number
  formField: string | undefined
}

/** The wanted parts of a text, as JSON. Throws a `ForeignTextError`. */
export const reduceJson = (sent: string, { bounds, keep, mostKept, formField }: JsonRequest): string => {
  const text = formField === undefined ? sent : fieldOfForm(sent, formField)
  refuseExcess(text, bounds)
  if (keep === undefined) return text
  const kept = JSON.stringify(keepOf(keep, parse(text)))
  refuseExcess(kept, { ...bounds, mostValues: mostKept })
  return kept
}

interface LargeOptions extends Partial<TextBounds> {
  /** The owner of the text: others wait for at most one text of this owner. */
  owner: string
  /** The parts that are wanted, where a text may have more values than the event loop could parse. */
  keep?: Keep | undefined
  /** Values of these parts. Default 100,000. */
  mostKept?: number
  /** The text is a form, and its JSON in the field of this name. */
  formField?: string | undefined
  signal?: AbortSignal | undefined
}

const threads = createThreads<JsonRequest, string>(new URL('./json-thread.ts', import.meta.url), {
  heapMb: 192,
  timeMs: 10_000,
})

/**
 * The value of a text of any size. Rejects with a `ForeignTextError`, or the signal's reason. The bytes are not to be used
 * afterwards.
 */
export const readLargeJson = async (sent: Buffer | string, options: LargeOptions): Promise<unknown> => {
  const { owner, keep, mostKept = usualBounds.mostValues, formField, signal, ...rest } = options
  const bounds = { ...usualBounds, ...rest }
  if (sent.length > bounds.mostBytes)
    throw new ForeignTextError('too_large', `is larger than ${bounds.mostBytes} bytes`)
  const request = { bounds, keep, mostKept, formField }
  if (sent.length <= loopBytes) return parse(reduceJson(sent.toString(), request))
  return parse(await threads.read(sent, request, { owner, signal }))
}
