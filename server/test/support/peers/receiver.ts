/** A webhook receiver that verifies every delivery with the public library and remembers it. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Webhook } from 'standardwebhooks'
import type { Json } from '../slipway/slipway.ts'

export interface Delivery {
  id: string
  event: string
  payload: Json
}

export interface Receiver {
  url: string
  deliveries: Delivery[]
  /** Deliveries whose signature the library refused. */
  refused: string[]
  /** The signing secret, once the webhook is created. */
  secret: string
  /** Called with each verified delivery before it is answered. */
  onDelivery(delivery: Delivery): void
  close(): Promise<void>
}

const read = async (request: IncomingMessage): Promise<string> => {
  let text = ''
  for await (const chunk of request) text += chunk
  return text
}

export const startReceiver = async (): Promise<Receiver> => {
  const receiver: Receiver = {
    url: '',
    deliveries: [],
    refused: [],
    secret: '',
    onDelivery: () => {},
    close: async () => {},
  }
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await read(request)
    try {
      const verified = new Webhook(receiver.secret).verify(body, request.headers as Record<string, string>) as Json
      const delivery = {
        id: String(request.headers['webhook-id']),
        event: verified.event_type,
        payload: verified.payload,
      }
      receiver.deliveries.push(delivery)
      receiver.onDelivery(delivery)
      response.writeHead(200).end()
    } catch (error) {
      receiver.refused.push((error as Error).message)
      response.writeHead(400).end()
    }
  }
  const server = createServer((request, response) => void answer(request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  receiver.url = `http://127.0.0.1:${(server.address() as { port: number }).port}/hook`
  receiver.close = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  return receiver
}
