/**
 * The repositories of applications, for git: `/git/{applicationId}.git`. Promises that a push requires the right to
 * change the application's code and a fetch the right to read it, checked like the operations that do so; that a token
 * is accepted as a password and is in no log; and that no client can use more than its share. Implements git's
 * protocol, and leaves the objects to git, which runs in a separate process.
 */
import { once } from 'node:events'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { internalUrlOf } from '../../builds/git/names.ts'
import { atMost } from '../../builds/pushed/intake.ts'
import type { OwnApplication } from '../../deployments/sources/git/own.ts'
import { createSemaphore } from '../../lib/concurrency/semaphore.ts'
import { drained } from '../../lib/drained.ts'
import { ApiError, badRequest, unavailable } from '../../lib/errors.ts'
import { createLoop } from '../../work/loop.ts'
import { toApiError } from '../answer-error.ts'
import { unauthorized } from '../auth/auth.ts'
import { actorOf } from '../auth/principal.ts'
import { discardBody } from '../discard-body.ts'
import type { Operation, Principal } from '../operations/operation.ts'
import { type Admitted, admit } from '../operations/run-operation.ts'
import type { Parts } from '../parts.ts'
import { capabilities, readCommands } from './commands.ts'
import { bands, flush, inBand, readLines } from './pkt-lines.ts'
import { advertisePush, runPush } from './push.ts'
import { findOwn, type Receiver } from './receive.ts'

const gitPath = '/git'

/** The size of the body of a fetch, decompressed. */
const maxFetchBytes = 8 << 20
const maxCommandBytes = 128 * 1024
const fetchPlaces = 16
const fetchesEach = 4
/**
 * The most fetches at once, including the first ones of other organizations: a client may read as slowly as it likes.
 */
const mostFetches = 48
const aliveMs = 10_000
const closeMs = 3000

interface GitHttpParts {
  parts: Parts
  receive: Receiver
  /** The operations whose rights a push and a fetch need. */
  operations: { push: Operation; fetch: Operation }
  authenticate(request: FastifyRequest, reply: FastifyReply): Promise<Principal>
  /** Counts a connection that lasts, and ends it when its caller may no longer have it. */
  watch(operation: Operation, request: FastifyRequest, reply: FastifyReply, end: () => void): void
  maxBytes: number
}

const askForPassword = (error: unknown): unknown => {
  if (!(error instanceof ApiError) || error.status !== 401) return error
  const message = 'An API token is required as the password; the user name does not matter.'
  return new ApiError(401, error.code, message, { headers: { 'www-authenticate': 'Basic realm="Slipway"' } })
}

const isPush = (request: FastifyRequest): boolean => {
  const { service } = request.query as { service?: unknown }
  if (request.method === 'POST') return request.url.split('?')[0]!.endsWith('/git-receive-pack')
  if (service === 'git-receive-pack') return true
  if (service === 'git-upload-pack') return false
  throw badRequest('Only the smart protocol of git is served: use a newer git.')
}

const enter = async (
  { parts, authenticate, operations }: GitHttpParts,
  request: FastifyRequest,
  reply: FastifyReply,
) => {
  const params = request.params as Record<string, string>
  params.applicationId = (params.repository ?? '').replace(/\.git$/, '')
  // The first request of every git comes without a password.
  if (request.headers.authorization === undefined) throw unauthorized()
  const principal = await authenticate(request, reply)
  const operation = isPush(request) ? operations.push : operations.fetch
  request.admitted = await admit(parts, operation, principal, request)
}

const findApplication = async ({ parts }: GitHttpParts, { node }: Admitted): Promise<OwnApplication> => {
  if (parts.repositories === undefined) throw unavailable('no_repositories', 'This server keeps no repositories.')
  return findOwn(parts, node.id)
}

const bodyOf = (request: FastifyRequest): AsyncIterable<Buffer> => {
  const encoding = request.headers['content-encoding'] ?? 'identity'
  // An answer before its end must still reach the client.
  if (encoding === 'identity') return request.raw.iterator({ destroyOnReturn: false })
  if (encoding !== 'gzip' && encoding !== 'x-gzip')
    throw new ApiError(415, 'unsupported_media_type', 'The body may be encoded with gzip only.')
  const gunzip = createGunzip()
  pipeline(request.raw, gunzip).catch(() => {})
  return gunzip
}

const answer = (reply: FastifyReply, kind: string) => {
  const { raw } = reply.hijack()
  // The unread part of a body would block the next request of the connection.
  const connection = kind === 'receive-pack-result' ? { connection: 'close' } : {}
  raw.writeHead(200, { 'content-type': `application/x-git-${kind}`, 'cache-control': 'no-store', ...connection })
  return raw
}

const advertise = async (gitHttp: GitHttpParts, request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
  const application = await findApplication(gitHttp, request.admitted!)
  if (!isPush(request)) return fetchFrom(gitHttp, application, request, reply, true)
  const refs = await gitHttp.parts.deployments.own.refs(application)
  return reply
    .code(200)
    .header('content-type', 'application/x-git-receive-pack-advertisement')
    .send(advertisePush(refs, capabilities))
}

const fetches = createSemaphore(fetchPlaces, fetchesEach, mostFetches)

