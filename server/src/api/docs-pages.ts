/**
 * `/docs`: the description of the API for people. Its page has four megabytes of third-party script, so it runs in a
 * sandbox without our origin: the script reads no storage, no cookie and no answer of the API except `/openapi.json`,
 * which is public. Nothing on it is inline or evaluated. Loaded when it is first opened.
 */
import fastify, { type FastifyInstance } from 'fastify'
import { cachedFor } from '../lib/time/cached.ts'
import type { Clock } from '../lib/time/clock.ts'
import { createDocument, type Document, sendDocument } from './documents.ts'

const library = '/docs/js/scalar.js'
const start = '/docs/js/start.js'

const policy = [
  'sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox',
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const page = `<!doctype html>
<html lang="en">
  <head>
    <title>Slipway API</title>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
  </head>
  <body>
    <div id="app"></div>
    <script src="js/storage.js"></script>
    <script src="js/scalar.js"></script>
    <script src="js/start.js"></script>
  </body>
</html>
`

/** A sandbox has no storage, which the library expects: stored values are lost with the page. */
const storageScript = `for (const name of ['localStorage', 'sessionStorage']) {
  const kept = new Map()
  const value = {
    getItem: (key) => kept.get(String(key)) ?? null,
    setItem: (key, text) => void kept.set(String(key), String(text)),
    removeItem: (key) => void kept.delete(String(key)),
    clear: () => kept.clear(),
    key: (index) => [...kept.keys()][index] ?? null,
    get length() { return kept.size },
  }
  Object.defineProperty(window, name, { value, configurable: true })
}
`

/** Extras of the library would call hosts elsewhere, and requests of a sandbox reach only the description. */
const configuration = {
  url: '/openapi.json',
  withDefaultFonts: false,
  telemetry: false,
  showDeveloperTools: 'never',
  hideClientButton: true,
  hideTestRequestButton: true,
  agent: { disabled: true },
  mcp: { disabled: true },
}

/** The library's example of a token looks like a leaked one. */
const strangeExample = 'QUxMIFlPVVIgQkFTRSBBUkUgQkVMT05HIFRPIFVT'

const readLibrary = async (): Promise<string> => {
  const { default: reference } = await import('@scalar/fastify-api-reference')
  const inner = fastify()
  await inner.register(reference, { routePrefix: '/docs', configuration } as never)
  const { statusCode, payload } = await inner.inject(library)
  await inner.close()
  if (statusCode !== 200) throw new Error(`the package of /docs has no ${library}`)
  return payload.replaceAll(strangeExample, 'Token <API token>')
}

const script = 'text/javascript; charset=utf-8'

const documents: Record<string, () => Promise<Document>> = {
  '/docs/': () => createDocument('text/html; charset=utf-8', page),
  '/docs/js/storage.js': () => createDocument(script, storageScript),
  [library]: async () => createDocument(script, await readLibrary()),
  [start]: () => createDocument(script, `Scalar.createApiReference('#app', ${JSON.stringify(configuration)})\n`),
}

export const addDocs = (app: FastifyInstance, clock: Clock): void => {
  app.get('/docs', (_request, reply) => reply.redirect('/docs/'))
  for (const [path, make] of Object.entries(documents)) {
    const made = cachedFor(clock, Number.POSITIVE_INFINITY, make)
    app.get(path, async (request, reply) => {
      const document = await made()
      reply.headers({ 'content-security-policy': policy, 'cache-control': 'public, max-age=3600' })
      return sendDocument(request, reply, document)
    })
  }
}
