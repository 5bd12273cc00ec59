/**
 * `/metrics`, which counts what all organizations do: for the operator. Rendered at most once a second, however many
 * read it. Without a token of its own it is also for programs on this machine that are no proxy of somebody else.
 */
import { timingSafeEqual } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { forbidden } from '../lib/errors.ts'
import { isLoopbackAddress, isLoopbackHost } from '../lib/net/loopback.ts'
import { cachedFor } from '../lib/time/cached.ts'
import { hashOf, tokenInHeader } from './auth/auth.ts'
import type { Metrics } from './metrics.ts'
import type { Principal } from './operations/operation.ts'
import type { Parts } from './parts.ts'

const renderMs = 1000

const forwarding = ['forwarded', 'via', 'x-real-ip', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto']

/**
 * A proxy on this machine connects from loopback too: what it forwards has a header that says so, or the host name that
 * its client used. The latter also keeps out web pages whose host name leads here.
 */
const isLocal = ({ raw, headers }: FastifyRequest): boolean =>
  isLoopbackAddress(raw.socket.remoteAddress ?? '') &&
  isLoopbackHost(headers.host ?? '') &&
  forwarding.every((name) => headers[name] === undefined)

type Authenticate = (request: FastifyRequest, reply: FastifyReply) => Promise<Principal>

const createGate = ({ metricsToken }: Parts['settings'], authenticate: Authenticate) => {
  const wanted = metricsToken === undefined ? null : hashOf(metricsToken.reveal())
  return async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const sent = tokenInHeader(request.headers.authorization)
    if (sent === null && wanted === null && isLocal(request)) return
    if (sent !== null && wanted !== null && timingSafeEqual(hashOf(sent), wanted)) return
    const { isOperator, scopes } = await authenticate(request, reply)
    if (!isOperator || !scopes.has('Admin'))
      throw forbidden("Metrics are for the operator's token, or the one of SLIPWAY_METRICS_TOKEN.")
  }
}

/** Adds `/metrics`. `authenticate` counts those that fail. */
export const addMetricsPage = (
  app: FastifyInstance,
  { settings, clock }: Parts,
  metrics: Metrics,
  authenticate: Authenticate,
): void => {
  const mayRead = createGate(settings, authenticate)
  const rendered = cachedFor(clock, renderMs, async () => Buffer.from(await metrics.text()))
  app.get('/metrics', { config: { authenticates: true } }, async (request, reply) => {
    await mayRead(request, reply)
    return reply.header('content-type', metrics.contentType).send(await rendered())
  })
}
