/**
 * Runs a command in a container of a pod through the cluster's API; returns its output and exit code. Promises: no
 * more than the limit of output is kept; it ends with the caller's signal. Does not know what is run, and why.
 */
import type { buildConnector } from 'undici'
import { WebSocket } from 'ws'
import { untilAborted } from '../concurrency/waiting.ts'
import { readJson } from '../foreign-text/read-json.ts'
import { KubernetesError, refusedBy } from './kubernetes-errors.ts'

export interface Executed {
  output: Buffer
  exitCode: number
}

/** In both, a number before each message identifies its stream. */
const protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io']
const outputStream = 1
const statusStream = 3
const longestStatus = 64 * 1024
/** The cluster forwards output in pieces. */
const longestMessage = 4 << 20

interface Status {
  status?: unknown
  details?: { causes?: { reason?: unknown; message?: unknown }[] }
}

/** Null if the cluster does not report that the command ended by itself. */
const exitCodeIn = (text: string): number | null => {
  try {
    const { status, details } = readJson(text) as Status
    if (status === 'Success') return 0
    const code = details?.causes?.find(({ reason }) => reason === 'ExitCode')?.message
    return typeof code === 'string' && /^\d{1,3}$/.test(code) ? Number(code) : null
  } catch {
    return null
  }
}

const unfinished = (cause?: unknown): KubernetesError =>
  new KubernetesError(0, 'The cluster did not run a command in a pod to its end.', cause)

interface ExecPlace {
  url: string
  headers: Record<string, string>
  connect: buildConnector.connector
}

const open = ({ url, headers, connect }: ExecPlace): WebSocket => {
  const { hostname, port } = new URL(url)
  return new WebSocket(url, protocols, {
    headers,
    perMessageDeflate: false,
    followRedirects: false,
    maxPayload: longestMessage,
    createConnection: ((_: unknown, done: buildConnector.Callback) => {
      connect({ hostname, port, protocol: 'https:' }, done)
    }) as never,
  })
}

/** Rejects with a `KubernetesError` for a command that did not end, and for more than `maxBytes` of output. */
export const execute = (place: ExecPlace, maxBytes: number, signal: AbortSignal): Promise<Executed> => {
  const { promise, resolve, reject } = Promise.withResolvers<Executed>()
  const socket = open(place)
  const chunks: Buffer[] = []
  let [size, told] = [0, '']
  socket.on('message', (message: Buffer) => {
    const bytes = message.subarray(1)
    if (message[0] === outputStream) {
      size += bytes.length
      if (size > maxBytes) reject(new KubernetesError(0, 'A command in a pod wrote more than it may.'))
      else chunks.push(bytes)
    } else if (message[0] === statusStream && told.length < longestStatus) told += bytes.toString()
  })
  socket.on('unexpected-response', (_request, answer) => reject(refusedBy(answer.statusCode ?? 0, null)))
  const onEnd = (cause?: unknown): void => {
    const exitCode = exitCodeIn(told)
    if (exitCode === null) reject(unfinished(cause))
    else resolve({ output: Buffer.concat(chunks), exitCode })
  }
  socket.on('error', onEnd)
  socket.on('close', () => onEnd())
  // Later messages of the other side are ignored.
  return untilAborted(promise, signal).finally(() => socket.terminate())
}
