/** Websockets and other upgrades: the handshake is HTTP, the rest a byte tunnel between its two ends. */
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import type { Socket } from 'node:net'
import type { Rules } from '../access/rules.ts'
import { forwardedHeaders, headersForClient, isSecure, passedToTarget } from '../exchange/headers.ts'
import { type PageName, rawHead, renderPage } from '../exchange/pages.ts'
import type { Http1Client } from '../http1/client.ts'
import { parkedBytes, type Waiting } from '../parked/parked.ts'
import { join } from '../ports/join.ts'
import { partyOf } from '../router.ts'
import { rewritten } from '../table/paths.ts'
import type { HostEntry } from '../traffic/live-table.ts'
import { absence } from '../traffic/presence.ts'
import { attemptPausesMs, connectTimeoutMs, findServing, type Traffic } from '../traffic/traffic.ts'
import { markSuspect, type Upstream } from '../traffic/upstreams.ts'
import { admit, dressedFor, pickFor } from './admission.ts'
import { readRequest } from './request-check.ts'
import { judgeTls } from './tls-guard.ts'

const halfClosedMs = 30_000
const lingerMs = 2_000

/** It is answered: the rest of its bytes is read, so that it can read the answer, but not for long. */
const linger = (client: Socket): void => {
  const timer = setTimeout(() => client.destroy(), lingerMs)
  client.once('close', () => clearTimeout(timer)).once('end', () => client.destroySoon())
  client.resume()
}

const refuse = (
  { socket, headers: { accept }, host }: Http1Client,
  name: PageName,
  added: readonly string[] = [],
  why?: string,
) => {
  const { status, headers, body } = renderPage(name, host, accept, why)
  socket.end(rawHead(status, '', [...headers, ...added, 'connection', 'close']) + body)
  linger(socket)
}

/** `ended`: called when the client's side has closed. */
const openTunnel = ({ counts: { upgrades } }: Traffic, client: Socket, far: Socket, ended: () => void): void => {
  upgrades.total++
  upgrades.open++
  const onEnd = (): void => {
    upgrades.open--
    ended()
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
  client.once('finish', () => linger(client))
  answer.on('error', () => client.destroy())
}

const openRequest = (
  traffic: Traffic,
  req: Http1Client,
  { route, rules }: HostEntry,
  upstream: Upstream,
): ClientRequest => {
  const { flat, connection, upgrade = '', host: asked = '' } = req.head
  const passed = passedToTarget(flat, connection)
  const headers = [
    ...passed,
    ...forwardedHeaders(req, asked, traffic.isTrusted),
    ...['connection', 'upgrade', 'upgrade', upgrade],
  ]
  const { host, port } = upstream.target
  const path = rewritten(req.path, route)
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
  req: Http1Client
  client: Socket
  head: Buffer
  attempts: number
  /** Passing these rules is not passing others. */
  admittedBy: Rules | undefined
}

/** For an answer that Node cannot read. */
const faultOf = (error: NodeJS.ErrnoException): string | null => {
  if (error.code === 'HPE_HEADER_OVERFLOW') return 'its headers are too large'
  return error.code?.startsWith('HPE_') ? 'its head cannot be read' : null
}

const onFailure = (handshake: Handshake, upstream: Upstream, isConnected: boolean, error: Error): void => {
  const { traffic, req, client } = handshake
  if (client.destroyed) return
  if (!isConnected) markSuspect(upstream)
  const pauseMs = attemptPausesMs[handshake.attempts - 1]
  if (isConnected || pauseMs === undefined) {
    traffic.counts.failures++
    traffic.report(`${req.host}: upgrade at ${upstream.key} failed: ${error.message}`)
    const fault = faultOf(error)
    if (fault === null) refuse(req, 'unreachable')
    else refuse(req, 'invalid', [], fault)
    return
  }
  traffic.counts.retries++
  setTimeout(shake, pauseMs, handshake)
}

const shake = (handshake: Handshake) => {
  const { traffic, req, client, head } = handshake
  if (client.destroyed) return
  const entry = findServing(traffic, req.host, req.path, 'HTTP')
  if (typeof entry === 'string') return refuse(req, entry)
  req.belongTo(partyOf(entry.route))
  if (handshake.admittedBy !== entry.rules) return void enter(handshake, entry.rules)
  if (entry.route.state === 'asleep') return park(handshake, entry)
  const upstream = pickFor(entry, req.headers.cookie, null)
  if (upstream === undefined) return refuse(req, 'idle')
  handshake.attempts++
  if (upstream.isAbsent) return onFailure(handshake, upstream, false, absence())
  const out = openRequest(traffic, req, entry, upstream)
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
    client.off('close', abandon)
    if (client.destroyed) {
      settle()
      return far.destroy()
    }
    passSwitch(dress(answer), answer, client)
    if (farHead.length > 0) client.write(farHead)
    if (head.length > 0) far.write(head)
    // It counts as a request in progress until it ends, so that a rollout keeps its instance for the drain time.
    openTunnel(traffic, client, far, settle)
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

/** It waits until its service runs. Only reading notices that its client leaves, so the bytes are kept meanwhile. */
const park = (handshake: Handshake, { route }: HostEntry) => {
  const { traffic, req, client } = handshake
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
  const waiting: Waiting = {
    resume: goOn(() => shake(handshake)),
    refuse: (page) => goOn(() => refuse(req, page))(),
  }
  const place = traffic.parked.take(route.serviceId, parkedBytes(req.headBytes, 0), waiting, partyOf(route))
  if (place === null) return refuse(req, 'crowded')
  client.on('readable', look).once('end', leave).once('close', leave)
}

/** As for every other request: nothing is forwarded before it may pass. */
const enter = async (handshake: Handshake, rules: Rules): Promise<void> => {
  const { traffic, req } = handshake
  const admission = rules.isPlain ? 'pass' : await admit(rules, req, traffic.isTrusted)
  handshake.admittedBy = rules
  if (admission === 'pass') shake(handshake)
  else refuse(req, admission === 'preflight' ? 'malformed' : admission)
}

/** Serves one upgrade request; `head`: the bytes after it. `onEnd` is called when its connection is closed. */
export const forwardUpgrade = (traffic: Traffic, req: Http1Client, head: Buffer, onEnd: () => void) => {
  const client = req.socket
  client.on('error', () => client.destroy())
  client.once('close', onEnd)
  const wanted = readRequest(req.head)
  if (typeof wanted === 'string') return refuse(req, wanted)
  req.host = wanted.host
  req.path = wanted.path
  if (req.bodyLength !== 0) return refuse(req, 'withBody')
  const verdict = judgeTls(traffic, req)
  if (verdict?.kind === 'misdirected') return refuse(req, 'misdirected')
  if (verdict?.kind === 'unanswered') return refuse(req, 'unasked')
  if (verdict?.kind === 'redirect') return refuse(req, 'moved', ['location', verdict.to])
  shake({ traffic, req, client, head, attempts: 0, admittedBy: undefined })
}
