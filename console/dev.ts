/**
 * The console as it is developed: Vite sends its sources, and pages take up a change without a reload. Everything else is
 * passed to a server with the host and origin that the browser sent, so that signing in, sessions and websockets work as
 * they do for the built console, under its policy. Promises to send no file but sources and packages: a data directory
 * beside them has keys.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import react from '@vitejs/plugin-react'
import { createServer as createVite, type ViteDevServer } from 'vite'
import { pageRules, policyOf } from '../server/src/api/console/assets.ts'
import { schemasPlugin } from './schemas.ts'

export interface DevConsoleOptions {
  /** Of the API: `http://host:port`. */
  api: string
  /** The first one that is tried; 0: any free one. */
  port: number
  /** Resolves when the API can be asked: false if there is no server to wait for. */
  isReady(): Promise<boolean>
}

export interface DevConsole {
  url: string
  /** Tells which files change; sees those of the console only, until others are added. */
  watcher: ViteDevServer['watcher']
  close(): Promise<void>
}

const folderOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

/** Modules, and the sockets that say which of them have changed. */
const isOfVite = ({ url = '', headers }: IncomingMessage): boolean =>
  /^\/(@|src\/|node_modules\/)/.test(url) || headers['sec-websocket-protocol']?.startsWith('vite-') === true

/** What browsers open that is no page of the console. */
const isOpenedPage = /^\/(docs|guides|auth|openapi\.json|healthz|readyz|metrics)(?![\w-])/

const isPage = ({ method, url = '', headers }: IncomingMessage): boolean =>
  (method === 'GET' || method === 'HEAD') && headers.accept?.includes('text/html') === true && !isOpenedPage.test(url)

const sendAway = (response: ServerResponse): void => {
  const body = { code: 'not_running', message: 'The server does not run: its terminal says why.' }
  response.writeHead(503, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

/** Where Vite passes a request: null is the API; an address is one of its own. */
const placeOf = async (
  request: IncomingMessage,
  response: ServerResponse | undefined,
  isReady: () => Promise<boolean>,
): Promise<string | false | null> => {
  if (isOfVite(request)) return request.url!
  if (isPage(request)) return '/index.html'
  if (await isReady()) return null
  if (response === undefined) return false
  sendAway(response)
  return request.url!
}

/** As in the built console, but for what Vite puts on a page. */
const policyWith = (nonce: string): string => {
  const own = (name: string): string => `${pageRules[name]} 'nonce-${nonce}'`
  return policyOf({
    ...pageRules,
    'script-src': own('script-src'),
    'style-src': own('style-src'),
    'worker-src': 'blob:',
  })
}

const listen = async (http: ReturnType<typeof createServer>, port: number): Promise<number> => {
  const listening = once(http, 'listening')
  http.listen(port, '127.0.0.1')
  try {
    await listening
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    return listen(http, port + 1)
  }
  return (http.address() as AddressInfo).port
}

export const startDevConsole = async ({ api, port, isReady }: DevConsoleOptions): Promise<DevConsole> => {
  const nonce = randomBytes(16).toString('base64')
  const http = createServer()
  const vite = await createVite({
    root: folderOf('.'),
    configFile: false,
    logLevel: 'warn',
    clearScreen: false,
    cacheDir: folderOf('../node_modules/.cache/slipway-console'),
    plugins: [react(), schemasPlugin],
    html: { cspNonce: nonce },
    server: {
      middlewareMode: { server: http },
      hmr: { server: http },
      headers: { 'content-security-policy': policyWith(nonce) },
      // The API decides which origins may ask.
      cors: false,
      fs: { allow: ['src', 'index.html', '../server/src', '../node_modules', 'node_modules'].map(folderOf) },
      proxy: {
        '/': {
          target: api,
          ws: true,
          bypass: (request, response) => placeOf(request, response, isReady),
        },
      },
    },
  })
  http.on('request', vite.middlewares)
  const found = await listen(http, port)
  return {
    // Not the address of the server: a browser has one cookie of a session for all ports of a host.
    url: `http://localhost:${found}`,
    watcher: vite.watcher,
    async close() {
      http.closeAllConnections()
      await Promise.all([vite.close(), new Promise((resolve) => http.close(resolve))])
    },
  }
}
