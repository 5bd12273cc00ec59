/**
 * Lists the branches and tags of a repository with our own client of git's protocol: version 2, which returns only what
 * was requested, or the full list if a host is older. No process is started, and the host's response reaches no
 * program. The response is streamed, and only what was requested is kept.
 * https://git-scm.com/docs/protocol-v2, https://git-scm.com/docs/http-protocol
 */
import { OutboundFailed, type OutboundStream, type StreamRequest } from '../../lib/net/outbound.ts'
import { type AskedHost, explainOutbound, explainStatus, explainWords, notGit, refused, tooSlow } from './errors.ts'
import { isCommitId } from './names.ts'

export type OpenUrl = (request: StreamRequest) => Promise<OutboundStream>

export interface RefsRequest {
  url: string
  headers: Record<string, string>
  /** A full name, or a prefix that ends in `/`. */
  names: readonly string[]
  timeoutMs: number
  signal: AbortSignal
}

/** Name → commit id; an annotated tag counts as its commit. */
export type Refs = Map<string, string>

const maxBytes = 1 << 24
/** Listing references is quick work for a host: one that sends nothing for so long is not working. */
const silenceMs = 20_000
const maxKnown = 1000

/** Null for a separator such as `0000`. */
type Line = string | null

/** The lines of each chunk. Fails on an invalid length. */
async function* linesOf(body: AsyncIterable<Buffer>): AsyncGenerator<Line[]> {
  let rest: Buffer = Buffer.alloc(0)
  for await (const chunk of body) {
    rest = Buffer.concat([rest, chunk])
    const lines: Line[] = []
    let at = 0
    while (rest.length - at >= 4) {
      const digits = rest.toString('latin1', at, at + 4)
      const length = /^[0-9a-f]{4}$/i.test(digits) ? Number.parseInt(digits, 16) : 3
      if (length === 3) throw new NotGit()
      if (rest.length - at < length) break
      lines.push(length < 4 ? null : rest.toString('utf8', at + 4, at + length).replace(/\n$/, ''))
      at += Math.max(4, length)
    }
    rest = rest.subarray(at)
    yield lines
  }
  if (rest.length > 0) throw new NotGit()
}

/** Not a response of git's protocol, or a refusal in it, with the message `words`. */
class NotGit extends Error {
  readonly words: string

  constructor(words = '') {
    super('not a valid response of a git server')
    this.words = words
  }
}

const frame = (text: string): string => (text.length + 4).toString(16).padStart(4, '0') + text

/** `format`: the format of the ids, if not SHA-1. */
const command = (names: readonly string[], format: string): Buffer =>
  Buffer.from(
    [
      frame('command=ls-refs\n'),
      ...(format === 'sha1' ? [] : [frame(`object-format=${format}\n`)]),
      '0001',
      frame('peel\n'),
      ...names.map((name) => frame(`ref-prefix ${Buffer.from(name).toString('latin1')}\n`)),
      '0000',
    ].join(''),
    'latin1',
  )

type IsAsked = (ref: string) => boolean

/** Whether a reference is among the requested names: a host can list many more, and many can be requested. */
export const askedFor = (names: readonly string[]): IsAsked => {
  const whole = new Set(names)
  const beginnings = names.filter((name) => name.endsWith('/'))
  return (ref) => whole.has(ref) || beginnings.some((beginning) => ref.startsWith(beginning))
}

/**
 * `<id> <name>`, then the capabilities (old) or `peeled:<id>` (new); an old host lists what a tag names as `<name>^{}`.
 */
const keep = (refs: Refs, isAsked: IsAsked, line: string): void => {
  const [, id = '', name = '', more = ''] = /^([0-9a-f]+) ([^ \0]+)(.*)$/s.exec(line) ?? []
  const ref = name.replace(/\^\{\}$/, '')
  const commitId = / peeled:([0-9a-f]+)/.exec(more)?.[1] ?? id
  if (isCommitId(commitId) && isAsked(ref)) refs.set(ref, commitId)
}

const readRefs = async (stream: OutboundStream, names: readonly string[]): Promise<Refs> => {
  const refs: Refs = new Map()
  const isAsked = askedFor(names)
  for await (const lines of linesOf(stream.body)) for (const line of lines) if (line !== null) keep(refs, isAsked, line)
  return refs
}

/** A host's advertisement: the format of its ids in version 2, else all its references. */
type Greeting = { format: string } | { refs: Refs }

