/**
 * Receives deliveries of git hosts and registries about pushes: `POST /git-webhooks/{id}`, without a token, because a
 * delivery is signed or has the secret; for registries that can do neither, a token of the secret ends the path.
 * Promises an answer after one small statement, and that a forged or repeated delivery has no effect but a line in the
 * log, of which there are only so many a minute. Acting on a delivery is the job of deployments/sources.
 */
import { once } from 'node:events'
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteShorthandOptions } from 'fastify'
import { createLimiter, type Limiter } from '../lib/concurrency/limiter.ts'
import { createSemaphore } from '../lib/concurrency/semaphore.ts'
import { ApiError, notFound, unavailable } from '../lib/errors.ts'
import { isUuid } from '../lib/ids.ts'
import {
  acceptDelivery,
  acceptImages,
  acceptRequest,
  findGitWebhook,
  forgetDeliveries,
  type GitWebhook,
  openSecrets,
} from '../webhooks/inbound/deliveries.ts'
import { isPush, isRequest, type Push, readPush } from '../webhooks/inbound/payload.ts'
import { isPackage, isShown, readImages, shownBy } from '../webhooks/inbound/registries.ts'
import { digestOf, type Envelope, isGenuine, readEnvelope } from '../webhooks/inbound/verify.ts'
import { createLoop } from '../work/loop.ts'
import type { Lookups } from './auth/lookups.ts'
import type { Parts } from './parts.ts'
import { tooManyRequests } from './rate-limit.ts'
import type { Throttle } from './throttle.ts'

export const gitWebhookPath = '/git-webhooks'

/** Real ones have some kilobytes; a push with a larger one is found by polling. */
const maxBytes = 5 << 20
/** Bodies that are read at once: in all, for the webhooks of one organization, and with the first of each other one. */
const reading = { places: 24, each: 8, most: 64 }
/** The others wait this long: git hosts repeat unanswered deliveries, and polling finds the change. */
const patienceMs = 5000
/** Genuine deliveries of one webhook, and lines about what is limited, a minute. */
const perMinute = 600
const linesPerMinute = 60
const hourMs = 3_600_000

declare module 'fastify' {
  interface FastifyRequest {
    /** The webhook of the path; null until it is found. */
    gitWebhook: GitWebhook | null
  }
}

interface Refusal {
  gitWebhook: string
  organizationId?: string
  reason: string
  address: string
}

/**
 * A line for each delivery that was judged and had no effect; of others (`limited`) so many a minute and webhook. The
 * next line says how many were left out.
 */
const createRefusals = ({ log, clock }: Parts) => {
  const lines = createLimiter(linesPerMinute, clock)
  const leftOut = new Map<string, number>()
  return (about: Refusal, limited: boolean): void => {
    const { gitWebhook } = about
    if (limited && !lines.take(gitWebhook).admitted) {
      if (leftOut.size > 10_000) leftOut.clear()
      leftOut.set(gitWebhook, (leftOut.get(gitWebhook) ?? 0) + 1)
      return
    }
    const others = leftOut.get(gitWebhook)
    leftOut.delete(gitWebhook)
    log.warn({ ...about, ...(others === undefined ? {} : { others }) }, 'a delivery of a git host was refused')
  }
}

interface Desk {
  parts: Parts
  failed: Throttle
  /** The request was counted as anonymous before it proved to be genuine. */
  forgive(request: FastifyRequest): void
  deliveries: Limiter
  refused: ReturnType<typeof createRefusals>
  inTurn: ReturnType<typeof createSemaphore>
  lookUp: Lookups
}

/** Logs the reason, and answers with no more than needed. */
const refuse = ({ failed, refused }: Desk, request: FastifyRequest, reason: string, error: ApiError): never => {
  const { id } = request.params as { id: string }
  const webhook = request.gitWebhook
  const isFailure = error.status === 401 || error.status === 404
  const allowance = isFailure ? failed.take(request.ip) : null
  const answer = allowance === null || allowance.admitted ? error : tooManyRequests(allowance)
  const about = { reason, address: request.ip }
  // Guesses of ids, and limited requests, do not get a log line each.
  if (webhook === null) refused({ gitWebhook: 'unknown', ...about }, true)
  else refused({ gitWebhook: id, organizationId: webhook.organizationId, ...about }, answer.status === 429)
  throw answer
}

const unsigned = (): ApiError =>
  new ApiError(
    401,
    'signature_invalid',
    'The signature is not valid: check the secret of this webhook at the git host.',
  )

const repeated = (): ApiError => new ApiError(409, 'delivery_repeated', 'This delivery has already been accepted.')

const unreadable = (): ApiError =>
  new ApiError(400, 'invalid_request', 'The body is not that of a push event: send JSON, or a form with a payload.')

const unknownHost = (): ApiError =>
  new ApiError(
    400,
    'invalid_request',
    'The headers are not those of GitHub, GitLab, Bitbucket, Gitea or Forgejo, and have no secret of a registry.',
  )

const find = async (desk: Desk, request: FastifyRequest): Promise<void> => {
  const { id } = request.params as { id: string }
  request.gitWebhook = isUuid(id) ? await desk.lookUp(request.ip, () => findGitWebhook(desk.parts.database, id)) : null
  if (request.gitWebhook === null) refuse(desk, request, 'unknown webhook', notFound())
}

