/**
 * HTTP: routes from the array of operations, and the few pages that need no token. Promises the order of checks, one
 * error body, and a request id on every response. Knows no resource. A killed process loses nothing: a request was
 * either committed or it was not.
 */

import type { EventEmitter } from 'node:events'
import type { IncomingMessage, Server } from 'node:http'
import websocket from '@fastify/websocket'
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import type { WebSocket } from 'ws'
import { type Allowance, createLimiter, type Limiter } from '../lib/concurrency/limiter.ts'
import { ApiError, forbidden, notFound } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { beginWork, noteWork } from '../lib/loop-turns.ts'
import { usualLimits } from '../limits/limits.ts'
import { checkAccept } from './accept.ts'
import { type AnonymousLimit, createAnonymousLimit } from './anonymous-limit.ts'
import { sendError, toApiError } from './answer-error.ts'
import { answerOnSocket } from './answerer.ts'
import { type Authenticator, createAuthenticator, passwordInHeader, tokenInHeader } from './auth/auth.ts'
import { addSignIn } from './auth/sign-in.ts'
import { createSignInAudit } from './auth/sign-in-audit.ts'
import { isLong, limitBodyTime } from './body-time.ts'
import { addConsole, type Console } from './console/console.ts'
import { createSessions, type Sessions } from './console/sessions.ts'
import { type Cors, createCors } from './cors.ts'
import { discardBody } from './discard-body.ts'
import { drainOnClose } from './drain.ts'
import { startForgetting } from './forgetting.ts'
import { addGitHttp } from './git-http/git-http.ts'
import { maxPushBytes, receiveMs, receiverOf } from './git-http/receive.ts'
import { addGitWebhooks } from './git-webhooks.ts'
import { createMetrics, type Metrics } from './metrics.ts'
import { createOpenStreams, type OpenStreams } from './open-streams.ts'
import { archiveType, assertComplete, type Operation, type Principal } from './operations/operation.ts'
import { type Admitted, admit, contextOf, methodNotAllowed, runOperation } from './operations/run-operation.ts'
import { mostValuesOf, parseJson } from './operations/validate.ts'
import { addPages } from './pages.ts'
import { answerParserError } from './parser-error.ts'
import type { Parts } from './parts.ts'
import { allowanceHeaders, tooManyRequests } from './rate-limit.ts'
import { createRouteTable, type Match, type RouteTable } from './route-table.ts'
import { createThrottle, type Throttle } from './throttle.ts'

const bodyLimit = 1024 * 1024
const maxUrlLength = 8192
/** For a request whose body is streamed. */
const longRequestMs = receiveMs + 30_000
const requestIdForm = /^[A-Za-z0-9._-]{8,128}$/

interface Gate {
  parts: Parts
  cors: Cors
  authenticator: Authenticator
  sessions: Sessions
  streams: OpenStreams
  perToken: Limiter
  failed: Throttle
  anonymous: AnonymousLimit
  perOrganization: Limiter
  metrics: Metrics
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The token may be a password, for programs that know nothing else. */
    takesPasswords?: boolean
    /** Its body is streamed, and may take as long as its reader allows. */
    isLong?: boolean
  }
  interface FastifyRequest {
    /** The result of the checks before a request to an operation; null until it is admitted. */
    admitted: Admitted | null
    /** The operation that it is for; null if there is none. */
    match: Match | null
  }
}

const requestId = (raw: IncomingMessage): string => {
  const sent = raw.headers['x-request-id']
  return typeof sent === 'string' && requestIdForm.test(sent) ? sent : newId()
}

/** The token in a websocket's subprotocols, for browsers, which cannot set its headers. */
const tokenOf = (request: FastifyRequest): string | null => {
  const { authorization } = request.headers
  const takesPasswords = request.routeOptions?.config?.takesPasswords === true
  const fromHeader = tokenInHeader(authorization) ?? (takesPasswords ? passwordInHeader(authorization) : null)
  const protocols = request.headers['sec-websocket-protocol']
  if (fromHeader !== null || protocols === undefined) return fromHeader
  const found = protocols.split(',').find((each) => each.trim().startsWith('auth.bearer.'))
  return found === undefined ? null : found.trim().slice('auth.bearer.'.length)
}