const fetchFrom = async (
  { parts }: GitHttpParts,
  application: OwnApplication,
  request: FastifyRequest,
  reply: FastifyReply,
  advertises: boolean,
): Promise<unknown> => {
  const { organizationId, branch, id } = application
  const source = { organizationId, branch, url: internalUrlOf(id) }
  const gone = new AbortController()
  reply.raw.once('close', () => gone.abort(new Error('the client has gone away')))
  const body = advertises ? null : bodyOf(request)
  return fetches(
    organizationId,
    async () => {
      const { input, output } = await parts.repositories!.serve(source, { advertise: advertises }, gone.signal)
      output.on('error', () => {})
      gone.signal.addEventListener('abort', () => output.destroy(), { once: true })
      const raw = answer(reply, `upload-pack-${advertises ? 'advertisement' : 'result'}`)
      if (advertises) raw.write(`001e# service=git-upload-pack\n${flush}`)
      if (body === null) input.end()
      else pipeline(atMost(body, maxFetchBytes), input).catch(() => output.destroy())
      await pipeline(output, raw).catch(() => raw.destroy())
    },
    { signal: gone.signal },
  )
}

/** Ends the pushes in progress, each with a message; resolves when their connections have closed. */
const endAll = async (open: Map<FastifyReply, () => void>): Promise<void> => {
  const ended = [...open.keys()].map(({ raw }) => once(raw, 'close'))
  for (const end of open.values()) end()
  await Promise.race([Promise.all(ended), once(AbortSignal.timeout(closeMs), 'abort')])
}

const commandsIn = (lines: Buffer[], leave: () => void) => {
  try {
    return readCommands(lines)
  } catch (error) {
    leave()
    throw error
  }
}

const receivePush = async (
  gitHttp: GitHttpParts,
  open: Map<FastifyReply, () => void>,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<unknown> => {
  const { parts, receive, operations, maxBytes, watch } = gitHttp
  const application = await findApplication(gitHttp, request.admitted!)
  const ending = new AbortController()
  const gone = new AbortController()
  reply.raw.once('close', () => gone.abort(new Error('the client has gone away')))
  open.set(reply, () => ending.abort(new Error('the server is stopping')))
  reply.raw.once('close', () => open.delete(reply))
  watch(operations.push, request, reply, () => ending.abort(new Error('the connection has to end')))
  const { lines, rest, leave } = await readLines(atMost(bodyOf(request), maxBytes + maxCommandBytes), maxCommandBytes)
  const { commands, capabilities: wanted } = commandsIn(lines, leave)
  const raw = answer(reply, 'receive-pack-result')
  // How git asks whether it may push at all.
  if (commands.length === 0) return raw.end()
  const write = (bytes: Buffer): void => {
    if (!raw.destroyed && !raw.writableEnded) raw.write(bytes)
  }
  const alive = createLoop(parts, {
    name: 'connections of pushes',
    periodMs: aliveMs,
    waits: true,
    failed: 'a connection could not be kept open',
    async run() {
      if (wanted.has('side-band-64k') && !raw.writableNeedDrain) write(inBand(bands.data, Buffer.alloc(0)))
    },
  })
  const { principal } = request.admitted!
  const userAgent = request.headers['user-agent']?.slice(0, 255) ?? null
  const by = { ...actorOf(principal), userAgent, requestId: request.id }
  try {
    await runPush({
      ...{ parts, receive, application, principal, by, maxBytes, commands, capabilities: wanted, pack: rest, write },
      room: () => (raw.writableNeedDrain ? drained(raw) : Promise.resolve()),
      ...{ gone: gone.signal, ending: ending.signal },
    })
  } finally {
    await alive.stop()
    leave()
    discardBody(request.raw)
    if (!raw.destroyed) raw.end()
  }
  return undefined
}

/** git shows text to its user, and no JSON. */
const answerError = (parts: Parts, error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
  const { status, message, headers } = toApiError(askForPassword(error), parts.log, request.id)
  reply.code(status).headers(headers).type('text/plain; charset=utf-8').send(`${message}\n`)
}

export const addGitHttp = async (app: FastifyInstance, gitHttp: GitHttpParts): Promise<void> => {
  const { parts } = gitHttp
  const open = new Map<FastifyReply, () => void>()
  app.addHook('preClose', () => endAll(open))
  await app.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    // We read these bodies ourselves, as a stream.
    for (const kind of ['receive', 'upload'])
      scope.addContentTypeParser(`application/x-git-${kind}-pack-request`, (_request, _payload, done) => done(null))
    scope.setErrorHandler((error, request, reply) => answerError(parts, error, request, reply))
    const onRequest = (request: FastifyRequest, reply: FastifyReply) => enter(gitHttp, request, reply)
    const config = { takesPasswords: true, isLong: true, authenticates: true }
    scope.get(`${gitPath}/:repository/info/refs`, {
      exposeHeadRoute: false,
      config,
      onRequest,
      handler: (request, reply) => advertise(gitHttp, request, reply),
    })
    scope.post(`${gitPath}/:repository/git-receive-pack`, {
      config,
      onRequest,
      handler: (request, reply) => receivePush(gitHttp, open, request, reply),
    })
    scope.post(`${gitPath}/:repository/git-upload-pack`, {
      config,
      onRequest,
      async handler(request, reply) {
        const application = await findApplication(gitHttp, request.admitted!)
        return fetchFrom(gitHttp, application, request, reply, false)
      },
    })
  })
}
