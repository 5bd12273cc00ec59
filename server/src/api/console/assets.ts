/**
 * The files of the console, as its build left them: hashed names that never change, each also compressed, and one page
 * for every address. Promises that only what was in the folder at the start is served, by exact name, so that no path
 * leads out of it; keeps none of it in memory. Without a build there is no console.
 */
import { createHash } from 'node:crypto'
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { extname, join } from 'node:path'
import type { FastifyReply, FastifyRequest } from 'fastify'

export interface Assets {
  /** Sends the page, whatever the address; the page finds out what to show. */
  sendPage(request: FastifyRequest, reply: FastifyReply): FastifyReply
  /** Sends a file by its name; null if there is none. */
  sendFile(request: FastifyRequest, reply: FastifyReply, name: string): FastifyReply | null
}

interface Asset {
  path: string
  type: string
  etag: string
  /** Bytes by encoding. */
  sizes: Map<Encoding, number>
}

type Encoding = 'br' | 'gzip' | 'identity'

const endings: Record<Encoding, string> = { br: '.br', gzip: '.gz', identity: '' }

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
}

/** No script, style or frame but our own; nothing of another host. */
const pagePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const readAsset = (folder: string, name: string, there: ReadonlySet<string>): Asset => {
  const path = join(folder, name)
  const sizes = new Map<Encoding, number>()
  for (const [encoding, ending] of Object.entries(endings) as [Encoding, string][])
    if (there.has(name + ending)) sizes.set(encoding, statSync(path + ending).size)
  const etag = createHash('sha256').update(readFileSync(path)).digest('base64url').slice(0, 22)
  return { path, type: types[extname(name)]!, etag, sizes }
}

const readFolder = (folder: string): Map<string, Asset> => {
  const there = new Set(readdirSync(folder))
  const names = [...there].filter((name) => types[extname(name)] !== undefined)
  return new Map(names.map((name) => [name, readAsset(folder, name, there)]))
}

const accepted = (header: string | undefined, encoding: Encoding): boolean =>
  (header ?? '').split(',').some((each) => {
    const [name = '', ...parameters] = each.split(';').map((part) => part.trim().toLowerCase())
    return name === encoding && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter))
  })

const encodingFor = ({ sizes }: Asset, request: FastifyRequest): Encoding =>
  (['br', 'gzip'] as const).find(
    (encoding) => sizes.has(encoding) && accepted(request.headers['accept-encoding'], encoding),
  ) ?? 'identity'

const send = (request: FastifyRequest, reply: FastifyReply, asset: Asset, vary = 'Accept-Encoding'): FastifyReply => {
  const encoding = encodingFor(asset, request)
  const etag = `W/"${asset.etag}"`
  reply.headers({ vary, etag })
  if (request.headers['if-none-match'] === etag) return reply.code(304).send()
  reply.headers({ 'content-type': asset.type, 'content-length': asset.sizes.get(encoding)! })
  if (encoding !== 'identity') reply.header('content-encoding', encoding)
  return request.method === 'HEAD' ? reply.send() : reply.send(createReadStream(asset.path + endings[encoding]))
}

/** Whether there is a console to link to. */
export const hasConsole = (folder: string | undefined): boolean =>
  folder !== undefined && existsSync(join(folder, 'index.html'))

/** The build in a folder: `index.html`, and `assets/` beside it; null if there is none. */
export const readAssets = (folder: string): Assets | null => {
  let files: Map<string, Asset>
  let page: Asset | undefined
  try {
    files = readFolder(join(folder, 'assets'))
    page = readFolder(folder).get('index.html')
  } catch {
    return null
  }
  if (page === undefined) return null
  return {
    sendPage(request, reply) {
      reply.headers({
        'content-security-policy': pagePolicy,
        'cache-control': 'no-cache',
        'cross-origin-opener-policy': 'same-origin',
        'cross-origin-resource-policy': 'same-origin',
      })
      // Programs get the API's answer at the same address.
      return send(request, reply, page, 'Accept, Accept-Encoding')
    },
    sendFile(request, reply, name) {
      const asset = files.get(name)
      if (asset === undefined) return null
      reply.headers({
        'cache-control': 'public, max-age=31536000, immutable',
        'cross-origin-resource-policy': 'same-origin',
      })
      return send(request, reply, asset)
    },
  }
}