/** Tokens cost nothing, so an organization gets the requests of ten tokens at most, however many it creates. */
const tokensWorth = 10

type Turns = Pick<Gate, 'perToken' | 'perOrganization'>

const takeTurn = ({ perToken, perOrganization }: Turns, { tokenId, organizationId, account }: Principal): Allowance => {
  const own = perToken.take(tokenId)
  // Accounts are created by the issuer and can be in many organizations.
  if (account !== null || !own.admitted) return own
  const shared = perOrganization.take(organizationId)
  return shared.admitted ? own : shared
}

/** A request of this caller; throws when it has made too many. */
const count = (turns: Turns, principal: Principal, reply: FastifyReply): void => {
  const allowance = takeTurn(turns, principal)
  reply.headers(allowanceHeaders(allowance))
  if (!allowance.admitted) throw tooManyRequests(allowance)
}

/** By a token, or by the session of the console's page. */
const principalOf = async ({ authenticator, sessions }: Gate, request: FastifyRequest): Promise<Principal> => {
  const token = tokenOf(request)
  const halves = token === null ? sessions.halvesOf(request) : null
  return halves === null ? authenticator.authenticate(token, request.ip) : sessions.authenticate(halves, request.ip)
}

/** Callers that fail to authenticate are slowed down: returns the error that they get. */
const refusalOf = ({ failed }: Gate, request: FastifyRequest, reply: FastifyReply, error: ApiError): ApiError => {
  const allowance = failed.take(request.ip)
  reply.headers(allowanceHeaders(allowance))
  return allowance.admitted ? error : tooManyRequests(allowance)
}

const authenticate = async (gate: Gate, request: FastifyRequest, reply: FastifyReply): Promise<Principal> => {
  try {
    const principal = await principalOf(gate, request)
    count(gate, principal, reply)
    return principal
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error
    throw refusalOf(gate, request, reply, error)
  }
}

/** It has a token or a session, right or wrong. */
const carriesProof = ({ sessions }: Gate, request: FastifyRequest): boolean =>
  tokenOf(request) !== null || sessions.halvesOf(request) !== null

const uriTooLong = (): ApiError => new ApiError(414, 'uri_too_long', 'The URL is too long.')

const yamlTypes = ['application/x-yaml', 'application/yaml', 'text/yaml']

const archiveTypes = [archiveType, 'application/x-gzip']

const notJson = (): ApiError =>
  new ApiError(415, 'unsupported_media_type', 'The body must be application/json in UTF-8, not encoded.')

const refuseUnreadable = (request: FastifyRequest, { consumes }: Operation): void => {
  if (request.url.length > maxUrlLength) throw uriTooLong()
  if (request.method === 'GET' || request.method === 'HEAD') return
  // Clients send actions without a body with whatever content type their library sets: an empty body is valid with any.
  if (request.headers['content-length'] === '0') delete request.headers['content-type']
  const { 'content-encoding': encoding, 'content-type': type } = request.headers
  const charset = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(type ?? '')?.[1]
  if (consumes === archiveType) {
    if (type !== undefined && !archiveTypes.some((each) => type.toLowerCase().startsWith(each)))
      throw new ApiError(415, 'unsupported_media_type', `The body must be a tar archive with gzip: ${archiveType}.`)
    if (encoding !== undefined && encoding !== 'identity')
      throw new ApiError(
        415,
        'unsupported_media_type',
        'The archive must be sent as it is, without a Content-Encoding.',
      )
    return
  }
  if (archiveTypes.some((each) => type?.toLowerCase().startsWith(each) === true)) throw notJson()
  const isYaml = yamlTypes.some((each) => type?.toLowerCase().startsWith(each) === true)
  if (
    (isYaml && consumes === undefined) ||
    (encoding !== undefined && encoding !== 'identity') ||
    (charset !== undefined && !/^utf-?8$/i.test(charset))
  )
    throw notJson()
}

/** The content type that an operation sends on success; null if it has no body or is not HTTP. */
const producedBy = ({ answer, produces }: Operation): string | null => {
  if (produces !== undefined) return produces === 'websocket' ? null : produces
  return answer === undefined ? null : 'application/json'
}

const urlOf = (path: string): string => path.replaceAll(/\{(\w+)\}/g, ':$1')

