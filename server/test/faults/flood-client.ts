/**
 * A process that sends the same requests again and again, as fast as they are answered, until it is ended; it prints how
 * many answers of each status it had, and what the first of each said. Started with a JSON file: `{ connections, requests: [{ url, method, headers, body }] }`.
 */
import { readFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { finished } from 'node:stream/promises'

interface Sent {
  url: string
  method?: string
  headers?: Record<string, string>
  /** Path of a file. */
  body?: string
}

const { connections, requests } = JSON.parse(readFileSync(process.argv[2]!, 'utf8')) as {
  connections: number
  requests: Sent[]
}
const agent = new Agent({ keepAlive: true, maxSockets: connections })
const bodies = requests.map(({ body }) => (body === undefined ? undefined : readFileSync(body)))
const counts: Record<string, number> = {}
const firsts: Record<string, string> = {}

const send = (index: number): Promise<string> => {
  const { url, method = 'GET', headers = {} } = requests[index]!
  const body = bodies[index]
  const length = body === undefined ? {} : { 'content-length': String(body.length) }
  const { promise, resolve } = Promise.withResolvers<string>()
  const sent = request(url, { method, headers: { ...headers, ...length }, agent }, (answer) => {
    const status = String(answer.statusCode)
    if (firsts[status] === undefined) {
      firsts[status] = ''
      answer.on('data', (chunk: Buffer) => {
        if (firsts[status]!.length < 200) firsts[status] += chunk.toString().slice(0, 200)
      })
    }
    finished(answer.resume()).then(
      () => resolve(status),
      () => resolve('cut'),
    )
  })
  sent.on('error', () => resolve('failed'))
  sent.end(body)
  return promise
}

process.once('SIGTERM', () => process.stdout.write(JSON.stringify({ counts, firsts }), () => process.exit(0)))
await Promise.all(
  Array.from({ length: connections }, async (_, first) => {
    for (let index = first % requests.length; ; index = (index + connections) % requests.length) {
      const status = await send(index)
      counts[status] = (counts[status] ?? 0) + 1
    }
  }),
)
