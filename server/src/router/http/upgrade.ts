/** Websockets and other upgrades: the handshake is HTTP, the rest a byte tunnel between its two ends. */
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Rules } from '../access/rules.ts'
import { heldBytes } from '../hold/holds.ts'
import { join } from '../ports/join.ts'
import type { HostEntry } from '../table/live-table.ts'
import { rewritten } from '../table/paths.ts'
import { absence } from '../table/presence.ts'
import { attemptPausesMs, connectTimeoutMs, findServing, type Traffic } from '../table/traffic.ts'
import { markSuspect, type Upstream } from '../table/upstreams.ts'
import { judgeTls } from '../tls/guard.ts'
import { admit, dressedFor, pickFor } from './admission.ts'
import { headersForClient, headersForTarget, isSecure } from './headers.ts'
import { type PageName, rawHead, renderPage } from './pages.ts'
import { hasBody, readRequest } from './request-check.ts'

const halfClosedMs = 30_000

const refuse = (
  client: Duplex,
  req: IncomingMessage,
  name: PageName,
  host: string,
  added: readonly string[] = [],
): void => {
  const { status, headers, body } = renderPage(name, host, req.headers.accept)
  client.end(rawHead(status, '', [...headers, ...added, 'connection', 'close']) + body)
}

const openTunnel = (traffic: Traffic, upstream: Upstream, client: Socket, far: Socket): void => {
  const { upgrades } = traffic.counts
  upgrades.total++
  upgrades.open++
  upstream.upgrades++
  const onEnd = (): void => {
    upgrades.open--
    upstream.upgrades--
    upstream.usedAt = performance.now()
  }
  join(client, far, { halfClosedMs, onEnd })
}

const passSwitch = (headers: string[], answer: IncomingMessage, client: Socket): void => {
  headers.push('connection', 'upgrade', 'upgrade', answer.headers.upgrade ?? '')
  client.write(rawHead(101, 'Switching Protocols', headers), 'latin1')
}

/** The target responded, but did not switch: its response is forwarded and the connection ends with it. */
const passRefusal = (headers: string[], answer: IncomingMessage, client: Socket): void => {
  client.write(
    rawHead(answer.statusCode ?? 502, answer.statusMessage ?? '', [...headers, 'connection', 'close']),
    'latin1',
  )
  answer.pipe(client)
  answer.on('error', () => client.destroy())
}

const openRequest = (
  traffic: Traffic,
  req: IncomingMessage,
  { route, rules }: HostEntry,
  asked: string,
  upstream: Upstream,
): ClientRequest => {
  const headers = headersForTarget(req, traffic.isTrusted)
  headers.push('connection', 'upgrade', 'upgrade', req.headers.upgrade ?? '')
  const { host, port } = upstream.target
  const path = rewritten(asked, route)
  const timeout = rules.readMs === 0 ? undefined : rules.readMs
  const out = request({ host, port, path, method: req.method, headers, agent: false, timeout })
  const tooLate = setTimeout(() => out.destroy(new Error('no connection in time')), connectTimeoutMs)
  out.on('timeout', () => out.destroy(new Error('no answer in time')))
  out.on('socket', (socket) => socket.once('connect', () => clearTimeout(tooLate)))
  out.on('close', () => clearTimeout(tooLate))
  return out
}

interface Handshake {
  traffic: Traffic
  req: IncomingMessage
  client: Socket
  head: Buffer
  host: string
  path: string
  attempts: number
  /** Whoever passed these has not passed others. */
  admittedBy: Rules | undefined
}

const onFailure = (handshake: Handshake, upstream: Upstream, isConnected: boolean, error: Error): void => {
  const { traffic, req, client, host } = handshake
  if (client.destroyed) return
  if (!isConnected) markSuspect(upstream)
  const pauseMs = attemptPausesMs[handshake.attempts - 1]
  if (isConnected || pauseMs === undefined) {
    traffic.counts.failures++
    traffic.report(`${host}: upgrade at ${upstream.key} failed: ${error.message}`)
    refuse(client, req, 'unreachable', host)
    return
  }
  traffic.counts.retries++
  setTimeout(shake, pauseMs, handshake)
}