/** The steps of every request to an operation, whichever route it came by. */
const routeFor = (gate: Gate, operationOf: (request: FastifyRequest) => Operation) => ({
  config: { authenticates: true },
  async onRequest(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const operation = operationOf(request)
    if (operation.produces === undefined) request.raw.once('close', beginWork(operation.id))
    const principal = await authenticate(gate, request, reply)
    if (operation.produces === 'websocket') gate.cors.checkSocket(request)
    request.admitted = await admit(gate.parts, operation, principal, request)
    refuseUnreadable(request, operation)
    const produced = producedBy(operation)
    if (produced !== null) checkAccept(request.headers.accept, produced)
    if (isStream(operation)) countStream(gate, request, reply)
  },
  async onResponse(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    noteWork(operationOf(request).id)
    gate.metrics.observe(operationOf(request).id, reply.statusCode, reply.elapsedTime / 1000)
  },
  async handler(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const operation = operationOf(request)
    noteWork(operation.id)
    if (operation.produces === 'websocket')
      throw new ApiError(400, 'upgrade_required', 'This path accepts only websocket connections.')
    if (operation.produces !== undefined) watch(gate, operation, request, reply.raw, () => reply.raw.destroy())
    await runOperation(gate.parts, operation, request, reply, request.admitted!)
    return reply
  },
})

/** One route for each method, behind which our own table finds the operation. */
const addOperations = (app: FastifyInstance, gate: Gate, operations: readonly Operation[]): void => {
  const { onRequest, ...route } = routeFor(gate, ({ match }) => match!.operation)
  for (const method of new Set(operations.map((operation) => operation.method)))
    app.route({
      method,
      url: '*',
      exposeHeadRoute: method === 'GET',
      async onRequest(request, reply) {
        if (request.match === null) {
          reply.callNotFound()
          return reply
        }
        request.params = request.match.params
        return onRequest(request, reply)
      },
      ...route,
    })
}

const addSocket = (app: FastifyInstance, gate: Gate, operation: Operation): void => {
  const { method, path } = operation
  app.route({
    method,
    url: urlOf(path),
    exposeHeadRoute: false,
    ...routeFor(gate, () => operation),
    wsHandler: socketHandler(gate, operation),
  })
}

const isSocket = ({ produces }: Operation): boolean => produces === 'websocket'

/** The repositories of applications, for git: a push needs the rights of sending source, a fetch those of reading. */
const addDoor = async (app: FastifyInstance, gate: Gate, operations: readonly Operation[]): Promise<void> => {
  const { parts } = gate
  const [push, fetch] = ['deployApplicationSource', 'getApplication'].map((id) =>
    operations.find((each) => each.id === id),
  )
  if (parts.repositories === undefined || push === undefined || fetch === undefined) return
  await addGitHttp(app, {
    parts,
    receive: receiverOf(parts),
    operations: { push, fetch },
    authenticate: (request, reply) => authenticate(gate, request, reply),
    watch(operation, request, reply, end) {
      countStream(gate, request, reply)
      watch(gate, operation, request, reply.raw, end)
    },
    maxBytes: maxPushBytes(parts),
  })
}

const isStream = ({ produces }: Operation): boolean => produces === 'text/event-stream' || produces === 'websocket'

/**
 * Runs before a socket is upgraded, so that one too many gets an HTTP status. A socket counts while its connection is
 * open.
 */
const countStream = ({ streams }: Gate, request: FastifyRequest, reply: FastifyReply): void => {
  const leave = streams.admit(request.admitted!.principal)
  if (request.ws) request.raw.socket.once('close', leave)
  else reply.raw.once('close', leave)
}

/** Ends a stream when its caller may no longer have it. */
const watch = (gate: Gate, operation: Operation, request: FastifyRequest, stream: EventEmitter, end: () => void) => {
  const { parts, streams } = gate
  // A stream shows what the caller was allowed to see when it began.
  const rightsOf = ({ principal }: Admitted): string => JSON.stringify(principal.role?.grants ?? null)
  const rights = rightsOf(request.admitted!)
  const check = async () => {
    const found = await admit(parts, operation, await principalOf(gate, request), request)
    if (rightsOf(found) !== rights) throw forbidden('Permissions have changed: connect again.')
  }
  stream.once('close', streams.add({ check, end }))
}

