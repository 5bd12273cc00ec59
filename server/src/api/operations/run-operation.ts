/**
 * Runs one request to one operation, in the order of checks: 401 → organization of the id (404) → 403 → body → state.
 */

import { hash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, badRequest, notFound } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { type Answerer, answerWith } from '../answerer.ts'
import { keyHeader } from '../auth/auth.ts'
import { claimKey, hashBody, type KeyedRequest, openReplay, Replay, readKey, storeAnswer } from '../idempotency.ts'
import type { Parts } from '../parts.ts'
import { authorize, authorizerOf, type Found, findRow, isSelective, onlyVisible, sharesAnswers } from './access.ts'
import { refuseMarked } from './effects.ts'
import { headerOf, type NotApplied, notApplied, notAppliedHeader } from './not-applied.ts'
import {
  archiveType,
  type Context,
  etagOf,
  isList,
  isTextType,
  JsonText,
  type Operation,
  OtherAnswer,
  type Principal,
} from './operation.ts'
import { showsSecret } from './schema.ts'
import { readBody, readQuery } from './validate.ts'

/** The facts that are known before the body is read. */
export type Admitted = Found

const pathParams = (request: FastifyRequest): Record<string, string> => request.params as Record<string, string>

/** A repeated parameter names nothing: the query is refused for it once its form is checked. */
const queryParams = ({ query }: FastifyRequest): Record<string, string> => {
  const once = Object.entries(query as Record<string, unknown>).filter(([, value]) => typeof value === 'string')
  return Object.fromEntries(once) as Record<string, string>
}

/** 404 for a row that does not exist or is not visible to the caller, 403 if scope or role do not allow it. */
export const admit = async (parts: Parts, operation: Operation, principal: Principal, request: FastifyRequest) => {
  const named = operation.owner.inQuery === true ? queryParams(request) : pathParams(request)
  const isConditional = request.headers['if-none-match'] !== undefined && !isSelective(principal)
  const owner = (isConditional ? operation.versionOwner : undefined) ?? operation.owner
  const found = await findRow(parts.database, operation, owner, named, principal)
  if (found === null) throw notFound()
  await authorize(parts.database, operation, found)
  return found
}

/** The origin that the credential proves, not the one that a program claims: that is in the user agent. */
const originOf = ({ account }: Principal, { headers }: FastifyRequest): string =>
  account !== null || (headers.authorization === undefined && headers[keyHeader] !== undefined) ? 'CONSOLE' : 'API'

const textOf = (result: unknown): string => (result instanceof JsonText ? result.text : JSON.stringify(result ?? null))

const keyOf = (
  operation: Operation,
  request: FastifyRequest,
  admitted: Admitted,
  body: unknown,
): KeyedRequest | null => {
  const key = operation.method === 'POST' ? readKey(request.headers['idempotency-key']) : null
  if (key === null) return null
  // The answer would be repeated for another body, which has not been read by then.
  if (operation.consumes === archiveType)
    throw badRequest('An Idempotency-Key is not possible with an archive: send it without one.')
  const { organizationId, tokenId } = admitted.principal
  // Callers must not see each other's answers, least of all those who are in no organization yet. A secret is only for
  // the credential that it was made for, even if others have the same rights.
  const readers = [sharesAnswers(admitted.principal), ...(showsSecret(operation.answer) ? [tokenId] : [])].join(' ')
  const path = `${request.url.split('?')[0]!.toLowerCase()}#${hash('sha256', readers)}`
  return { organizationId, method: operation.method, path, key, bodyHash: hashBody([request.query, body]) }
}

const transactions = (parts: Parts, operation: Operation, key: KeyedRequest | null) => {
  const transaction = <T>(work: (tx: Queryable) => Promise<T>): Promise<T> =>
    parts.database.transaction(async (tx) => {
      if (key === null) return work(tx)
      await claimKey(tx, key)
      const result = await work(tx)
      await storeAnswer(tx, parts.sealer, key, operation.status, textOf(result))
      return result
    })
  const write = <T>(work: (db: Queryable) => Promise<T>): Promise<T> =>
    key === null ? work(parts.database) : transaction(work)
  return { transaction, write }
}

const queryOf = ({ query: schema }: Operation, request: FastifyRequest): Record<string, unknown> => {
  if (schema === undefined) return {}
  const query = readQuery(schema, request.query as Record<string, unknown>)
  refuseMarked(schema, query)
  return query
}

