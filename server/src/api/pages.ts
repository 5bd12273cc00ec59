/** Pages that need no token: health, metrics, and the description of the API. */
import fastify, { type FastifyInstance } from 'fastify'
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

/** Adds `/`, `/healthz`, `/readyz`, `/metrics`, `/openapi.json` and `/docs`. */
export const addPages = async (
  app: FastifyInstance,
  parts: Parts,
  operations: readonly Operation[],
  metrics: Metrics,
): Promise<void> => {
  const json = 'application/json; charset=utf-8'
  let text: string | undefined
  const description = (): string => {
    text ??= JSON.stringify(describe(operations))
    return text
  }
  app.get('/', (_request, reply) => reply.redirect('/docs'))
  app.get('/healthz', (_request, reply) => reply.header('content-type', json).send('{"status":"alive"}'))
  app.get('/readyz', async (_request, reply) => {
    const ready = await isReady(isOpen(parts))
    reply.code(ready ? 200 : 503).header('content-type', json)
    if (!ready) reply.header('retry-after', '2')
    return JSON.stringify({ status: ready ? 'ready' : 'not ready', database: ready })
  })
  app.get('/metrics', async (_request, reply) => {
    reply.header('content-type', metrics.contentType)
    return metrics.text()
  })
  app.get('/openapi.json', (_request, reply) => reply.header('content-type', json).send(description()))
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
      return answer.rawPayload
    })
}
