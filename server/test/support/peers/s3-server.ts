/**
 * An S3 storage of the tests, in files: what a real one does with objects and uploads in parts, and the ways in which one
 * fails. It checks the hashes of every body and that a signature names the key; only a real storage shows whether
 * signatures are right (places.test.ts).
 */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createReadStream, createWriteStream, mkdtempSync, rmSync } from 'node:fs'
import { rename, rm, stat } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface S3Call {
  method: string
  key: string
  query: URLSearchParams
}

/**
 * `die`: the connection ends in the middle. `flip`: one bit of what is sent, or kept, is another one. `etag`: the
 * answer has another checksum. A number or a word: that error.
 */
export type S3Fault = 'die' | 'flip' | 'etag' | { status: number; code: string }

interface Piece {
  file: string
  md5: Buffer
  size: number
  at: string
}

interface S3Object {
  pieces: Piece[]
  etag: string
  size: number
  at: string
  marks: Record<string, string>
}

interface Upload {
  key: string
  pieces: Map<number, Piece>
  begun: string
  marks: Record<string, string>
}

export interface S3Server {
  /** `http://127.0.0.1:<port>`. */
  url: string
  objects: Map<string, S3Object>
  uploads: Map<string, Upload>
  calls: S3Call[]
  /** The most parts that were being received at once. */
  mostAtOnce: number
  /** How many entries a page of a list has. */
  pageSize: number
  fault(call: S3Call): S3Fault | undefined
  close(): Promise<void>
}

export const s3Keys = { accessKeyId: 'AKTEST', secretAccessKey: 'hush hush' }

class Refused extends Error {
  readonly status: number
  readonly code: string
  constructor(status: number, code: string) {
    super(code)
    this.status = status
    this.code = code
  }
}

const flipped = (chunk: Buffer): Buffer => {
  const copy = Buffer.from(chunk)
  copy[copy.length >> 1]! ^= 1
  return copy
}

const marksOf = (request: IncomingMessage): Record<string, string> =>
  Object.fromEntries(
    Object.entries(request.headers).flatMap(([name, value]) =>
      name.startsWith('x-amz-meta-') ? [[name, String(value)]] : [],
    ),
  )

const xml = (response: ServerResponse, body: string, status = 200): void =>
  void response.writeHead(status, { 'content-type': 'application/xml' }).end(`<?xml version="1.0"?>${body}`)

