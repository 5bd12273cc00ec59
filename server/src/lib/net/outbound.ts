/**
 * All outgoing requests that users cause (webhooks, git hosts, registries, OIDC) go through here. A name is resolved
 * once, all of its addresses must be allowed, and the connection goes to the checked address, so nothing can be swapped
 * in between. No redirects, no proxies, limits on time and bytes. Keeps no state except connections to checked
 * addresses.
 */
import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { buildConnector, Client } from 'undici'
import { untilAborted } from '../concurrency/waiting.ts'
import {
  type Address,
  type AllowList,
  canonicalHost,
  formatAddress,
  type Kept,
  type OutboundTarget,
  parseAddress,
  parseAllowList,
  parseUrl,
  refuseAddress,
  refusePort,
  splitHostPort,
  targetOf,
} from './address-policy.ts'
import { createEngineBridges, type Interfaces } from './engine-bridges.ts'
import { createKeptConnections, type KeptConnections } from './kept-connections.ts'
import { createResolve, type Resolve } from './name-lookup.ts'
import {
  explainFailure,
  OutboundFailed,
  OutboundRefused,
  type Phase,
  type Progress,
  tooLate,
} from './outbound-errors.ts'
import { joinHeaders, type OutboundStream, openStream, type StreamLimits } from './outbound-stream.ts'

export { OutboundFailed, OutboundRefused, type OutboundStream, type Phase, type Resolve }

interface CheckedAddress {
  address: string
  family: 4 | 6
}

export interface OutboundRequest {
  method: string
  url: string | URL
  headers?: Record<string, string>
  body?: string | Buffer
  /** For the name, the connection and TLS together. Default 5000. */
  connectTimeoutMs?: number
  /** From the name lookup to the last byte. Default 15000. */
  totalTimeoutMs?: number
  /** Maximum bytes to read; the rest is dropped and the connection closed. Default 64 Ki. */
  maxResponseBytes?: number
  signal?: AbortSignal
  /** Further trusted certificate authorities, PEM. */
  ca?: string
  /**
   * Keeps the connection a few seconds for the next request to the same origin and checked address. A request is sent
   * again if a reused connection breaks before the response: only for requests that may arrive twice.
   */
  keepAlive?: boolean
}

export interface OutboundResponse {
  status: number
  /** Lower-case names; several values of one name are joined by `, `. */
  headers: Record<string, string>
  body: string
  truncated: boolean
}

/** For long bodies: no overall deadline, only one for silence. */
export interface StreamRequest extends StreamLimits {
  method: string
  url: string | URL
  headers?: Record<string, string>
  /** A streamed body ends with the request; its length is not sent, unless a header contains it. */
  body?: Buffer | Readable
  connectTimeoutMs?: number
  signal?: AbortSignal
}

export interface Outbound {
  /** The address to connect to. Rejects with `OutboundRefused`, or `OutboundFailed` (`unresolved`). */
  check(url: URL): Promise<CheckedAddress>
  /** Checks the syntax, and the address if the host is one: throws `OutboundRefused`. Resolves no names. */
  checkSyntax(url: string): URL
  /** For creation: like `checkSyntax` and `check`, but a name without an address passes. */
  checkTarget(url: string): Promise<URL>
  /** As `check`, for an engine or an SSH server, which may be at a port of theirs, instead of a web server. */
  checkMachine(host: string, port: number): Promise<CheckedAddress>
  /** Every address that a name has now, whether or not the policy lets anything connect to it. Rejects as `check`. */
  addressesOf(host: string): Promise<string[]>
  /** Any status is a result, 3xx too. Rejects with `OutboundRefused` or `OutboundFailed`. */
  request(request: OutboundRequest): Promise<OutboundResponse>
  /** The same checks; the body is streamed, and fails with `OutboundFailed`. Aborted by its signal. */
  open(request: StreamRequest): Promise<OutboundStream>
}

interface Policy {
  allow: AllowList
  own: { host: string; port: number | null }[]
  resolve: Resolve
  kept: KeptConnections
  isContainer(address: Address): boolean
}

const lookUpTimeoutMs = 5000

const resolveAll = async (policy: Policy, host: string): Promise<Address[]> => {
  const literal = parseAddress(host)
  if (literal !== undefined) return [literal]
  let found: readonly { address: string }[]
  try {
    found = await policy.resolve(host)
  } catch (error) {
    throw new OutboundFailed('unresolved', 'the host name could not be resolved', error, 'resolve')
  }
  const addresses = found.map(({ address }) => parseAddress(address)).filter((address) => address !== undefined)
  if (addresses.length === 0)
    throw new OutboundFailed('unresolved', 'the host name has no address', undefined, 'resolve')
  return addresses
}

/** The addresses of parts of this server that the target's port could mean. */
const ownAddresses = async (policy: Policy, port: number): Promise<Set<string>> => {
  const near = policy.own.filter((part) => part.port === null || part.port === port)
  const all = await Promise.all(near.map(({ host }) => resolveAll(policy, host).catch(() => [])))
  return new Set(all.flat().map(formatAddress))
}