const socketHandler = (gate: Gate, operation: Operation) => (socket: WebSocket, request: FastifyRequest) => {
  const { parts } = gate
  watch(gate, operation, request, socket, () => socket.close(1008, 'You are no longer allowed to read this.'))
  try {
    operation.socket!(contextOf(parts, operation, request, answerOnSocket, request.admitted!), socket)
  } catch (error) {
    socket.close(1008, toApiError(error, parts.log, request.id).message.slice(0, 120))
  }
}

const formOf = (path: string): RegExp => new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`)

const pathIn = (url: string): string => url.split('?')[0]!

const addErrors = (app: FastifyInstance, gate: Gate, table: RouteTable, webConsole: Console): void => {
  app.setErrorHandler((error, request, reply) =>
    sendError(request, reply, toApiError(error, gate.parts.log, request.id)),
  )
  const answerUnknown = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const allow = table.methodsOf(request.url)
    if (allow !== null && request.method === 'OPTIONS') return reply.code(204).header('allow', allow).send()
    if (allow === null && webConsole.hasPage(request)) {
      gate.anonymous.count(request, reply)
      webConsole.answer(request, reply)
      return reply
    }
    await authenticate(gate, request, reply)
    if (allow !== null) throw methodNotAllowed(allow)
    throw request.url.length > maxUrlLength ? uriTooLong() : notFound()
  }
  app.setNotFoundHandler(answerUnknown)
  // For methods without any operation the body is never read: the framework's demands on it are skipped.
  app.addHook('onRequest', async (request, reply) => (request.is404 ? answerUnknown(request, reply) : undefined))
}

const addParser = (app: FastifyInstance): void => {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    try {
      done(null, parseJson(body as string, mostValuesOf(request.match?.operation.body)))
    } catch (error) {
      done(error as Error)
    }
  })
  // Read by its user, as a stream.
  app.addContentTypeParser(archiveTypes, (_request, _payload, done) => done(null))
  app.addContentTypeParser(yamlTypes, { parseAs: 'string' }, (_request, body, done) => done(null, body))
}

const commonHeaders = (id: string): Record<string, string> => ({
  'x-request-id': id,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
})

/** No hook runs for a URL that cannot be parsed: an authenticated caller gets the 404 of an unknown path. */
const answerUnreadable = async (gate: Gate, error: Error, request: FastifyRequest, reply: FastifyReply) => {
  const { code } = error as { code?: string }
  reply.headers(commonHeaders(request.id))
  gate.cors.addHeaders(request, reply)
  try {
    await authenticate(gate, request, reply)
    if (code !== 'FST_ERR_BAD_URL' && code !== 'FST_ERR_MAX_PARAM_LENGTH') throw error
    throw request.url.length > maxUrlLength ? uriTooLong() : notFound()
  } catch (found) {
    sendError(request, reply, toApiError(found, gate.parts.log, request.id))
  }
}

/** Only paths of sockets are upgraded: elsewhere the header is ignored, as HTTP allows. */
const takesUpgrade = (operations: readonly Operation[]) => {
  const sockets = operations.filter(isSocket).map(({ path }) => formOf(path))
  return ({ url = '', headers }: IncomingMessage): boolean =>
    headers.upgrade?.toLowerCase() === 'websocket' && sockets.some((form) => form.test(pathIn(url)))
}

/** Our own code validates bodies and serializes answers: the framework's compilers are never loaded. */
const noCompiler = (): never => {
  throw new Error('a route has a Fastify schema: declare it on the operation instead')
}

const createInstance = (gate: Gate, table: RouteTable, operations: readonly Operation[]): FastifyInstance => {
  const app = fastify({
    http: {
      shouldUpgradeCallback: takesUpgrade(operations),
      headersTimeout: 15_000,
      connectionsCheckingInterval: 5000,
    },
    loggerInstance: undefined,
    logger: false,
    bodyLimit,
    // Which proxies are trusted to say the client's address and whether it used TLS; forwarding headers of others are
    // ignored.
    trustProxy: [...(gate.parts.settings.trustedProxies ?? [])],
    genReqId: requestId,
    requestTimeout: longRequestMs,
    keepAliveTimeout: 72_000,
    forceCloseConnections: true,
    return503OnClosing: true,
    clientErrorHandler: answerParserError,
    routerOptions: { maxParamLength: 200 },
    schemaController: { compilersFactory: { buildValidator: noCompiler, buildSerializer: noCompiler } },
    frameworkErrors: (error, request, reply) =>
      void answerUnreadable(gate, error, request as FastifyRequest, reply as FastifyReply),
  })
  app.decorateRequest('admitted', null)
  app.decorateRequest('match', null)
  app.decorateRequest('isAnonymous', false)
  app.addHook('onRequest', async (request, reply) => {
    reply.headers(commonHeaders(request.id))
    gate.cors.addHeaders(request, reply)
    request.match = table.find(request.method, request.url)
    limitBodyTime(request, reply, gate.parts.settings.requestMs)
    gate.anonymous.admit(request, reply, () => carriesProof(gate, request))
    return gate.cors.answerPreflight(request, reply) ? reply : undefined
  })
  app.addHook('onSend', async (request) => {
    if (isLong(request)) discardBody(request.raw)
  })
  // Fastify types an instance by its server options, and then accepts that type nowhere.
  const instance = app as unknown as FastifyInstance<Server>
  drainOnClose(instance)
  return instance
}

/** The API of these operations, ready to listen. Rejects if an operation has no scope or owner. */
export const createApi = async (parts: Parts, operations: readonly Operation[]): Promise<FastifyInstance> => {
  assertComplete(operations)
  const { rateLimit, limits = usualLimits, anonymousLimit = 6000, anonymousTotal = 30_000 } = parts.settings
  const failedLimit = rateLimit === 0 ? 0 : (parts.settings.failedLoginLimit ?? 30)
  const authenticator = await createAuthenticator(parts)
  const turns: Turns = {
    perToken: createLimiter(rateLimit, parts.clock),
    perOrganization: createLimiter(rateLimit * tokensWorth, parts.clock),
  }
  const audit = createSignInAudit(parts)
  const anonymous = createAnonymousLimit(createThrottle(anonymousLimit, parts.clock, anonymousTotal))
  const countSignIn = (principal: Principal, reply: FastifyReply): void => {
    anonymous.forgive(reply.request)
    count(turns, principal, reply)
  }
  const gate: Gate = {
    ...turns,
    parts,
    cors: createCors(parts.settings.corsOrigins ?? []),
    authenticator,
    sessions: await createSessions(parts, authenticator, countSignIn, audit),
    streams: await createOpenStreams(parts, limits),
    failed: createThrottle(failedLimit, parts.clock),
    anonymous,
    metrics: createMetrics(parts.database, parts.work, parts.disk),
  }
  const table = createRouteTable(operations)
  const app = createInstance(gate, table, operations)
  await app.register(websocket, {
    options: {
      maxPayload: 64 * 1024,
      handleProtocols: (protocols: Set<string>) => (protocols.has('v1') ? 'v1' : false),
    },
  })
  addParser(app)
  const webConsole = addConsole(app, {
    hasIssuer: parts.settings.oidc?.clientId !== undefined,
    folder: parts.settings.consoleFolder,
    sessions: gate.sessions,
    authenticate: (request, reply) => authenticate(gate, request, reply),
    async refuse(request, reply, error) {
      await audit.failed('TOKEN', request.ip)
      return refusalOf(gate, request, reply, error)
    },
  })
  addErrors(app, gate, table, webConsole)
  const { metrics } = gate
  const authenticated = (request: FastifyRequest, reply: FastifyReply) => authenticate(gate, request, reply)
  addPages(app, parts, { operations, metrics, webConsole, authenticate: authenticated })
  await addSignIn(app, parts, audit)
  await addGitWebhooks(app, parts, { failed: gate.failed, forgive: anonymous.forgive, inTurn: authenticator.inTurn })
  await addDoor(app, gate, operations)
  addOperations(app, gate, operations)
  for (const operation of operations.filter(isSocket)) addSocket(app, gate, operation)
  const forgetting = startForgetting(parts)
  app.addHook('onClose', async () => {
    gate.authenticator.close()
    gate.sessions.stop()
    await Promise.all([forgetting.stop(), gate.streams.close()])
  })
  return app
}
