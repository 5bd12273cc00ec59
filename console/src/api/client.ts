/**
 * Requests to the API, with types made from openapi.json. Each has the page's key; the browser adds the cookie.
 * Every failure is thrown as a `Problem`, with the message of the API.
 */
import createClient from 'openapi-fetch'
import type { components, paths } from './schema.d.ts'
import { forgetKey, keyHeader, readKey } from './session-key.ts'

export type { paths }
export type Schemas = components['schemas']

export interface FieldProblem {
  field: string
  message: string
}

export class Problem extends Error {
  readonly status: number
  readonly code: string
  readonly requestId: string | null
  readonly details: readonly FieldProblem[]
  constructor(
    status: number,
    body: Partial<{ message: string; code: string; request_id: string; details: FieldProblem[] }>,
  ) {
    super(body.message ?? (status === 0 ? 'The server cannot be reached.' : `The server answered ${status}.`))
    this.status = status
    this.code = body.code ?? 'unknown'
    this.requestId = body.request_id ?? null
    // The API names no field for a name that is taken; it is always this one.
    this.details = body.details ?? (this.code === 'name_taken' ? [{ field: '/name', message: this.message }] : [])
  }
}

/** Status of an error of the page itself; 0 means that the server cannot be reached. */
const failed = -1

/** Turns any error into one that can be shown. */
export const toProblem = (error: unknown): Problem => {
  if (error instanceof Problem) return error
  // A part of the page could not be fetched.
  if (error instanceof TypeError && /fetch|import/i.test(error.message)) return new Problem(0, {})
  return new Problem(failed, { message: `The page failed: ${String(error)}` })
}

export const send = async (request: Request): Promise<Response> => {
  const key = readKey()
  if (key !== null) request.headers.set(keyHeader, key)
  try {
    return await fetch(request)
  } catch {
    throw new Problem(0, {})
  }
}

export const client = createClient<paths>({ baseUrl: location.origin, fetch: send })

interface Answered<T> {
  data?: T | undefined
  error?: unknown
  response: Response
}

/** The response of a request; throws its problem. After the end of the session the sign-in page is shown. */
export const answerOf = async <T>(asked: Promise<Answered<T>>): Promise<T> => {
  const { data, error, response } = await asked
  if (response.ok) return data as T
  if (response.status === 401) forgetKey()
  throw new Problem(response.status, (error ?? {}) as object)
}

/** The same for a list. */
export const resultsOf = async <Row>(asked: Promise<Answered<{ results: Row[] }>>): Promise<Row[]> =>
  (await answerOf(asked)).results

/** The ids that the path of a request names. */
export const inPath = <Ids extends Record<string, string>>(path: Ids) => ({ params: { path } })

/** Some paths differ only in one word, such as the kind of a service: the types of one of them are used for all. */
export const pathLike = <Path extends keyof paths>(path: Path, word: string, instead: string): Path =>
  path.replace(word, instead) as Path
