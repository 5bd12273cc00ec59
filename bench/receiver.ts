/**
 * A receiver of webhooks in a separate process: answers 200 on every path but `/silent`, where it never answers.
 * Reports when the requested number of deliveries has arrived, and when the last one did.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export type ReceiverOrder = { kind: 'await'; count: number } | { kind: 'forget-silent' }

export interface ReceiverReport {
  port: number
  /** Milliseconds since the epoch, with a fraction, at which the last awaited delivery had come. */
  lastAt: number
  /** Deliveries that came more than once since the last order. */
  repeated: number
}

let awaited = Number.POSITIVE_INFINITY
let repeated = 0
let seen = new Set<string>()

const now = (): number => performance.timeOrigin + performance.now()
const tell = (lastAt: number): void => void process.send?.({ port, lastAt, repeated } satisfies ReceiverReport)

const note = (id: string): void => {
  if (seen.has(id)) repeated++
  seen.add(id)
  if (seen.size < awaited) return
  awaited = Number.POSITIVE_INFINITY
  tell(now())
}

const receiver = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
  request.resume()
  if (request.url === '/silent') return
  request.on('end', () => {
    response.end('ok')
    note(String(request.headers['webhook-id']))
  })
})

await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve))
const { port } = receiver.address() as AddressInfo

process.on('message', (order: ReceiverOrder) => {
  if (order.kind === 'forget-silent') {
    receiver.closeAllConnections()
    return tell(now())
  }
  seen = new Set()
  repeated = 0
  awaited = order.count
})
process.on('SIGINT', () => {})
process.on('disconnect', () => process.exit(0))
tell(now())
