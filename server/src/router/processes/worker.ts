/**
 * One of several processes of a router, which share its ports: it forwards the connections that it accepts. The first
 * process sends it all its data, and replaces it if it dies. It ends with the first process.
 */
import type { Server } from 'node:net'
import { createServing, limitLines, type Serving } from '../serving.ts'
import { replaceService } from '../table/table.ts'
import { sharedTlsStore, type TlsStore } from '../tls/tls-store.ts'
import { readIdle } from '../traffic/idle.ts'
import type { Beginning, Notice, Numbered, Order } from './messages.ts'

const pulseMs = 1000

interface Running extends Serving {
  tlsStore: TlsStore
  ticketKeys: Buffer
}

const tell = (notice: Notice): void => {
  if (process.connected) process.send?.(notice)
}

const tellWanted = (serviceId: string): void => tell({ kind: 'wanted', serviceId })

const begin = ({ routes, trustedProxies, tls }: Beginning): Running => {
  const tlsStore = sharedTlsStore(tls?.folder ?? '', tls?.entries ?? [])
  const secure =
    tls === null ? undefined : { tlsStore, port: tls.port, hstsSeconds: tls.hstsSeconds, ownDomain: tls.ownDomain }
  const serving = createServing({
    ...{ routes, trustedProxies, tlsStore, secure, report: limitLines() },
    // The first process has done both.
    save: async () => {},
    ports: { open: async () => {}, retain: () => {} },
  })
  return { ...serving, tlsStore, ticketKeys: Buffer.from(tls?.ticketKeys ?? '', 'base64') }
}

const setRoutes = async ({ table }: Running, services: Extract<Order, { kind: 'routes' }>['services']) => {
  await Promise.all(services.map(([id, own]) => table.change((all) => replaceService(all, id, own))))
}

const drain = async ({ upstreams }: Running, { targets, timeoutMs }: Extract<Order, { kind: 'drain' }>) => {
  const end = new AbortController()
  const timer = setTimeout(() => end.abort(), timeoutMs)
  const left = await upstreams.drain(targets, end.signal)
  clearTimeout(timer)
  return left
}

const endWhenEmpty = ({ front, tls }: Pick<Running, 'front' | 'tls'>): void => {
  if (front.clients() === 0 && tls.pending() === 0) process.exit(0)
  setTimeout(() => endWhenEmpty({ front, tls }), pulseMs)
}

const leave = (running: Running): void => {
  running.front.leave()
  running.tls.close()
  endWhenEmpty(running)
}

const close = ({ front, tls, parked, state }: Running, graceMs: number): void => {
  tls.close()
  parked.end()
  void front.close()
  front.finish(graceMs).then(() => {
    tls.end()
    tell({ kind: 'pulse', pulse: { ...state(), busy: 0 } })
    // The last messages are sent first.
    setImmediate(() => process.exit(0))
  })
}

let running: Running | undefined
let stopTelling = (): void => {}

const start = (beginning: Beginning): void => {
  running = begin(beginning)
  const { parked, state, busy } = running
  stopTelling = parked.listen(tellWanted)
  const pulse = (): void => {
    tell({ kind: 'pulse', pulse: { ...state(), busy: busy() } })
    setTimeout(pulse, pulseMs)
  }
  setTimeout(pulse, pulseMs)
}

const obey = async (own: Running, order: Order, listening: Server | undefined): Promise<unknown> => {
  switch (order.kind) {
    case 'accept':
      // The router has stopped meanwhile.
      if (listening === undefined) process.exit(0)
      if (order.over === 'http') await own.front.share(listening)
      else await own.tls.share(listening, own.ticketKeys)
      return
    case 'routes':
      return setRoutes(own, order.services)
    case 'tls':
      return own.tlsStore.take(order.host, order.entry)
    case 'share':
      own.share.processes = order.processes
      return
    case 'idle':
      return readIdle(own.table.routes(), own.upstreams, true)
    case 'state':
      return own.state()
    case 'wanted':
      stopTelling()
      stopTelling = own.parked.listen(tellWanted)
      return
    case 'shed':
      own.traffic.shed = Math.max(own.traffic.shed, order.connections)
      return
    case 'leave':
      return leave(own)
    case 'close':
      return close(own, order.graceMs)
    default:
      return
  }
}

const answer = ({ id }: Numbered, value?: unknown): void => {
  tell({ kind: 'answer', id, ...(value === undefined ? {} : { value }) })
}

const receive = async (message: Numbered, listening: Server | undefined): Promise<void> => {
  const { order } = message
  if (order.kind === 'begin') start(order.beginning)
  // It waits long, and later orders must not wait for it.
  else if (order.kind === 'drain') return void drain(running!, order).then((left) => answer(message, left))
  else return answer(message, await obey(running!, order, listening))
  answer(message)
}

/** In the order in which they were sent. */
let turn: Promise<void> = Promise.resolve()
process.on('message', (message: Numbered, handle) => {
  turn = turn.then(() => receive(message, handle as Server | undefined))
})
// It would get no more changes.
process.on('disconnect', () => process.exit(1))
tell({ kind: 'ready' })
