/** Requests and handshakes over TLS, from this process, whose CPU is not counted. */
import { once } from 'node:events'
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2'
import { Agent, request } from 'node:https'
import { connect, type TLSSocket } from 'node:tls'
import { percentile } from './measure.ts'

export interface TlsPlace {
  port: number
  host: string
  ca: string
}

const optionsOf = ({ port, host, ca }: TlsPlace) => ({ host: '127.0.0.1', port, servername: host, ca })

const askOver = async (place: TlsPlace, agent: Agent): Promise<void> => {
  const out = request({ ...optionsOf(place), agent, headers: { host: place.host } })
  out.end()
  const [answer] = await once(out, 'response')
  answer.resume()
  await once(answer, 'end')
  if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`)
}

export const openHttp2 = async (place: TlsPlace): Promise<ClientHttp2Session> => {
  const session = connectHttp2(`https://${place.host}:${place.port}`, {
    createConnection: () => connect({ ...optionsOf(place), ALPNProtocols: ['h2'] }),
  })
  await once(session, 'connect')
  return session
}

const askOverHttp2 = async (session: ClientHttp2Session): Promise<void> => {
  const stream = session.request({ ':path': '/' })
  const [headers] = await once(stream, 'response')
  stream.resume()
  await once(stream, 'close')
  if (headers[':status'] !== 200) throw new Error(`status ${headers[':status']}`)
}

const servedMs = 20_000

/** Once its certificate is served and its program answers. */
export const untilServed = async (place: TlsPlace): Promise<void> => {
  const agent = new Agent()
  for (const deadline = performance.now() + servedMs; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    const why = await askOver(place, agent).then(
      () => null,
      (error: Error) => error,
    )
    if (why === null) return
    if (performance.now() > deadline) throw why
  }
}

/** Keep-alive clients that send so many requests together. */
export const sendRequests = async (place: TlsPlace, clients: number, requests: number) => {
  const agent = new Agent({ keepAlive: true, maxSockets: clients })
  const latencies: number[] = []
  let left = requests
  const client = async (): Promise<void> => {
    while (left-- > 0) {
      const start = performance.now()
      await askOver(place, agent)
      latencies.push(performance.now() - start)
    }
  }
  const start = performance.now()
  await Promise.all(Array.from({ length: clients }, client))
  const perSecond = (1000 * requests) / (performance.now() - start)
  agent.destroy()
  return { perSecond, p50Ms: percentile(latencies, 0.5) }
}

/** Full handshakes, one connection after the other, as often as asked. */
export const shakeHands = async (place: TlsPlace, times: number): Promise<void> => {
  for (let turn = 0; turn < times; turn++) {
    const socket: TLSSocket = connect(optionsOf(place))
    await once(socket, 'secureConnect')
    socket.destroy()
  }
}

/** Clients of both versions that ask until `work` is done; how many answers were not good, and how many came. */
export const whileAsking = async (place: TlsPlace, clients: number, work: () => Promise<unknown>) => {
  let isOver = false
  const seen = { requests: 0, failed: 0 }
  const note = (asked: Promise<void>): Promise<void> =>
    asked.then(
      () => void seen.requests++,
      () => {
        seen.requests++
        seen.failed++
      },
    )
  const agent = new Agent({ keepAlive: true, maxSockets: clients })
  const session = await openHttp2(place)
  const client = async (index: number): Promise<void> => {
    while (!isOver) await note(index % 2 === 0 ? askOver(place, agent) : askOverHttp2(session))
  }
  const asking = Array.from({ length: clients }, (_, index) => client(index))
  await work().finally(() => {
    isOver = true
  })
  await Promise.all(asking)
  session.close()
  agent.destroy()
  return seen
}
