/**
 * Sits between a client and an ACME server, and answers in its place with configured refusals, which a real one gives
 * too rarely to wait for. Everything else passes, with the requested host, on which the server's addresses and
 * signatures depend.
 */
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer, request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { createTestCa } from './test-ca.ts'

/** `lost`: the server does what it is asked for, and its answer does not come. */
export interface Refusal {
  /** Of whose paths. */
  path: RegExp
  answer: 'lost' | { status: number; headers?: Record<string, string>; body: string }
}

interface Behind {
  /** The directory of the server, and a file with what its certificate is issued by. */
  directory: string
  ca: string
}

const problem = (status: number, kind: string, detail: string, headers: Record<string, string> = {}) => ({
  status,
  headers: { 'content-type': 'application/problem+json', ...headers },
  body: JSON.stringify({ type: `urn:ietf:params:acme:error:${kind}`, detail, status }),
})

const orders = /order/i

/** What becomes of an order at a CA that is in trouble. */
export const refusals = {
  limited: {
    path: orders,
    answer: problem(429, 'rateLimited', 'too many certificates (5) already issued', { 'retry-after': '7200' }),
  },
  nonces: {
    path: orders,
    answer: problem(400, 'badNonce', 'the nonce is not one of ours', { 'replay-nonce': 'AAAA' }),
  },
  nonsense: { path: orders, answer: { status: 200, headers: { 'content-type': 'text/html' }, body: '<html>busy' } },
  lost: { path: /finalize/i, answer: 'lost' },
} satisfies Record<string, Refusal>

export const startAcmeGate = async ({ directory, ca }: Behind, caFile: string) => {
  const own = await createTestCa()
  const { certificate, key } = await own.issue('localhost')
  await writeFile(caFile, own.certificate)
  const { port, pathname } = new URL(directory)
  let refusal: Refusal | null = null
  let met = 0

  const pass = async (asked: IncomingMessage, answer: ServerResponse): Promise<void> => {
    const { method, url: path, headers } = asked
    const out = request({ host: '127.0.0.1', port, servername: 'localhost', ca, method, path, headers, agent: false })
    asked.pipe(out)
    const [given] = (await once(out, 'response')) as [IncomingMessage]
    const isLost = refusal?.answer === 'lost' && refusal.path.test(path!)
    if (isLost) met += 1
    if (isLost) return void asked.socket.destroy()
    answer.writeHead(given.statusCode!, given.headers)
    given.pipe(answer)
  }
  const server = createServer({ cert: certificate, key }, (asked, answer) => {
    if (refusal !== null && refusal.answer !== 'lost' && asked.method === 'POST' && refusal.path.test(asked.url!)) {
      met += 1
      const { status, headers, body } = refusal.answer
      asked.resume()
      answer.writeHead(status, headers).end(body)
    } else pass(asked, answer).catch(() => asked.socket.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    directory: `https://localhost:${(server.address() as AddressInfo).port}${pathname}`,
    refuse(wanted: Refusal | null) {
      refusal = wanted
      met = 0
    },
    /** How often it has answered so since then. */
    met: () => met,
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
}