export const startS3Server = async (): Promise<S3Server> => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-s3-'))
  let count = 0
  let receiving = 0
  const s3: S3Server = {
    url: '',
    objects: new Map(),
    uploads: new Map(),
    calls: [],
    mostAtOnce: 0,
    pageSize: 1000,
    fault: () => undefined,
    close: async () => {},
  }

  const write = async (request: IncomingMessage, fault: S3Fault | undefined): Promise<Piece> => {
    count += 1
    const file = join(folder, `${count}`)
    const [md5, sha256] = [createHash('md5'), createHash('sha256')]
    const kept = createWriteStream(`${file}.half`)
    let size = 0
    for await (const chunk of request as AsyncIterable<Buffer>) {
      md5.update(chunk)
      sha256.update(chunk)
      size += chunk.length
      const stored = fault === 'flip' && size === chunk.length ? flipped(chunk) : chunk
      if (!kept.write(stored)) await once(kept, 'drain')
      if (fault === 'die') {
        request.socket.destroy()
        throw new Refused(500, 'InternalError')
      }
    }
    kept.end()
    await once(kept, 'close')
    const digest = md5.digest()
    const said = request.headers['content-md5']
    if (said !== undefined && said !== digest.toString('base64')) throw new Refused(400, 'BadDigest')
    if (request.headers['x-amz-content-sha256'] !== sha256.digest('hex'))
      throw new Refused(400, 'XAmzContentSHA256Mismatch')
    await rename(`${file}.half`, file)
    return { file, md5: digest, size, at: new Date().toISOString() }
  }
  const drop = async (pieces: Iterable<Piece>): Promise<void> => {
    for (const { file } of pieces) await rm(file, { force: true })
  }
  const keep = async (
    key: string,
    pieces: Piece[],
    marks: Record<string, string>,
    isWhole: boolean,
  ): Promise<string> => {
    const md5s = pieces.map(({ md5 }) => md5)
    const ofParts = `${createHash('md5').update(Buffer.concat(md5s)).digest('hex')}-${md5s.length}`
    const etag = isWhole ? md5s[0]!.toString('hex') : ofParts
    const size = pieces.reduce((sum, piece) => sum + piece.size, 0)
    const before = s3.objects.get(key)
    s3.objects.set(key, { pieces, etag, size, at: new Date().toISOString(), marks })
    await drop(before?.pieces ?? [])
    return etag
  }
  const uploadOf = ({ query }: S3Call): Upload => {
    const found = s3.uploads.get(query.get('uploadId') ?? '')
    if (found === undefined) throw new Refused(404, 'NoSuchUpload')
    return found
  }
  const put = async (call: S3Call, request: IncomingMessage, response: ServerResponse, fault?: S3Fault) => {
    receiving += 1
    s3.mostAtOnce = Math.max(s3.mostAtOnce, receiving)
    try {
      const upload = call.query.has('uploadId') ? uploadOf(call) : null
      const piece = await write(request, fault)
      const etag = upload === null ? await keep(call.key, [piece], marksOf(request), true) : piece.md5.toString('hex')
      upload?.pieces.set(Number(call.query.get('partNumber')), piece)
      response
        .writeHead(200, {
          etag: `"${fault === 'etag' ? etag.replace(/^./, 'g').replace('g', etag.startsWith('0') ? '1' : '0') : etag}"`,
        })
        .end()
    } finally {
      receiving -= 1
    }
  }
  const complete = async (call: S3Call, request: IncomingMessage, response: ServerResponse, fault?: S3Fault) => {
    const upload = uploadOf(call)
    let text = ''
    for await (const chunk of request) text += chunk
    const wanted = [...text.matchAll(/<PartNumber>(\d+)<\/PartNumber><ETag>(?:"|&#34;)(\w+)/g)]
    const pieces = wanted.map(([, number, etag]) => {
      const piece = upload.pieces.get(Number(number))
      if (piece === undefined || piece.md5.toString('hex') !== etag) throw new Refused(400, 'InvalidPart')
      return piece
    })
    const etag = await keep(upload.key, pieces, upload.marks, false)
    s3.uploads.delete(call.query.get('uploadId')!)
    if (fault === 'die') return void response.destroy()
    xml(response, `<CompleteMultipartUploadResult><ETag>&quot;${etag}&quot;</ETag></CompleteMultipartUploadResult>`)
  }
  const objectOf = ({ key }: S3Call): S3Object => {
    const found = s3.objects.get(key)
    if (found === undefined) throw new Refused(404, 'NoSuchKey')
    return found
  }
  const headersOf = ({ etag, size, marks }: S3Object) => ({ etag: `"${etag}"`, 'content-length': size, ...marks })

  const send = async (call: S3Call, request: IncomingMessage, response: ServerResponse, fault?: S3Fault) => {
    const object = objectOf(call)
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
    const same = request.headers['if-match']
    if (same !== undefined && same !== `"${object.etag}"`) throw new Refused(412, 'PreconditionFailed')
    response.writeHead(from > 0 ? 206 : 200, { ...headersOf(object), 'content-length': object.size - from })
    let at = 0
    let sent = 0
    for (const { file } of object.pieces) {
      const { size } = await stat(file)
      const start = Math.max(0, from - at)
      at += size
      if (start >= size) continue
      for await (const chunk of createReadStream(file, { start }) as AsyncIterable<Buffer>) {
        if (fault === 'die' && sent > object.size / 3) return void response.destroy()
        if (!response.write(fault === 'flip' && sent === 0 ? flipped(chunk) : chunk)) await once(response, 'drain')
        sent += chunk.length
      }
    }
    response.end()
  }
  const listObjects = ({ query }: S3Call, response: ServerResponse): void => {
    const keys = [...s3.objects.keys()].filter((key) => key.startsWith(query.get('prefix') ?? '')).sort()
    const from = Number(query.get('continuation-token') ?? 0)
    const page = keys.slice(from, from + s3.pageSize)
    const entries = page.map((key) => {
      const { size, at } = s3.objects.get(key)!
      return `<Contents><Key>${key}</Key><LastModified>${at}</LastModified><Size>${size}</Size></Contents>`
    })
    const isMore = from + page.length < keys.length
    const next = isMore ? `<NextContinuationToken>${from + page.length}</NextContinuationToken>` : ''
    xml(response, `<ListBucketResult><IsTruncated>${isMore}</IsTruncated>${next}${entries.join('')}</ListBucketResult>`)
  }
  const listUploads = (response: ServerResponse): void => {
    const entries = [...s3.uploads].map(
      ([id, { key, begun }]) =>
        `<Upload><Key>${key}</Key><UploadId>${id}</UploadId><Initiated>${begun}</Initiated></Upload>`,
    )
    const body = `<IsTruncated>false</IsTruncated>${entries.join('')}`
    xml(response, `<ListMultipartUploadsResult>${body}</ListMultipartUploadsResult>`)
  }
  const listParts = (call: S3Call, response: ServerResponse): void => {
    const entries = [...uploadOf(call).pieces].map(
      ([number, { at, size }]) =>
        `<Part><PartNumber>${number}</PartNumber><LastModified>${at}</LastModified><Size>${size}</Size></Part>`,
    )
    xml(response, `<ListPartsResult><IsTruncated>false</IsTruncated>${entries.join('')}</ListPartsResult>`)
  }
  const begin = ({ key }: S3Call, request: IncomingMessage, response: ServerResponse): void => {
    count += 1
    const id = `upload-${count}+/=`
    s3.uploads.set(id, { key, pieces: new Map(), begun: new Date().toISOString(), marks: marksOf(request) })
    xml(response, `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`)
  }
  const remove = async (call: S3Call, response: ServerResponse): Promise<void> => {
    const id = call.query.get('uploadId')
    const gone = id === null ? s3.objects.get(call.key)?.pieces : uploadOf(call).pieces.values()
    if (id === null) s3.objects.delete(call.key)
    else s3.uploads.delete(id)
    await drop(gone ?? [])
    response.writeHead(204).end()
  }
  const answer = async (call: S3Call, request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method, key, query } = call
    const fault = s3.fault(call)
    if (typeof fault === 'object') throw new Refused(fault.status, fault.code)
    if (!(request.headers.authorization ?? '').includes(`Credential=${s3Keys.accessKeyId}/`))
      throw new Refused(403, 'InvalidAccessKeyId')
    if (method === 'GET' && key === '')
      return query.has('uploads') ? listUploads(response) : listObjects(call, response)
    if (method === 'GET' && query.has('uploadId')) return listParts(call, response)
    if (method === 'GET') return send(call, request, response, fault)
    if (method === 'HEAD') return void response.writeHead(200, headersOf(objectOf(call))).end()
    if (method === 'PUT') return put(call, request, response, fault)
    if (method === 'DELETE') return remove(call, response)
    return query.has('uploads') ? begin(call, request, response) : complete(call, request, response, fault)
  }
  const server = createServer((request, response) => {
    const { pathname, searchParams: query } = new URL(request.url!, 'http://x')
    const [, bucket, ...rest] = pathname.split('/').map(decodeURIComponent)
    const call: S3Call = { method: request.method!, key: rest.join('/'), query }
    s3.calls.push(call)
    const work =
      bucket === 'bucket' ? answer(call, request, response) : Promise.reject(new Refused(404, 'NoSuchBucket'))
    work.catch((error: unknown) => {
      request.resume()
      if (!(error instanceof Refused) || response.headersSent) return void response.destroy()
      xml(response, `<Error><Code>${error.code}</Code></Error>`, error.status)
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  server.unref()
  s3.url = `http://127.0.0.1:${(server.address() as { port: number }).port}`
  s3.close = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
    rmSync(folder, { recursive: true, force: true })
  }
  return s3
}
