/** A small registry of images on loopback whose every answer a test can bend: with a token service, Basic, or open. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { pack } from 'tar-stream'
import { newId } from '../../../src/lib/ids.ts'

export const sha256 = (bytes: Buffer | string): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

const configType = 'application/vnd.docker.container.image.v1+json'
const layerType = 'application/vnd.docker.image.rootfs.diff.tar.gzip'
export const manifestType = 'application/vnd.docker.distribution.manifest.v2+json'
export const indexType = 'application/vnd.oci.image.index.v1+json'

export interface Blob {
  digest: string
  size: number
  bytes: Buffer
}

export interface FakeImage {
  manifest: Buffer
  digest: string
  blobs: Blob[]
}

const blobOf = (bytes: Buffer): Blob => ({ digest: sha256(bytes), size: bytes.length, bytes })

const archiveOf = async (files: Record<string, string | Buffer>): Promise<Buffer> => {
  const archive = pack()
  for (const [name, content] of Object.entries(files)) archive.entry({ name }, content)
  archive.finalize()
  const chunks: Buffer[] = []
  for await (const chunk of archive) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

/** An image unlike any other, of one layer with these files. */
export const makeImage = async (files: Record<string, string | Buffer> = {}): Promise<FakeImage> =>
  imageOf(await archiveOf({ only: newId(), ...files }), { Cmd: ['/none'] })

/** An image of one layer, which is a tar archive; `settings`: how it is started, as Docker writes it. */
export const imageOf = (archive: Buffer, settings: object): FakeImage => {
  const layer = { diffId: sha256(archive), blob: blobOf(gzipSync(archive)) }
  const config = {
    architecture: process.arch === 'x64' ? 'amd64' : process.arch,
    os: 'linux',
    config: settings,
    rootfs: { type: 'layers', diff_ids: [layer.diffId] },
    history: [{ created: '2026-01-01T00:00:00Z', created_by: 'test' }],
  }
  const configBlob = blobOf(Buffer.from(JSON.stringify(config)))
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: manifestType,
      config: { mediaType: configType, digest: configBlob.digest, size: configBlob.size },
      layers: [{ mediaType: layerType, digest: layer.blob.digest, size: layer.blob.size }],
    }),
  )
  return { manifest, digest: sha256(manifest), blobs: [configBlob, layer.blob] }
}

type Handle = (request: IncomingMessage, response: ServerResponse) => boolean

export interface FakeRegistry {
  host: string
  url: URL
  /** `GET /v2/… Bearer x`, in order. */
  asked: string[]
  /** What was pushed or published, by its digest. */
  blobs: ReadonlyMap<string, Buffer>
  /** By `name:tag`; also served by its digest. */
  publish(name: string, image: FakeImage, type?: string): void
  /** Answers first, and says so by true. */
  bend(handle: Handle | null): void
  close(): Promise<void>
}

export type Auth = 'none' | { basic: string; under?: string } | { token: string; realm?: string }

export const challengeOf = (realm: string, scope = 'repository:any:pull'): string =>
  `Bearer realm="${realm}",service="images",scope="${scope}"`

const json = (
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): boolean => {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
  return true
}

/**
 * `auth`: `basic` and `token` are the `user:password` that it admits; `under`: what alone needs it, such as `team/`.
 */
