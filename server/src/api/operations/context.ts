/** The input of an operation's run, typed by the schemas of the operation. */
import type { Database, Queryable } from '../../store/database.ts'
import type { Node } from '../../store/tree.ts'
import type { Answerer } from '../answerer.ts'
import type { Place } from '../auth/permissions.ts'
import type { Principal } from '../auth/principal.ts'
import type { Parts } from '../parts.ts'

/** Fields whose schema is not known here. */
export type Fields = Record<string, unknown>

/** The input of a run; the operation's schemas define the fields of its body, query and path. */
export interface Context<Body = Fields, Query = Fields, Params = Record<string, string>> extends Answerer {
  parts: Parts
  db: Database
  principal: Principal
  /** The row that the path names. */
  node: Node
  params: Params
  query: Query
  /** Only declared fields, with defaults; `{}` if there was no body. */
  body: Body
  /** The bytes of a body that is an archive; other bodies are already read. */
  upload: AsyncIterable<Buffer>
  headers: Record<string, string | string[] | undefined>
  requestId: string
  userAgent: string | null
  /** API for a token, CONSOLE for a person who signed in. */
  origin: string
  /** The server itself does this, without a caller. */
  isOwn?: true
  /** How the caller reached us, or reached the trusted proxy it came through. */
  scheme: 'http:' | 'https:'
  /** Names a field of the body in the answer as not applied, where only the run can know that it is merely recorded. */
  onlyRecorded(path: readonly string[]): void
  /**
   * Runs a change in one transaction. The result of `work` is the operation's answer: it is stored, in the same
   * transaction, under the request's Idempotency-Key.
   */
  transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T>
  /** The same for a change of a single statement, which needs no transaction of its own. */
  write<T>(work: (db: Queryable) => Promise<T>): Promise<T>
  /**
   * For a row or place that only the body names: throws unless the caller may do this there too. If the row is in
   * another of the caller's organizations, that becomes the organization of the request.
   */
  authorizeAlso(where: string | Place): Promise<void>
}