const shake = (handshake: Handshake) => {
  const { traffic, req, client, head, host, path } = handshake
  if (client.destroyed) return
  const entry = findServing(traffic, host, path, 'HTTP')
  if (typeof entry === 'string') return refuse(client, req, entry, host)
  if (handshake.admittedBy !== entry.rules) return void enter(handshake, entry.rules)
  if (entry.route.state === 'asleep') return hold(handshake, entry)
  const upstream = pickFor(entry, req.headers.cookie, null)
  if (upstream === undefined) return refuse(client, req, 'idle', host)
  handshake.attempts++
  if (upstream.isAbsent) return onFailure(handshake, upstream, false, absence())
  const out = openRequest(traffic, req, entry, path, upstream)
  const abandon = (): void => void out.destroy()
  client.once('close', abandon)
  let isConnected = false
  let isUnderWay = true
  traffic.upstreams.begin(upstream)
  const settle = (): void => {
    if (!isUnderWay) return
    isUnderWay = false
    client.off('close', abandon)
    traffic.upstreams.end(upstream)
  }
  const dress = ({ rawHeaders, headers }: IncomingMessage): string[] => {
    const passed = headersForClient(rawHeaders, headers.connection)
    return entry.rules.isPlain ? passed : dressedFor(entry, passed, req, upstream, isSecure(req, traffic.isTrusted))
  }
  out.on('socket', (socket) => socket.once('connect', () => (isConnected = true)))
  out.on('upgrade', (answer, far: Socket, farHead) => {
    settle()
    if (client.destroyed) return far.destroy()
    passSwitch(dress(answer), answer, client)
    if (farHead.length > 0) client.write(farHead)
    if (head.length > 0) far.write(head)
    openTunnel(traffic, upstream, client, far)
  })
  out.on('response', (answer) => {
    answer.once('close', settle)
    passRefusal(dress(answer), answer, client)
  })
  out.on('error', (error) => {
    settle()
    onFailure(handshake, upstream, isConnected, error)
  })
  out.end()
}

/** It waits until its service runs. That its client leaves is noticed only by who reads; nothing is taken meanwhile. */
const hold = (handshake: Handshake, { route }: HostEntry) => {
  const { traffic, req, client, host } = handshake
  const look = (): void => void client.read(0)
  const leave = (): void => {
    unwatch()
    place?.leave()
    client.destroy()
  }
  const unwatch = (): void => void client.off('readable', look).off('end', leave).off('close', leave)
  const goOn = (then: () => void) => (): void => {
    unwatch()
    place?.leave()
    then()
  }
  const place = traffic.holds.take(route.serviceId, heldBytes(req.rawHeaders, '0'), {
    resume: goOn(() => shake(handshake)),
    refuse: (page) => goOn(() => refuse(client, req, page, host))(),
  })
  if (place === null) return refuse(client, req, 'crowded', host)
  client.on('readable', look).once('end', leave).once('close', leave)
}

/** As for every other request: nothing is forwarded before it may pass. */
const enter = async (handshake: Handshake, rules: Rules): Promise<void> => {
  const { traffic, req, client, host } = handshake
  const asker = { peer: client.remoteAddress, method: req.method, headers: req.headers }
  const admission = rules.isPlain ? 'pass' : await admit(rules, asker, traffic.isTrusted)
  handshake.admittedBy = rules
  if (admission === 'pass') shake(handshake)
  else refuse(client, req, admission === 'preflight' ? 'malformed' : admission, host)
}

/** Serves one upgrade request; `onEnd` is called when its connection is gone. */
export const forwardUpgrade = (
  traffic: Traffic,
  req: IncomingMessage,
  client: Socket,
  head: Buffer,
  onEnd: () => void,
) => {
  client.on('error', () => client.destroy())
  client.once('close', onEnd)
  client.setTimeout(0)
  const wanted = readRequest(req)
  if (typeof wanted === 'string') return refuse(client, req, wanted, '')
  if (hasBody(req)) return refuse(client, req, 'malformed', wanted.host)
  const verdict = judgeTls(traffic, { ...wanted, headers: req.headers, socket: client })
  if (verdict?.kind === 'misdirected') return refuse(client, req, 'misdirected', wanted.host)
  if (verdict?.kind === 'redirect') return refuse(client, req, 'moved', wanted.host, ['location', verdict.to])
  shake({ traffic, req, client, head, ...wanted, attempts: 0, admittedBy: undefined })
}

export const refuseConnect = (req: IncomingMessage, client: Duplex): void => {
  client.on('error', () => client.destroy())
  refuse(client, req, 'method', '')
}
