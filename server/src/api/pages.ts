/** Pages about this server: health, metrics, the description of the API and the guides. */
import { timingSafeEqual } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { readFile, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { readOwnBackupState } from '../backups/self/state.ts'
import { isHeld } from '../clusters/lines/line.ts'
import { forbidden } from '../lib/errors.ts'
import type { Finding } from '../lib/finding.ts'
import { isLoopbackAddress, isLoopbackHost } from '../lib/net/loopback.ts'
import { cachedFor } from '../lib/time/cached.ts'
import type { Clock } from '../lib/time/clock.ts'
import { version } from '../lib/version.ts'
import { hashOf, keyHeader, tokenInHeader } from './auth/auth.ts'
import type { Console } from './console/console.ts'
import { addDocs } from './docs-pages.ts'
import { createDocument, sendDocument } from './documents.ts'
import type { Metrics } from './metrics.ts'
import { describe } from './operations/openapi.ts'
import type { Operation, Principal } from './operations/operation.ts'
import type { Parts } from './parts.ts'

// `/metrics`, which counts the work of all organizations: for the operator. Rendered at most once a second, however
// many clients read it. Without a metrics token it is also for programs on this machine that are not a proxy for
// others.
const renderMs = 1000

const forwarding = ['forwarded', 'via', 'x-real-ip', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto']

/**
 * A proxy on this machine connects from loopback too: its requests have a header that says so, or the host name that
 * its client used. The latter also keeps out web pages whose host name resolves to this machine.
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

const folder = fileURLToPath(new URL('../../../docs/guides/', import.meta.url))

const readNames = (): string[] => {
  try {
    return readdirSync(folder).filter((name) => /^[\w-]+\.(md|sh)$/.test(name))
  } catch {
    return []
  }
}

/** The guides of docs/guides and their shell functions at `/guides/<name>`, as plain text, which every browser shows. */
const addGuides = (app: FastifyInstance, clock: Clock): void => {
  for (const name of readNames()) {
    const made = cachedFor(clock, Number.POSITIVE_INFINITY, async () =>
      createDocument('text/plain; charset=utf-8', await readFile(join(folder, name))),
    )
    app.get(`/guides/${name}`, async (request, reply) => {
      const guide = await made()
      return sendDocument(request, reply.header('cache-control', 'no-cache'), guide)
    })
  }
}

const readyTimeoutMs = 2000
/** Any number of monitors causes one check in this time. */
const checkMs = 1000

const isReady = async (check: Promise<unknown>): Promise<boolean> =>
  check.then(
    () => true,
    () => false,
  )

/**
 * Readiness of this server only; a cluster has its own status. Ready means that the database answers and the first
 * start has made a token: before that no client could be served.
 */
const isOpen = async ({ database }: Parts): Promise<void> => {
  await database.ping(readyTimeoutMs)
  const tokens = await database.query('select 1 from api_token limit 1')
  if (tokens.length === 0) throw new Error('the first start has not finished')
}

/** The database writes in files of 16 MB: below two of them, a write may fail at any moment. */
const fullBytes = 32 * 2 ** 20

const isDiskFull = async (folder: string): Promise<boolean> =>
  statfs(folder).then(
    ({ bavail, bsize }) => bavail * bsize < fullBytes,
    () => false,
  )

const lateMs = 3_600_000

/** What is wrong with the scheduled backups of this installation; the reason is in the log, this page is public. */
const backupProblem = async ({ database, settings, clock }: Parts): Promise<'failed' | 'late' | null> => {
  if (settings.ownBackups?.to === undefined) return null
  const state = await readOwnBackupState(database).catch(() => null)
  if (state === null) return null
  if (state.failedAt !== null) return 'failed'
  return new Date(state.due).getTime() + lateMs < clock.now().getTime() ? 'late' : null
}

const json = 'application/json; charset=utf-8'

/** Checks reach other machines: any number of readers causes them once in this time. */
const doctorMs = 5000

const isVerbose = ({ query }: FastifyRequest): boolean => (query as { verbose?: unknown }).verbose !== undefined

const hasProof = ({ headers }: FastifyRequest): boolean =>
  headers.authorization !== undefined || headers[keyHeader] !== undefined

/** The findings of the doctor for the operator; null for others, who get the plain answer. */
const createFindings = ({ doctor, clock }: Parts, authenticate: Authenticate) => {
  const looked = cachedFor(clock, doctorMs, async () => doctor?.look() ?? [])
  return async (request: FastifyRequest, reply: FastifyReply): Promise<Finding[] | null> => {
    if (!isVerbose(request) || !hasProof(request)) return null
    const { isOperator, scopes } = await authenticate(request, reply)
    if (!isOperator || !scopes.has('Admin')) throw forbidden("Findings are for the operator's token.")
    return looked()
  }
}

/** Monitors are never limited: their answer is ready before they ask. */
const addHealth = (app: FastifyInstance, parts: Parts, authenticate: Authenticate): void => {
  const config = { isUnlimited: true }
  const check = cachedFor(parts.clock, checkMs, async () => {
    const [open, full] = await Promise.all([isReady(isOpen(parts)), isDiskFull(parts.settings.dataDir)])
    const ready = open && !full
    const status = ready ? 'ready' : 'not ready'
    // Running services are served all the same, so a conflict must not make load balancers send requests elsewhere.
    const held = parts.clusters.all().filter(isHeld).length
    const backup = await backupProblem(parts)
    const more = {
      ...(full ? { disk: 'full' } : {}),
      ...(held === 0 ? {} : { cluster_conflicts: held }),
      ...(backup === null ? {} : { backup }),
    }
    const answer = { status, database: open, ...more }
    return { ready, answer, body: JSON.stringify(answer) }
  })
  const findingsFor = createFindings(parts, authenticate)
  const alive = JSON.stringify({ status: 'alive', version })
  app.get('/healthz', { config }, (_request, reply) => reply.header('content-type', json).send(alive))
  app.get('/readyz', { config }, async (request, reply) => {
    const findings = await findingsFor(request, reply)
    const { ready, answer, body } = await check()
    reply.code(ready ? 200 : 503).header('content-type', json)
    if (!ready) reply.header('retry-after', '2')
    return reply.send(findings === null ? body : JSON.stringify({ ...answer, findings }))
  })
}

/** Public, and read by `/docs`, which has no origin: every page may read it, with no cookie of ours. */
const addDescription = (app: FastifyInstance, { clock }: Parts, operations: readonly Operation[]): void => {
  const made = cachedFor(clock, Number.POSITIVE_INFINITY, () =>
    createDocument(json, JSON.stringify(describe(operations))),
  )
  app.get('/openapi.json', async (request, reply) => {
    const document = await made()
    if (!reply.hasHeader('access-control-allow-origin')) reply.header('access-control-allow-origin', '*')
    return sendDocument(request, reply.header('cache-control', 'no-cache'), document)
  })
}

interface Pages {
  operations: readonly Operation[]
  metrics: Metrics
  webConsole: Console
  authenticate(request: FastifyRequest, reply: FastifyReply): Promise<Principal>
}

/** Adds `/`, `/healthz`, `/readyz`, `/metrics`, `/openapi.json`, `/docs` and the guides. */
export const addPages = (app: FastifyInstance, parts: Parts, pages: Pages): void => {
  const { operations, metrics, webConsole, authenticate } = pages
  app.get('/', (request, reply) => (webConsole.answer(request, reply) ? reply : reply.redirect('/docs')))
  addHealth(app, parts, authenticate)
  addMetricsPage(app, parts, metrics, authenticate)
  addDescription(app, parts, operations)
  addGuides(app, parts.clock)
  addDocs(app, parts.clock)
}
