/**
 * Requests to the API, with types made from openapi.json. Each carries the page's key; the cookie goes with it by itself.
 * What is not a success is thrown as a `Problem`, in the words of the API.
 */
import createClient from 'openapi-fetch'
import type { components, paths } from './schema.d.ts'
import { forgetKey, keyHeader, readKey } from './session-key.ts'

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
    // A name that is taken is said of no field by the API, and always is of this one.
    this.details = body.details ?? (this.code === 'name_taken' ? [{ field: '/name', message: this.message }] : [])
  }
}

/** The status of an error of the page itself; 0 is that of a server that cannot be reached. */
const failed = -1

/** Any error as one that can be shown. */
export const toProblem = (error: unknown): Problem => {
  if (error instanceof Problem) return error
  // A part of the page could not be fetched.
  if (error instanceof TypeError && /fetch|import/i.test(error.message)) return new Problem(0, {})
  return new Problem(failed, { message: `The page failed: ${String(error)}` })
}

const send = async (request: Request): Promise<Response> => {
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

/** The answer of a request; throws its problem. A session that has ended leads to the sign-in page. */
export const answerOf = async <T>(asked: Promise<Answered<T>>): Promise<T> => {
  const { data, error, response } = await asked
  if (response.ok) return data as T
  if (response.status === 401) forgetKey()
  throw new Problem(response.status, (error ?? {}) as object)
}
