/** An LFS server for tests: the batch API and the objects, for a git server or an origin of its own. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type Asked = { oid: string; size: number }

export interface LfsServer {
  /** The pointer of a content, which is served from now on. */
  pointer(content: string | Buffer): string
  handle(request: IncomingMessage, response: ServerResponse): void
  /** `POST /…/objects/batch` and `GET /…/objects/<id>` so far, with the value of their `authorization`. */
  requests: string[]
  objects: Map<string, Buffer>
  /** In place of what would be answered to a batch, or to a download. */
  answer: {
    batch?: (asked: Asked[], response: ServerResponse) => unknown
    object?: (oid: string, response: ServerResponse) => void
  }
}

const pointerOf = (content: Buffer): { oid: string; text: string } => {
  const oid = createHash('sha256').update(content).digest('hex')
  const text = `version https://git-lfs.github.com/spec/v1\noid sha256:${oid}\nsize ${content.length}\n`
  return { oid, text }
}

const oidIn = (url: string): string => /\/objects\/([0-9a-f]{64})$/.exec(url)?.[1] ?? ''

export const createLfsServer = (): LfsServer => {
  const objects = new Map<string, Buffer>()
  const requests: string[] = []
  const answer: LfsServer['answer'] = {}

  const serveObject = (oid: string, response: ServerResponse): void => {
    if (answer.object === undefined) response.writeHead(objects.has(oid) ? 200 : 404).end(objects.get(oid))
    else answer.object(oid, response)
  }

  const serveBatch = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const asked = JSON.parse(Buffer.concat(await request.toArray()).toString()).objects as Asked[]
    const base = `http://${request.headers.host}${request.url!.replace(/\/batch$/, '')}`
    const usual = () =>
      asked.map(({ oid, size }) =>
        objects.has(oid)
          ? { oid, size, actions: { download: { href: `${base}/${oid}` } } }
          : { oid, size, error: { code: 404, message: 'Object missing' } },
      )
    const found = answer.batch === undefined ? usual() : answer.batch(asked, response)
    if (response.headersSent) return
    response.writeHead(200, { 'content-type': 'application/vnd.git-lfs+json' })
    response.end(JSON.stringify({ transfer: 'basic', objects: found }))
  }

  return {
    objects,
    requests,
    answer,
    pointer(content) {
      const bytes = Buffer.from(content)
      const { oid, text } = pointerOf(bytes)
      objects.set(oid, bytes)
      return text
    },
    handle(request, response) {
      requests.push(`${request.method} ${request.url} ${request.headers.authorization ?? 'none'}`)
      if (request.url?.endsWith('/objects/batch')) void serveBatch(request, response)
      else serveObject(oidIn(request.url ?? ''), response)
    },
  }
}

/** At an origin of its own. */
export const listenLfs = async (lfs: LfsServer): Promise<{ origin: string; close(): Promise<void> }> => {
  const server = createServer((request, response) => lfs.handle(request, response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