const readGreeting = async (stream: OutboundStream, names: readonly string[]): Promise<Greeting> => {
  const refs: Refs = new Map()
  const isAsked = askedFor(names)
  let greeted = false
  let format: string | null = null
  for await (const lines of linesOf(stream.body)) {
    for (const line of lines) {
      if (line === null || line.startsWith('# service=')) continue
      if (line.startsWith('ERR ')) throw new NotGit(line)
      if (!greeted && line === 'version 2') format = 'sha1'
      if (format === null) keep(refs, isAsked, line)
      else if (line.startsWith('object-format=')) format = line.slice('object-format='.length)
      greeted = true
    }
  }
  if (!greeted) throw new NotGit()
  return format === null ? { refs } : { format: /^[a-z0-9]{1,20}$/.test(format) ? format : 'sha1' }
}

const isOf = ({ status, headers }: OutboundStream, kind: 'advertisement' | 'result'): boolean =>
  status === 200 && headers['content-type']?.split(';')[0]?.trim() === `application/x-git-upload-pack-${kind}`

const refusalOf = (asked: AskedHost, { status, headers }: OutboundStream): Error =>
  status === 200 ? new NotGit() : explainStatus(asked, status, headers)

export const createRefs = (open: OpenUrl) => {
  /** Repositories whose host uses version 2: it is used at once the next time. */
  const formats = new Map<string, string>()

  const learn = (url: string, format: string): void => {
    formats.delete(url)
    formats.set(url, format)
    if (formats.size > maxKnown) formats.delete(formats.keys().next().value!)
  }

  const ask = async (request: RefsRequest, path: string, more: Partial<StreamRequest>): Promise<OutboundStream> =>
    open({
      method: 'GET',
      url: request.url.replace(/\/$/, '') + path,
      maxBytes,
      connectTimeoutMs: Math.min(request.timeoutMs, 10_000),
      silenceMs,
      signal: request.signal,
      ...more,
      headers: { ...request.headers, ...more.headers, 'git-protocol': 'version=2', 'user-agent': 'git/2 slipway' },
    })

  /** The references, or the response if it is not that of version 2. */
  const askNew = async (request: RefsRequest, format: string): Promise<Refs | OutboundStream> => {
    const headers = {
      'content-type': 'application/x-git-upload-pack-request',
      accept: 'application/x-git-upload-pack-result',
    }
    const body = command(request.names, format)
    const stream = await ask(request, '/git-upload-pack', { method: 'POST', headers, body })
    if (isOf(stream, 'result')) return readRefs(stream, request.names)
    stream.body.destroy()
    return stream
  }

  const greet = async (request: RefsRequest, asked: AskedHost): Promise<Greeting> => {
    const stream = await ask(request, '/info/refs?service=git-upload-pack', {})
    if (isOf(stream, 'advertisement')) return readGreeting(stream, request.names)
    stream.body.destroy()
    throw refusalOf(asked, stream)
  }

  const list = async (request: RefsRequest, asked: AskedHost): Promise<Refs> => {
    const known = formats.get(request.url)
    const refs = known === undefined ? null : await askNew(request, known)
    if (refs instanceof Map) return refs
    formats.delete(request.url)
    const greeting = await greet(request, asked)
    if ('refs' in greeting) return greeting.refs
    const listed = await askNew(request, greeting.format)
    if (!(listed instanceof Map)) throw refusalOf(asked, listed)
    learn(request.url, greeting.format)
    return listed
  }

  const explain = (error: unknown, asked: AskedHost): unknown => {
    if (error instanceof NotGit) return error.words === '' ? notGit(asked) : explainWords(asked, error.words)
    if (error instanceof OutboundFailed && error.code === 'too_large')
      return refused('The repository has too many branches and tags: at most 16 MB of names are read.', error)
    return explainOutbound(error, asked)
  }

  /** Rejects with a `DeploymentError`, or with the reason of the request's signal. */
  return async (request: RefsRequest): Promise<Refs> => {
    const { hostname: host } = new URL(request.url)
    const asked = { host, hasToken: request.headers.authorization !== undefined }
    const late = AbortSignal.timeout(request.timeoutMs)
    try {
      return await list({ ...request, signal: AbortSignal.any([request.signal, late]) }, asked)
    } catch (error) {
      request.signal.throwIfAborted()
      throw late.aborted ? tooSlow(host, request.timeoutMs, error) : explain(error, asked)
    }
  }
}