/** Waits until the body may be read. With a known address one can fill only the places of its organization. */
const waitForPlace = ({ inTurn }: Desk, { organizationId }: GitWebhook, { raw }: FastifyReply): Promise<void> =>
  new Promise((resolve, reject) => {
    const closed = new AbortController()
    raw.once('close', () => closed.abort())
    const hold = (): Promise<void> => {
      resolve()
      return closed.signal.aborted ? Promise.resolve() : once(closed.signal, 'abort').then(() => {})
    }
    const signal = AbortSignal.any([closed.signal, AbortSignal.timeout(patienceMs)])
    inTurn(organizationId, hold, { signal }).catch(() =>
      reject(unavailable('busy', 'Too many deliveries at once: try again in a moment.')),
    )
  })

/** The envelope of a genuine delivery; null for one of a registry. */
const verify = async (
  desk: Desk,
  request: FastifyRequest,
  webhook: GitWebhook,
  body: Buffer,
): Promise<Envelope | null> => {
  const { sealer, clock } = desk.parts
  const { token } = request.params as { token?: string }
  const envelope = token === undefined ? readEnvelope(request.headers) : null
  if (envelope === null) {
    const shown = shownBy(request.headers, token)
    if (shown === null) return refuse(desk, request, 'unknown headers', unknownHost())
    const isOurs = isShown(shown, await openSecrets(sealer, webhook))
    return isOurs ? null : refuse(desk, request, 'wrong secret', unsigned())
  }
  const nowSeconds = Math.floor(clock.now().getTime() / 1000)
  const isOurs = isGenuine(envelope, await openSecrets(sealer, webhook), request.headers, body, nowSeconds)
  return isOurs ? envelope : refuse(desk, request, 'wrong signature', unsigned())
}

const pushIn = async (desk: Desk, request: FastifyRequest, envelope: Envelope, body: Buffer): Promise<Push | null> => {
  if (!isPush(envelope) && !isRequest(envelope)) return null
  const { organizationId } = request.gitWebhook!
  return (
    (await readPush(envelope, request.headers, body, organizationId)) ??
    refuse(desk, request, 'unreadable body', unreadable())
  )
}

const receive = async (desk: Desk, request: FastifyRequest, reply: FastifyReply): Promise<object> => {
  const webhook = request.gitWebhook!
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0)
  const envelope = await verify(desk, request, webhook, body)
  desk.forgive(request)
  const allowance = desk.deliveries.take(webhook.id)
  if (!allowance.admitted) refuse(desk, request, 'too many deliveries', tooManyRequests(allowance))
  const { database } = desk.parts
  const delivery = { digest: digestOf(body), deliveryId: envelope?.deliveryId ?? null }
  if (envelope === null || isPackage(envelope)) {
    const images =
      (await readImages(body, webhook.organizationId)) ?? refuse(desk, request, 'unreadable body', unreadable())
    // A repeated one is answered as before: registries repeat a delivery until it is acknowledged.
    const { repositories } = await acceptImages(database, webhook, delivery, images)
    reply.code(202)
    return { status: images.length === 0 ? 'IGNORED' : 'ACCEPTED', repositories }
  }
  const push = await pushIn(desk, request, envelope, body)
  const accepted =
    push !== null && isRequest(envelope)
      ? await acceptRequest(database, webhook, delivery, push)
      : await acceptDelivery(database, webhook, delivery, push)
  if (!accepted.isFresh) refuse(desk, request, 'repeated delivery', repeated())
  reply.code(202)
  return { status: push === null ? 'IGNORED' : 'ACCEPTED', repositories: accepted.repositories }
}

interface Shared {
  /** Shared with other failures of an address. */
  failed: Throttle
  forgive: Desk['forgive']
  inTurn: Lookups
}

export const addGitWebhooks = async (
  app: FastifyInstance,
  parts: Parts,
  { failed, forgive, inTurn: lookUp }: Shared,
): Promise<void> => {
  const deliveries = createLimiter(perMinute, parts.clock)
  const inTurn = createSemaphore(reading.places, reading.each, reading.most)
  const desk: Desk = { parts, failed, forgive, deliveries, refused: createRefusals(parts), inTurn, lookUp }
  app.decorateRequest('gitWebhook', null)
  await app.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: maxBytes }, (_request, body, done) =>
      done(null, body),
    )
    const route: RouteShorthandOptions = {
      bodyLimit: maxBytes,
      async onRequest(request, reply) {
        await find(desk, request)
        await waitForPlace(desk, request.gitWebhook!, reply)
      },
    }
    for (const path of [`${gitWebhookPath}/:id`, `${gitWebhookPath}/:id/:token`])
      scope.post(path, route, (request, reply) => receive(desk, request, reply))
  })
  const forgetting = createLoop(parts, {
    name: 'old git deliveries',
    periodMs: hourMs,
    waits: true,
    failed: 'old deliveries of git hosts could not be deleted',
    run: (signal) => forgetDeliveries(parts.database, signal),
  })
  app.addHook('onClose', forgetting.stop)
}
