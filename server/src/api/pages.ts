/** Pages that need no token: health, metrics, and the description of the API. */
import { statfs } from 'node:fs/promises'
import fastify, { type FastifyInstance } from 'fastify'
import type { Console } from './console/console.ts'
import { addGuides } from './guide-pages.ts'
import type { Metrics } from './metrics.ts'
import { describe } from './operations/openapi.ts'
import type { Operation } from './operations/operation.ts'
import type { Parts } from './parts.ts'

const readyTimeoutMs = 2000

const isReady = async (check: Promise<unknown>): Promise<boolean> =>
  check.then(
    () => true,
    () => false,
  )

const docsScript = '/docs/js/scalar.js'
const docsPolicy = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'"

/** The documentation page is four megabytes of script: it is loaded when somebody first opens it. */
const lazyDocs = (): (() => Promise<FastifyInstance>) => {
  let pages: Promise<FastifyInstance> | undefined
  const load = async (): Promise<FastifyInstance> => {
    const { default: reference } = await import('@scalar/fastify-api-reference')
    const inner = fastify()
    // The page's own extras (an assistant, sharing, clients) would call external hosts.
    const configuration = {
      url: '/openapi.json',
      pageTitle: 'Slipway API',
      withDefaultFonts: false,
      telemetry: false,
      showDeveloperTools: 'never',
      hideClientButton: true,
      agent: { disabled: true },
      mcp: { disabled: true },
    }
    await inner.register(reference, { routePrefix: '/docs', configuration } as never)
    return inner
  }
  return () => (pages ??= load())
}

/**
 * Readiness of this server only; a cluster has its own status. Ready means that the database answers and the first
 * start has made a token: before that nobody could be served.
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

/** The page's example of a token looks like one that leaked. */
const strangeExample = 'QUxMIFlPVVIgQkFTRSBBUkUgQkVMT05HIFRPIFVT'

/** Adds `/`, `/healthz`, `/readyz`, `/metrics`, `/openapi.json`, `/docs` and the guides. */
export const addPages = async (
  app: FastifyInstance,
  parts: Parts,
  operations: readonly Operation[],
  metrics: Metrics,
  webConsole: Console,
): Promise<void> => {
  const json = 'application/json; charset=utf-8'
  let text: string | undefined
  const description = (): string => {
    text ??= JSON.stringify(describe(operations))
    return text
  }
  app.get('/', (request, reply) => (webConsole.answer(request, reply) ? reply : reply.redirect('/docs')))
  app.get('/healthz', (_request, reply) => reply.header('content-type', json).send('{"status":"alive"}'))
  app.get('/readyz', async (_request, reply) => {
    const [open, full] = await Promise.all([isReady(isOpen(parts)), isDiskFull(parts.settings.dataDir)])
    const ready = open && !full
    reply.code(ready ? 200 : 503).header('content-type', json)
    if (!ready) reply.header('retry-after', '2')
    return JSON.stringify({ status: ready ? 'ready' : 'not ready', database: open, ...(full ? { disk: 'full' } : {}) })
  })
  app.get('/metrics', async (_request, reply) => {
    reply.header('content-type', metrics.contentType)
    return metrics.text()
  })
  app.get('/openapi.json', (_request, reply) => reply.header('content-type', json).send(description()))
  addGuides(app)
  app.get('/docs', (_request, reply) => reply.redirect('/docs/'))
  const docs = lazyDocs()
  for (const url of ['/docs/', docsScript])
    app.get(url, async (_request, reply) => {
      const answer = await (await docs()).inject(url)
      reply.code(answer.statusCode).headers({
        'content-type': answer.headers['content-type'],
        'content-security-policy': docsPolicy,
        'cache-control': 'max-age=3600',
      })
      return answer.payload.replaceAll(strangeExample, 'Token <API token>')
    })
}