const refuse = (reason: string | null): void => {
  if (reason !== null) throw new OutboundRefused(reason)
}

const keptOf = ({ isContainer }: Policy, own: ReadonlySet<string>, address: Address): Kept =>
  own.has(formatAddress(address)) ? 'own' : isContainer(address) ? 'container' : null

const machinePorts = new Set([22, 2375, 2376])

const checkPlace = async (policy: Policy, target: OutboundTarget, isMachine = false): Promise<CheckedAddress> => {
  const addresses = await resolveAll(policy, target.host)
  const own = await ownAddresses(policy, target.port)
  for (const address of addresses) {
    refuse(refuseAddress(address, target, policy.allow, keptOf(policy, own, address)))
    if (!isMachine || !machinePorts.has(target.port)) refuse(refusePort(target, policy.allow, address))
  }
  const first = addresses[0]!
  return { address: formatAddress(first), family: first.family }
}

const checkSyntax = (policy: Policy, text: string): URL => {
  const url = parseUrl(text)
  if (typeof url === 'string') throw new OutboundRefused(url)
  const target = targetOf(url)
  const literal = parseAddress(target.host)
  if (literal !== undefined) {
    refuse(refuseAddress(literal, target, policy.allow))
    refuse(refusePort(target, policy.allow, literal))
  }
  return url
}

const checkTarget = async (policy: Policy, text: string): Promise<URL> => {
  const url = checkSyntax(policy, text)
  const target = targetOf(url)
  try {
    await checkPlace(policy, target)
  } catch (error) {
    // An installation without a resolver must be configurable; the check before each request decides.
    if (!(error instanceof OutboundFailed)) throw error
    refuse(refusePort(target, policy.allow))
  }
  return url
}

const addressesOf = async (policy: Policy, host: string): Promise<string[]> => {
  const signal = AbortSignal.timeout(lookUpTimeoutMs)
  const found = await untilAborted(resolveAll(policy, canonicalHost(host) ?? host), signal).catch((error: unknown) => {
    throw signal.aborted ? tooLate({ phase: 'resolve' }) : error
  })
  return found.map(formatAddress)
}

interface Connecting {
  pin: CheckedAddress
  url: URL
  connectTimeoutMs: number
  ca?: string | undefined
  progress: Progress
}

/** Connects to the pinned address whatever undici requests; the name and certificate are those of the URL. */
const pinned = ({ pin, url, connectTimeoutMs, ca, progress }: Connecting): buildConnector.connector => {
  const connect = buildConnector({ timeout: connectTimeoutMs, allowH2: false, ...(ca === undefined ? {} : { ca }) })
  const name = parseAddress(url.hostname) === undefined && url.protocol === 'https:' ? url.hostname : undefined
  return (options, callback) => {
    progress.phase = 'connect'
    const connecting = connect({ ...options, hostname: pin.address, servername: name }, (...[error, socket]) => {
      if (error !== null) return callback(error, null)
      progress.phase = 'answer'
      const remote = parseAddress(socket.remoteAddress ?? '')
      if (remote !== undefined && formatAddress(remote) === pin.address) return callback(null, socket)
      socket.destroy()
      callback(new OutboundRefused('the connection reached a different address than the one checked'), null)
    })
    if (url.protocol === 'https:')
      (connecting as unknown as Socket).once('connect', () => {
        if (progress.phase === 'connect') progress.phase = 'tls'
      })
  }
}

const readCapped = async (body: AsyncIterable<Buffer>, cap: number): Promise<{ body: string; truncated: boolean }> => {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    size += chunk.length
    if (size > cap) break
  }
  return { body: Buffer.concat(chunks).subarray(0, cap).toString('utf8'), truncated: size > cap }
}

/** One exchange, as far as it is known before its connection. */
interface Sending {
  request: OutboundRequest
  url: URL
  pin: CheckedAddress
  signal: AbortSignal
  progress: Progress
}

const openClient = ({ request, url, pin, progress }: Sending): Client => {
  const totalMs = request.totalTimeoutMs ?? 15_000
  const { connectTimeoutMs = 5000, ca } = request
  return new Client(url.origin, {
    connect: pinned({ pin, url, connectTimeoutMs, ca, progress }),
    headersTimeout: totalMs,
    bodyTimeout: totalMs,
    pipelining: request.keepAlive ? 1 : 0,
  })
}

/** Sends and reads; gives the client to `keep` if it can be reused, else closes it. */
const exchange = async (
  { request, url, signal, progress }: Sending,
  client: Client,
  keep: ((client: Client) => void) | null,
): Promise<OutboundResponse> => {
  let again = false
  try {
    const { statusCode, headers, body } = await client.request({
      method: request.method as 'GET',
      path: url.pathname + url.search,
      headers: request.headers,
      body: request.body,
      signal,
    })
    progress.phase = 'body'
    const read = await readCapped(body, request.maxResponseBytes ?? 65_536)
    again = keep !== null && !read.truncated
    return { status: statusCode, headers: joinHeaders(headers), ...read }
  } finally {
    if (again) keep?.(client)
    else client.destroy().catch(() => {})
  }
}

