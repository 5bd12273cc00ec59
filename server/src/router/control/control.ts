/** The control API: HTTP on a unix socket in a folder that only our own user may enter. */
import { once } from 'node:events'
import { chmod, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Workers } from '../processes/workers.ts'
import { PortUnavailable, type Target } from '../router.ts'
import { checkRoutes, InvalidRoute, replaceService } from '../table/table.ts'
import type { TlsStore } from '../tls/tls-store.ts'
import { leastIdle, readIdle } from '../traffic/idle.ts'
import type { LiveTable } from '../traffic/live-table.ts'
import type { Upstreams } from '../traffic/upstreams.ts'
import type { Health } from './protocol.ts'

interface ControlParts {
  table: LiveTable
  upstreams: Upstreams
  tlsStore: TlsStore
  /** All processes together. */
  workers: Pick<Workers, 'drain' | 'idle' | 'counts' | 'listen'>
  health: () => Health
  /** Stops accepting; `released` resolves when port, socket and lock are free, `finished` when no request is left. */
  stop: () => { released: Promise<void>; finished: Promise<void> }
}

interface Control {
  listen(path: string): Promise<void>
  /** Accepts no new calls, and signals an intended stop to watchers and the follower. Calls in progress continue. */
  close(): void
}

const maxBodyBytes = 64 << 20

const readJson = async (req: IncomingMessage): Promise<unknown> => {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of req as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > maxBodyBytes) throw new InvalidRoute('the body is too large')
    chunks.push(chunk)
  }
  return JSON.parse(Buffer.concat(chunks).toString())
}

const send = (res: ServerResponse, status: number, value: unknown): void => {
  res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}

const drain = async (
  { upstreams, workers }: ControlParts,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> => {
  const { targets, timeoutMs } = (await readJson(req)) as { targets: Target[]; timeoutMs: number }
  const end = new AbortController()
  const timer = setTimeout(() => end.abort(), timeoutMs)
  res.once('close', () => end.abort())
  const remaining = await workers.drain(targets, timeoutMs, end.signal)
  clearTimeout(timer)
  if (!res.destroyed) upstreams.endConnections(targets)
  send(res, 200, { remaining })
}

const stop = async (parts: ControlParts, res: ServerResponse): Promise<void> => {
  const { released, finished } = parts.stop()
  await released
  res.writeHead(200, { 'content-type': 'text/plain' }).write('stopping\n')
  await finished
  res.end()
}

const putRoutes = async ({ table }: ControlParts, req: IncomingMessage, serviceId: string): Promise<void> => {
  const routes = checkRoutes(await readJson(req))
  await table.change((all) => replaceService(all, serviceId, routes))
}

/**
 * Open calls: of the server, which detects with one when this process ends, and of the program that follows the routes
 * while no server runs.
 */
interface OpenCalls {
  watchers: Set<ServerResponse>
  followers: Set<ServerResponse>
  /** Callers that can wake services. */
  listeners: Set<ServerResponse>
}

const keepOpen = (calls: Set<ServerResponse>, res: ServerResponse, word: string): void => {
  calls.add(res.once('close', () => calls.delete(res)))
  res.writeHead(200).write(`${word}\n`)
}

/** Writes a line for each service that requests wait for. */
const tellWanted = ({ workers }: ControlParts, { listeners }: OpenCalls, res: ServerResponse): void => {
  keepOpen(listeners, res, '')
  res.once(
    'close',
    workers.listen((serviceId) => res.write(`${serviceId}\n`)),
  )
}

const answer = async (parts: ControlParts, open: OpenCalls, req: IncomingMessage, res: ServerResponse) => {
  const path = req.url ?? ''
  const service = /^\/services\/([^/]+)\/routes$/.exec(path)
  const tls = /^\/tls\/([^/]+)$/.exec(path)
  const call = `${req.method} ${service !== null ? '/services' : tls !== null ? '/tls/host' : path}`
  switch (call) {
    case 'GET /health':
      return send(res, 200, parts.health())
    case 'GET /metrics':
      return send(res, 200, await parts.workers.counts())
    case 'GET /routes':
      return send(res, 200, parts.table.routes())
    case 'PUT /services':
      await putRoutes(parts, req, decodeURIComponent(service![1]!))
      return send(res, 200, {})
    case 'GET /tls':
      return send(res, 200, parts.tlsStore.known())
    case 'PUT /tls/host':
      await parts.tlsStore.set(decodeURIComponent(tls![1]!), await readJson(req))
      return send(res, 200, {})
    case 'GET /idle':
      return send(res, 200, leastIdle(readIdle(parts.table.routes(), parts.upstreams), await parts.workers.idle()))
    case 'GET /wanted':
      return tellWanted(parts, open, res)
    case 'POST /drain':
      return drain(parts, req, res)
    case 'POST /stop':
      return stop(parts, res)
    case 'GET /watch':
      for (const follower of open.followers) follower.end('a server is back\n')
      return keepOpen(open.watchers, res, 'watching')
    case 'GET /follow':
      if (open.watchers.size > 0) return send(res, 409, { message: 'a server looks after this router' })
      return keepOpen(open.followers, res, 'following')
    default:
      return send(res, 404, { message: 'no such call' })
  }
}

const fail = (res: ServerResponse, error: unknown) => {
  if (res.headersSent) return void res.destroy()
  const { message } = error as Error
  if (error instanceof PortUnavailable) return send(res, 409, { message, port: error.port })
  const isCallers = error instanceof InvalidRoute || error instanceof SyntaxError
  send(res, isCallers ? 422 : 500, { message })
}

export const createControl = (parts: ControlParts): Control => {
  const open: OpenCalls = { watchers: new Set(), followers: new Set(), listeners: new Set() }
  const server: Server = createServer({ requestTimeout: 0 }, (req, res) => {
    answer(parts, open, req, res).catch((error: unknown) => fail(res, error))
  })
  return {
    async listen(path) {
      // Its creator is dead: we have its lock.
      await rm(path, { force: true })
      server.listen(path)
      await once(server, 'listening')
      await chmod(path, 0o600)
    },
    close() {
      server.close()
      for (const res of [...open.watchers, ...open.followers]) res.end('stopping\n')
      for (const res of open.listeners) res.end()
    },
  }
}