export const contextOf = (
  parts: Parts,
  operation: Operation,
  request: FastifyRequest,
  answerer: Answerer,
  admitted: Admitted,
  key: KeyedRequest | null = null,
  body: Record<string, unknown> = {},
  recorded: (readonly string[])[] = [],
): Context => {
  const context: Omit<Context, 'authorizeAlso'> = {
    parts,
    db: parts.database,
    ...admitted,
    params: pathParams(request),
    query: queryOf(operation, request),
    body,
    headers: request.headers,
    // An answer before its end must still reach the client.
    upload: request.raw.iterator({ destroyOnReturn: false }),
    requestId: request.id,
    userAgent: request.headers['user-agent']?.slice(0, 255) ?? null,
    origin: originOf(admitted.principal, request),
    scheme: request.protocol === 'https' ? 'https:' : 'http:',
    onlyRecorded: (path) => void recorded.push(path),
    ...answerer,
    ...transactions(parts, operation, key),
  }
  return Object.assign(context, { authorizeAlso: authorizerOf(parts.database, operation, context) })
}

const versionOf = (result: unknown, text: string): string =>
  (result instanceof JsonText ? result.version : null) ?? hash('sha1', text, 'base64url')

const send = (operation: Operation, request: FastifyRequest, reply: FastifyReply, result: unknown): void => {
  if (result === undefined && operation.emptyStatus !== undefined) {
    reply.code(operation.emptyStatus).send()
    return
  }
  reply.code(operation.status)
  if (operation.status === 204 || operation.answer === undefined) {
    reply.send()
    return
  }
  reply.header('content-type', 'application/json; charset=utf-8')
  const text = textOf(result)
  if (isList(operation)) {
    const etag = etagOf(versionOf(result, text))
    reply.header('etag', etag)
    if (request.headers['if-none-match'] === etag) {
      reply.code(304).send()
      return
    }
  }
  reply.send(text)
}

const sendText = (operation: Operation, reply: FastifyReply, text: string): void =>
  void reply.code(operation.status).header('content-type', `${operation.produces}; charset=utf-8`).send(text)

const sendBytes = (operation: Operation, reply: FastifyReply, bytes: unknown): void =>
  void reply.code(operation.status).header('content-type', operation.produces).send(bytes)

const bodyOf = (operation: Operation, sent: unknown): Record<string, unknown> => {
  if (operation.consumes === archiveType) return {}
  if (operation.consumes !== undefined) return { text: typeof sent === 'string' ? sent : JSON.stringify(sent ?? '') }
  if (operation.body === undefined) return {}
  const body = readBody(operation.body, sent, operation.defaults ?? 'nested')
  if (operation.refusesMarked !== true) refuseMarked(operation.body, body)
  return body
}

const notAppliedOf = (
  operation: Operation,
  request: FastifyRequest,
  query: Record<string, unknown>,
  body: unknown,
): NotApplied => {
  const hasBody = request.body !== undefined && request.body !== null && operation.consumes === undefined
  const words = { sent: request.query as Record<string, unknown>, read: query }
  return notApplied(operation, words, hasBody ? { sent: request.body, read: body } : null)
}

const noteNotApplied = (reply: FastifyReply, found: NotApplied, result: unknown): void => {
  const header = headerOf(found, () => (result === undefined ? undefined : JSON.parse(textOf(result))))
  if (header !== null) reply.header(notAppliedHeader, header)
}

const shownTo = (context: Context, result: unknown): unknown => {
  if (!isSelective(context.principal) || result === undefined) return result
  return onlyVisible(context.db, context.principal.role!.grants!, JSON.parse(textOf(result)))
}

/** Runs an admitted request and sends its answer. */
export const runOperation = async (
  parts: Parts,
  operation: Operation,
  request: FastifyRequest,
  reply: FastifyReply,
  admitted: Admitted,
): Promise<void> => {
  const body = bodyOf(operation, request.body)
  const key = keyOf(operation, request, admitted, body)
  if (key !== null) await parts.sealer.prepare(key.organizationId)
  const learned: (readonly string[])[] = []
  const context = contextOf(parts, operation, request, answerWith(reply), admitted, key, body, learned)
  const found = notAppliedOf(operation, request, context.query, body)
  try {
    // A stream's headers are sent while it runs.
    if (operation.produces !== undefined) noteNotApplied(reply, found, undefined)
    const answered = await operation.run!(context)
    const isOther = answered instanceof OtherAnswer
    const answer = isOther ? answered.value : answered
    const result = operation.produces === undefined ? await shownTo(context, answer) : answer
    const declared = isOther ? { ...operation, ...operation.other } : operation
    if (operation.produces === undefined) {
      found.idle = found.idle.concat(learned)
      noteNotApplied(reply, found, result)
      send(declared, request, reply, result)
    } else if (isTextType(operation.produces)) sendText(operation, reply, String(result))
    else if (operation.produces === 'application/octet-stream') sendBytes(operation, reply, result)
  } catch (error) {
    if (!(error instanceof Replay) || key === null) throw error
    reply.header('idempotent-replayed', 'true')
    const text = await openReplay(parts.sealer, key, error)
    const answer = new JsonText(text)
    noteNotApplied(reply, found, answer)
    send({ ...operation, status: error.status as 200 }, request, reply, answer)
  }
}

export const methodNotAllowed = (allow: string): ApiError =>
  new ApiError(405, 'method_not_allowed', 'This path does not support this method.', { headers: { allow } })