const brokeBeforeAnswer = (error: unknown): boolean =>
  /^(UND_ERR_SOCKET|ECONNRESET|EPIPE)$/.test(String((error as { code?: unknown }).code))

const send = async ({ kept }: Policy, sending: Sending): Promise<OutboundResponse> => {
  const { request, url, pin, signal, progress } = sending
  if (!request.keepAlive) return exchange(sending, openClient(sending), null)
  const place = JSON.stringify([url.origin, pin.address, request.connectTimeoutMs, request.totalTimeoutMs, request.ca])
  const keep = (client: Client) => kept.give(place, client)
  const known = kept.take(place)
  if (known !== undefined) progress.phase = 'answer'
  try {
    return await exchange(sending, known ?? openClient(sending), keep)
  } catch (error) {
    if (known === undefined || signal.aborted || !brokeBeforeAnswer(error)) throw error
    return exchange(sending, openClient(sending), keep)
  }
}

const timeLimits = (request: OutboundRequest, progress: Progress) => {
  const control = new AbortController()
  const onAbort = () => control.abort(new OutboundFailed('aborted', 'the request was aborted', request.signal?.reason))
  if (request.signal?.aborted) onAbort()
  request.signal?.addEventListener('abort', onAbort, { once: true })
  const late = () => control.abort(tooLate(progress))
  const total = setTimeout(late, request.totalTimeoutMs ?? 15_000)
  const resolving = setTimeout(late, request.connectTimeoutMs ?? 5000)
  return {
    signal: control.signal,
    resolved: () => clearTimeout(resolving),
    [Symbol.dispose]() {
      clearTimeout(total)
      clearTimeout(resolving)
      request.signal?.removeEventListener('abort', onAbort)
    },
  }
}

const request = async (policy: Policy, request: OutboundRequest): Promise<OutboundResponse> => {
  const url = checkSyntax(policy, String(request.url))
  const progress: Progress = { phase: 'resolve' }
  using limits = timeLimits(request, progress)
  const { signal } = limits
  try {
    const pin = await untilAborted(checkPlace(policy, targetOf(url)), signal)
    limits.resolved()
    progress.phase = 'connect'
    return await untilAborted(send(policy, { request, url, pin, signal, progress }), signal)
  } catch (error) {
    throw signal.aborted ? signal.reason : explainFailure(error, progress)
  }
}

/** The checked address, looked up within `ms` unless `signal` aborts first. */
const resolveWithin = async (policy: Policy, url: URL, ms: number, signal?: AbortSignal): Promise<CheckedAddress> => {
  const late = AbortSignal.timeout(ms)
  const both = signal === undefined ? late : AbortSignal.any([late, signal])
  try {
    return await untilAborted(checkPlace(policy, targetOf(url)), both)
  } catch (error) {
    throw late.aborted ? tooLate({ phase: 'resolve' }, error) : error
  }
}

const open = async (policy: Policy, request: StreamRequest): Promise<OutboundStream> => {
  const url = checkSyntax(policy, String(request.url))
  const { connectTimeoutMs = 5000, silenceMs = 30_000, signal } = request
  const progress: Progress = { phase: 'resolve' }
  try {
    const pin = await resolveWithin(policy, url, connectTimeoutMs, signal)
    const connect = pinned({ pin, url, connectTimeoutMs, progress })
    const client = new Client(url.origin, { connect, headersTimeout: silenceMs, bodyTimeout: silenceMs, pipelining: 0 })
    progress.phase = 'connect'
    return await openStream(client, { ...request, url }, request, progress)
  } catch (error) {
    if (signal?.aborted) throw new OutboundFailed('aborted', 'the request was aborted', signal.reason)
    throw explainFailure(error, progress)
  }
}

/**
 * `allow`: the entries of SLIPWAY_OUTBOUND_ALLOW. `own`: `host:port` or `host` of this server's own parts (database,
 * engine API), refused even if their network is allowed. Throws on an invalid entry.
 */
export const createOutbound = (options: {
  allow: readonly string[]
  own?: readonly string[]
  resolve?: Resolve
  interfaces?: Interfaces
}): Outbound => {
  const own = (options.own ?? []).map(splitHostPort).filter((part) => part !== undefined)
  const resolve = options.resolve ?? createResolve()
  const allow = parseAllowList(options.allow)
  const isContainer = createEngineBridges(options.interfaces)
  const policy: Policy = { allow, own, resolve, kept: createKeptConnections(), isContainer }
  return {
    check: async (url) => checkPlace(policy, targetOf(checkSyntax(policy, url.href))),
    checkSyntax: (url) => checkSyntax(policy, url),
    checkMachine: (host, port) => checkPlace(policy, { host: canonicalHost(host) ?? host, port }, true),
    checkTarget: (url) => checkTarget(policy, url),
    addressesOf: (host) => addressesOf(policy, host),
    request: (wanted) => request(policy, wanted),
    open: (wanted) => open(policy, wanted),
  }
}
