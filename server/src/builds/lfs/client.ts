/**
 * Downloads objects from an LFS server by its batch API, with our own client. Promises that credentials are sent only
 * where `authorize` allows, that each address passes the policy for outgoing requests, and that nothing but an
 * object's own bytes is passed on: the caller compares their digest.
 * https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md
 */
import type { Readable } from 'node:stream'
import { isObject, type Json } from '../../lib/foreign-text/fields.ts'
import { ForeignTextError, readLargeJson } from '../../lib/foreign-text/read-json.ts'
import { OutboundFailed, type OutboundStream, type StreamRequest } from '../../lib/net/outbound.ts'
import { isRedirect, redirectTarget } from '../../lib/net/redirects.ts'
import { type AskedHost, explainOutbound, explainStatus, refused } from '../git/errors.ts'
import type { LfsPointer } from './pointer.ts'

export type Wanted = Pick<LfsPointer, 'oid' | 'size'>

export interface LfsServer {
  /** Address of the API, without a trailing slash. */
  endpoint: string
  open(request: StreamRequest): Promise<OutboundStream>
  /** Headers with the credentials for an address; none if they may not be sent there. */
  authorize(url: string): Promise<Record<string, string>>
}

/** The location of an object, from the server's answer. */
interface Download {
  url: URL
  headers: Record<string, string>
  /** The address contains the server's own credentials. */
  isAuthenticated: boolean
}

const contentType = 'application/vnd.git-lfs+json'
export const mostPerBatch = 100
const maxAnswerBytes = 4 << 20
const maxHeaders = 20
const maxRedirects = 3
const silenceMs = 30_000
/** They frame the request, or set its destination. */
const ownHeaders = new Set(
  'host connection content-length transfer-encoding te trailer upgrade expect keep-alive proxy-authorization'.split(
    ' ',
  ),
)

const askedAt = (url: string, headers: Readonly<Record<string, string>>): AskedHost => ({
  host: new URL(url).hostname,
  hasToken: headers.authorization !== undefined,
})

/** The received bytes do not have the size or the digest of their object. */
export const notTheObject = (): Error => refused('the received bytes are not the content that the repository names.')

async function* explained(body: Readable, asked: AskedHost): AsyncGenerator<Buffer> {
  try {
    yield* body as AsyncIterable<Buffer>
  } catch (error) {
    throw error instanceof OutboundFailed && error.code === 'too_large' ? notTheObject() : explainOutbound(error, asked)
  }
}

const notLfs = ({ host }: AskedHost) => refused(`${host} did not answer as an LFS server.`)

const readJson = async (body: Readable, asked: AskedHost): Promise<Json> => {
  try {
    const value = await readLargeJson(Buffer.concat(await body.toArray()), { owner: asked.host })
    if (isObject(value)) return value
  } catch (error) {
    throw error instanceof ForeignTextError ? notLfs(asked) : explainOutbound(error, asked)
  }
  throw notLfs(asked)
}

const openAt = async (server: LfsServer, request: StreamRequest & { headers: Record<string, string> }) => {
  const asked = askedAt(String(request.url), request.headers)
  try {
    return await server.open({ silenceMs, ...request })
  } catch (error) {
    throw explainOutbound(error, asked)
  }
}

/** Only valid header values: the server could send anything. */
const headersOf = (value: unknown): Record<string, string> => {
  const entries = isObject(value) ? Object.entries(value) : []
  const usable = entries.flatMap(([name, text]) => {
    const known = name.toLowerCase()
    const isUsable = /^[a-z0-9-]{1,100}$/.test(known) && !ownHeaders.has(known)
    return isUsable && typeof text === 'string' && /^[\t\x20-\x7e]{0,8192}$/.test(text) ? [[known, text] as const] : []
  })
  return Object.fromEntries(usable.slice(0, maxHeaders))
}

const downloadOf = (entry: Json, endpoint: string, asked: AskedHost): Download => {
  const { error, actions, authenticated } = entry
  if (isObject(error)) {
    const code = Number(error.code)
    throw refused(
      code === 404 || code === 410
        ? `${asked.host} does not have its content: push it with \`git lfs push --all\`.`
        : `${asked.host} refused its content${Number.isInteger(code) ? ` with the code ${code}` : ''}.`,
    )
  }
  const action = isObject(actions) ? actions.download : undefined
  const url = isObject(action) && typeof action.href === 'string' ? URL.parse(action.href) : null
  if (!isObject(action) || url === null || !isStep(new URL(endpoint), url)) throw notLfs(asked)
  return { url, headers: headersOf(action.header), isAuthenticated: authenticated === true }
}

/** An https address never redirects to http. */
const isStep = (from: URL, to: URL): boolean =>
  (to.protocol === 'https:' || (to.protocol === 'http:' && from.protocol === 'http:')) && to.username === ''

const explainBatch = (asked: AskedHost, { status, headers }: OutboundStream): Error => {
  if (status === 404 || status === 410) return refused(`${asked.host} has no LFS server for this repository.`)
  return explainStatus(asked, status, headers)
}

/**
 * Asks for the locations of objects, at most `mostPerBatch`. Each result opens one of them or throws why that is not
 * possible.
 */
export const askBatch = async (
  server: LfsServer,
  wanted: readonly Wanted[],
  signal: AbortSignal,
): Promise<(object: Wanted) => Promise<AsyncIterable<Buffer>>> => {
  const { endpoint } = server
  const url = `${endpoint}/objects/batch`
  const headers = { accept: contentType, 'content-type': contentType, ...(await server.authorize(url)) }
  const objects = wanted.map(({ oid, size }) => ({ oid, size }))
  const body = { operation: 'download', transfers: ['basic'], hash_algo: 'sha256', objects }
  const asked = askedAt(url, headers)
  const sent = { method: 'POST', url, headers, body: Buffer.from(JSON.stringify(body)) }
  const answer = await openAt(server, { ...sent, maxBytes: maxAnswerBytes, signal })
  if (answer.status !== 200) {
    answer.body.destroy()
    throw explainBatch(asked, answer)
  }
  const { objects: found } = await readJson(answer.body, asked)
  const entries = new Map((Array.isArray(found) ? found : []).filter(isObject).map((each) => [each.oid, each]))
  return (object) => {
    const entry = entries.get(object.oid)
    if (entry === undefined) throw notLfs(asked)
    return download(server, downloadOf(entry, endpoint, asked), object, signal)
  }
}

/**
 * Headers of the answer are sent only to the origin that it named; our credentials only if it did not bring its own.
 */
const headersFor = async (server: LfsServer, { url, headers, isAuthenticated }: Download, target: URL) => {
  const given = target.origin === url.origin ? headers : {}
  if (isAuthenticated || headers.authorization !== undefined) return given
  return { ...given, ...(await server.authorize(target.href)) }
}

const download = async (
  server: LfsServer,
  from: Download,
  { size }: Wanted,
  signal: AbortSignal,
): Promise<AsyncIterable<Buffer>> => {
  let target = from.url
  for (let hops = 0; ; hops += 1) {
    const headers = await headersFor(server, from, target)
    const asked = askedAt(target.href, headers)
    const answer = await openAt(server, { method: 'GET', url: target, headers, maxBytes: size, signal })
    if (answer.status === 200) return explained(answer.body, asked)
    answer.body.destroy()
    if (!isRedirect(answer.status)) throw explainStatus(asked, answer.status, answer.headers)
    const next = redirectTarget(target, answer.headers.location)
    if (next === null || hops === maxRedirects || !isStep(target, next))
      throw refused(`${asked.host} redirects to an address that is not allowed.`)
    target = next
  }
}
