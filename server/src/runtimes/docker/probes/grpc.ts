/** One call of the standard health service of gRPC (`grpc.health.v1.Health/Check`), without TLS. */
import { type ClientHttp2Session, connect } from 'node:http2'

const path = '/grpc.health.v1.Health/Check'
/** More than any answer of that service has. */
const mostBytes = 1024
const serving = 1
const states: Readonly<Record<number, string>> = { 0: 'UNKNOWN', 2: 'NOT_SERVING', 3: 'SERVICE_UNKNOWN' }
const unimplemented = 12

const varint = (value: number): number[] => (value < 128 ? [value] : [(value % 128) | 128, ...varint(value >> 7)])

/** HealthCheckRequest, whose only field is the name of the service, in the frame of a message. */
const requestFor = (service: string): Buffer => {
  const name = Buffer.from(service)
  const message = name.length === 0 ? name : Buffer.concat([Buffer.from([0x0a, ...varint(name.length)]), name])
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

/** The state, which is the only field of HealthCheckResponse; null for other bytes. */
const stateIn = (bytes: Buffer): number | null => {
  if (bytes.length < 5 || bytes[0] !== 0) return null
  const message = bytes.subarray(5)
  if (message.length !== bytes.readUInt32BE(1)) return null
  if (message.length === 0) return 0
  return message[0] === 0x08 && message.length === 2 ? message[1]! : null
}

const findingOf = (bytes: Buffer, status: string): string | null => {
  if (Number(status) === unimplemented) return 'has no health service'
  if (status !== '0') return `answered with gRPC status ${/^\d{1,3}$/.test(status) ? status : 'none'}`
  const state = stateIn(bytes)
  if (state === serving) return null
  return `answered ${states[state ?? -1] ?? 'something that is not a state'}`
}

/** Null when it serves, else its state, as the end of a sentence. Rejects if there is no answer in time. */
export const askGrpc = (
  { host, port }: { host: string; port: number },
  service: string,
  signal: AbortSignal,
): Promise<string | null> =>
  new Promise((resolve, reject) => {
    let session: ClientHttp2Session | null = null
    const end = (finish: () => void): void => {
      signal.removeEventListener('abort', abort)
      session?.destroy()
      finish()
    }
    const fail = (error: unknown): void => end(() => reject(error as Error))
    const abort = (): void => fail(signal.reason)
    if (signal.aborted) return abort()
    signal.addEventListener('abort', abort, { once: true })
    session = connect(`http://${host.includes(':') ? `[${host}]` : host}:${port}`)
    session.on('error', fail)
    session.on('close', () => fail(new Error('socket hang up')))
    const stream = session.request({
      ...{ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' },
    })
    const chunks: Buffer[] = []
    let size = 0
    let status = ''
    const learn = (headers: Record<string, unknown>): void => {
      status = String(headers['grpc-status'] ?? status)
    }
    stream.on('error', fail)
    stream.on('response', learn)
    stream.on('trailers', learn)
    stream.on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size > mostBytes) return fail(new Error('its answer is too long'))
      chunks.push(chunk)
    })
    stream.on('end', () => end(() => resolve(findingOf(Buffer.concat(chunks), status))))
    stream.end(requestFor(service))
  })
