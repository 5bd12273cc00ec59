/**
 * Downloads for `ADD https://…`, by our own client under the policy for outgoing requests: every hop of a redirect is
 * checked. A body goes to a file of the build, since an archive for the engine begins with the sizes of its files. Knows
 * no images.
 */
import { createHash, type Hash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { posix } from 'node:path'
import { type Readable, Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { DeploymentError } from '../../lib/errors.ts'
import { type Outbound, OutboundFailed, OutboundRefused, type OutboundStream } from '../../lib/net/outbound.ts'
import { isRedirect, redirectTarget } from '../../lib/net/redirects.ts'

const maxRedirects = 10
const algorithms: Record<string, number> = { sha256: 64, sha384: 96, sha512: 128 }
/** The name for a URL whose path has no last part, as in BuildKit. */
const unnamed = '__unnamed__'

interface SavedFile {
  sizeBytes: number
  read(): Readable
}

/** An answer whose body was not read yet: it is saved or dropped. */
export interface Download {
  /** Changes with the content; null if the server sends none. */
  etag: string | null
  modifiedAt: Date
  /** Rejects with `build_failed` if it is too large, ends early, or has another checksum. */
  save(path: string, checksum: Checksum | null, signal: AbortSignal): Promise<SavedFile>
  drop(): void
}

export interface Downloads {
  /** Rejects with `build_failed`, or with `build_refused` for an address that the policy forbids. */
  open(url: string, signal: AbortSignal): Promise<Download>
}

export interface Checksum {
  algorithm: string
  hex: string
}

/** `sha256:…`; null for other texts. */
export const readChecksum = (text: string): Checksum | null => {
  const [, algorithm = '', hex = ''] = /^([a-z0-9]{1,10}):([0-9a-f]{1,128})$/.exec(text) ?? []
  return algorithms[algorithm] === hex.length && hex !== '' ? { algorithm, hex } : null
}

export const downloadName = (url: string): string => {
  const path = URL.parse(url)?.pathname ?? ''
  let decoded = path
  try {
    decoded = decodeURIComponent(path)
  } catch {
    // It is used as the name unchanged.
  }
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a name must not contain them
  const name = posix.basename(decoded).replaceAll(/[\u0000-\u001f\u007f]/g, '')
  return name === '' || name === '.' || name === '..' || Buffer.byteLength(name) > 255 ? unnamed : name
}

/** Without its query, which may contain secrets. */
const show = (url: string | URL): string =>
  String(url)
    .replace(/[?#].*$/s, '')
    .slice(0, 200)

const failed = (url: string | URL, why: string, cause?: unknown): DeploymentError =>
  new DeploymentError('build_failed', `The build failed: ADD ${show(url)}: ${why}`, { cause })

const explain = (url: string | URL, maxBytes: number, error: unknown): unknown => {
  if (error instanceof OutboundRefused)
    return new DeploymentError('build_refused', `The build is refused: ADD ${show(url)}: ${error.message}.`, {
      cause: error,
    })
  if (!(error instanceof OutboundFailed)) return error
  const size = `it has more than ${Math.floor(maxBytes / 2 ** 20)} MB (SLIPWAY_CONTEXT_MAX_MB).`
  return failed(url, error.code === 'too_large' ? size : `${error.message}.`, error)
}

const dateOf = (text: string | undefined): Date => {
  const time = Date.parse(text ?? '')
  return new Date(Number.isNaN(time) ? 0 : Math.max(0, time))
}

const counted = (hash: Hash) => {
  let bytes = 0
  const pass = new Transform({
    transform(chunk: Buffer, _, done) {
      bytes += chunk.length
      hash.update(chunk)
      done(null, chunk)
    },
  })
  return { pass, bytes: () => bytes }
}

const downloadOf = (url: string, { headers, body }: OutboundStream, maxBytes: number): Download => ({
  etag: headers.etag ?? null,
  modifiedAt: dateOf(headers['last-modified']),
  async save(path, checksum, signal) {
    const { algorithm, hex } = checksum ?? { algorithm: 'sha256', hex: null }
    const hash = createHash(algorithm)
    const count = counted(hash)
    try {
      await pipeline(body, count.pass, createWriteStream(path, { mode: 0o600 }), { signal })
    } catch (error) {
      signal.throwIfAborted()
      throw explain(url, maxBytes, error)
    }
    const found = hash.digest('hex')
    if (hex !== null && found !== hex)
      throw failed(
        url,
        `its content has the checksum ${algorithm}:${found}, and --checksum asks for ${algorithm}:${hex}.`,
      )
    return { sizeBytes: count.bytes(), read: () => createReadStream(path) }
  },
  drop: () => void body.destroy(),
})

const follow = async (outbound: Outbound, first: string, maxBytes: number, signal: AbortSignal) => {
  let target: string | URL = first
  for (let hops = 0; ; hops += 1) {
    const headers = { accept: '*/*', 'accept-encoding': 'identity', 'user-agent': 'slipway' }
    const answer = await outbound.open({ method: 'GET', url: target, headers, maxBytes, signal }).catch((error) => {
      signal.throwIfAborted()
      throw explain(target, maxBytes, error)
    })
    if (!isRedirect(answer.status)) return answer
    answer.body.destroy()
    const next = redirectTarget(new URL(target), answer.headers.location)
    if (next === null) throw failed(target, 'it redirects from https to an address that is not https, or to none.')
    if (hops === maxRedirects) throw failed(first, `it redirects more than ${maxRedirects} times.`)
    target = next
  }
}

export const createDownloads = (outbound: Outbound, maxBytes: number): Downloads => ({
  async open(url, signal) {
    const answer = await follow(outbound, url, maxBytes, signal)
    if (answer.status < 200 || answer.status > 299) {
      answer.body.destroy()
      throw failed(url, `the server answered with status ${answer.status}.`)
    }
    return downloadOf(url, answer, maxBytes)
  },
})