export const startFakeRegistry = async (auth: Auth = 'none', address = '127.0.0.1'): Promise<FakeRegistry> => {
  const asked: string[] = []
  const tags = new Map<string, { bytes: Buffer; type: string }>()
  const blobs = new Map<string, Buffer>()
  const issued = newId()
  let bent: Handle | null = null
  let host = ''

  const isLogin = (request: IncomingMessage, login: string): boolean =>
    request.headers.authorization === `Basic ${Buffer.from(login).toString('base64')}`

  const serveToken = (request: IncomingMessage, response: ServerResponse): boolean => {
    if (auth === 'none' || 'basic' in auth || !request.url!.startsWith('/token')) return false
    return isLogin(request, auth.token) ? json(response, 200, { token: issued }) : json(response, 401, {})
  }
  const refuse = (request: IncomingMessage, response: ServerResponse): boolean => {
    if (auth === 'none' || ('basic' in auth && !request.url!.startsWith(`/v2/${auth.under ?? ''}`))) return false
    const isAdmitted =
      'basic' in auth ? isLogin(request, auth.basic) : request.headers.authorization === `Bearer ${issued}`
    if (isAdmitted) return false
    const challenge = 'basic' in auth ? 'Basic realm="images"' : challengeOf(auth.realm ?? `http://${host}/token`)
    return json(response, 401, { errors: [{ code: 'UNAUTHORIZED' }] }, { 'www-authenticate': challenge })
  }
  const serveImage = (request: IncomingMessage, response: ServerResponse): boolean => {
    // A client of a mirror says which registry it means.
    const { pathname } = new URL(request.url!, 'http://registry')
    const [, name, what, reference = ''] = /^\/v2\/(.+)\/(manifests|blobs)\/([^/]+)$/.exec(pathname) ?? []
    const found = what === 'manifests' ? tags.get(`${name}:${reference}`) : undefined
    const bytes = found?.bytes ?? (what === 'blobs' ? blobs.get(reference) : undefined)
    if (bytes === undefined) return json(response, 404, { errors: [{ code: 'NOT_FOUND' }] })
    const [, from = '0'] = /^bytes=(\d+)-$/.exec(request.headers.range ?? '') ?? []
    const part = bytes.subarray(Number(from))
    response.writeHead(part.length < bytes.length ? 206 : 200, {
      'content-type': found?.type ?? 'application/octet-stream',
      'content-length': part.length,
      ...(part.length < bytes.length ? { 'content-range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` } : {}),
    })
    response.end(request.method === 'HEAD' ? undefined : part)
    return true
  }

  const uploads = new Map<string, Buffer>()
  const serveUpload = (request: IncomingMessage, response: ServerResponse): boolean => {
    const url = new URL(request.url!, 'http://registry')
    const [, name, id = ''] = /^\/v2\/(.+)\/blobs\/uploads\/([^/]*)$/.exec(url.pathname) ?? []
    const [, tagged, tag = ''] = /^\/v2\/(.+)\/manifests\/([^/]+)$/.exec(url.pathname) ?? []
    if (!['POST', 'PATCH', 'PUT'].includes(request.method!) || (name ?? tagged) === undefined) return false
    const take = async (): Promise<void> => {
      const bytes = await buffer(request)
      if (tagged !== undefined) {
        for (const each of [tag, sha256(bytes)])
          tags.set(`${tagged}:${each}`, { bytes, type: request.headers['content-type']! })
        return void json(response, 201, {}, { 'docker-content-digest': sha256(bytes) })
      }
      const upload = id === '' ? newId() : id
      const all = Buffer.concat([uploads.get(upload) ?? Buffer.alloc(0), bytes])
      uploads.set(upload, all)
      if (request.method !== 'PUT') {
        const location = `/v2/${name}/blobs/uploads/${upload}?state=1`
        return void json(response, 202, {}, { location })
      }
      if (sha256(all) !== url.searchParams.get('digest')) return void json(response, 400, {})
      blobs.set(sha256(all), all)
      json(response, 201, {})
    }
    take().catch(() => response.destroy())
    return true
  }

  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers.authorization ?? '-'}`)
    response.on('error', () => {})
    if (bent?.(request, response) === true) return
    void (
      serveToken(request, response) ||
      refuse(request, response) ||
      serveUpload(request, response) ||
      serveImage(request, response)
    )
  }).listen(0, address)
  await once(server, 'listening')
  host = `${address}:${(server.address() as AddressInfo).port}`
  return {
    host,
    url: new URL(`http://${host}`),
    asked,
    blobs,
    publish(name, image, type = manifestType) {
      const [repository] = name.split(':')
      for (const tag of [name, `${repository}:${sha256(image.manifest)}`])
        tags.set(tag, { bytes: image.manifest, type })
      for (const { digest, bytes } of image.blobs) blobs.set(digest, bytes)
    },
    bend(handle) {
      bent = handle
    },
    async close() {
      server.closeAllConnections()
      server.close()
    },
  }
}

/** An address that counts connections: where none may be made. */
export const startTrap = async (host = '127.0.0.1') => {
  let connections = 0
  const server = createTcpServer((socket) => {
    connections += 1
    socket.on('error', () => {})
    const body = '{"Token":"from-inside","AccessKeyId":"x"}'
    socket.end(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
  }).listen(0, host)
  await once(server, 'listening')
  return {
    host: `${host}:${(server.address() as AddressInfo).port}`,
    connections: () => connections,
    close: () => void server.close(),
  }
}
