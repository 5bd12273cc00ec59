/** One probe of an instance from outside: null if it is ready, else the finding as the end of a sentence. */
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { connect } from 'node:net'
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import type { PlacedInstance as Instance } from '../../blue-green/instances.ts'
import type { Probe, Workload } from '../../runtime.ts'
import { usualPort } from '../describe.ts'
import { execIn } from '../exec.ts'
import { askGrpc } from './grpc.ts'

export type ProbeResult = string | null
export type ProbeCall = (signal: AbortSignal) => Promise<ProbeResult>

interface Address {
  host: string
  port: number
}

// For a port that the engine publishes: docker-proxy accepts before it knows whether anything listens behind it, and
// closes if nothing does. On a busy machine this takes far longer than its usual milliseconds.
const settleMs = 300
const isPublished = ({ host, port }: Address, inner: number): boolean => host === '127.0.0.1' || port !== inner
const defaultTimeoutMs = 5000

const spell = (error: NodeJS.ErrnoException): string =>
  ['ECONNREFUSED', 'ECONNRESET', 'EPIPE'].includes(error.code ?? '') || /socket hang up/.test(error.message)
    ? 'connection refused or closed'
    : (error.code ?? error.message)

interface HttpProbe {
  scheme: 'HTTP' | 'HTTPS'
  path: string
  timeoutMs: number
  accepts: (status: number) => boolean
}

const probeHttp = (address: Address, port: number, look: HttpProbe, signal: AbortSignal): Promise<ProbeResult> =>
  new Promise((resolve) => {
    const send = look.scheme === 'HTTPS' ? requestHttps : requestHttp
    const where = `${look.scheme} ${look.path} on port ${port}`
    const deadline = AbortSignal.timeout(look.timeoutMs)
    const call = send(
      {
        ...address,
        path: look.path,
        agent: false,
        rejectUnauthorized: false,
        signal: AbortSignal.any([signal, deadline]),
      },
      (answer) => {
        answer.destroy()
        const status = answer.statusCode ?? 0
        resolve(look.accepts(status) ? null : `${where} answered ${status}`)
      },
    )
    call.on('error', (error) =>
      resolve(`${where}: ${deadline.aborted ? `no answer within ${look.timeoutMs} ms` : spell(error)}`),
    )
    call.end()
  })

const probeTcp = (address: Address, port: number, timeoutMs: number, signal: AbortSignal): Promise<ProbeResult> =>
  new Promise((resolve) => {
    const socket = connect({ ...address, signal })
    const end = (finding: ProbeResult) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(finding && `port ${port}: ${finding}`)
    }
    let timer = setTimeout(() => end(`no connection within ${timeoutMs} ms`), timeoutMs)
    socket.once('connect', () => {
      clearTimeout(timer)
      if (!isPublished(address, port)) return end(null)
      timer = setTimeout(() => end(null), settleMs)
    })
    socket.once('data', () => end(null))
    socket.once('end', () => end('connection refused or closed'))
    socket.once('error', (error) => end(spell(error)))
    socket.once('close', () => end('connection refused or closed'))
  })

const probeGrpc = async (
  address: Address,
  { port, service }: Extract<Probe['check'], { kind: 'grpc' }>,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<ProbeResult> => {
  const deadline = AbortSignal.timeout(timeoutMs)
  const where = `the gRPC health service on port ${port}`
  try {
    const finding = await askGrpc(address, service, AbortSignal.any([signal, deadline]))
    return finding && `the program on port ${port} ${finding}`
  } catch (error) {
    return `${where}: ${deadline.aborted ? `no answer within ${timeoutMs} ms` : spell(error as NodeJS.ErrnoException)}`
  }
}

const probeExec = async (engine: Engine, id: string, command: string[], timeoutMs: number, signal: AbortSignal) => {
  const deadline = AbortSignal.timeout(timeoutMs)
  const both = AbortSignal.any([signal, deadline])
  try {
    const { exitCode } = await execIn(engine, id, command, both)
    return exitCode === 0 ? null : `the probe command exited with code ${exitCode}`
  } catch (error) {
    if (deadline.aborted) return `the probe command did not finish within ${timeoutMs} ms`
    if (isEngineError(error)) return 'the probe command could not be run'
    throw error
  }
}

export const probeCallOf = (engine: Engine, probe: Probe, instance: Instance): ProbeCall => {
  const { check } = probe
  const timeoutMs = Math.max(1, probe.timeoutSeconds) * 1000
  if (check.kind === 'exec') return (signal) => probeExec(engine, instance.id, check.command, timeoutMs, signal)
  const address = instance.endpoints[check.port]
  if (address === undefined)
    throw new DeploymentError('not_ready', `The probe uses port ${check.port}, which the service does not have.`)
  if (check.kind === 'grpc') return (signal) => probeGrpc(address, check, timeoutMs, signal)
  if (check.kind === 'tcp') return (signal) => probeTcp(address, check.port, timeoutMs, signal)
  const accepts = (status: number) => status >= 200 && status < 400
  const path = check.path.startsWith('/') ? check.path : `/${check.path}`
  return (signal) => probeHttp(address, check.port, { scheme: check.scheme, path, timeoutMs, accepts }, signal)
}

/** How to check this instance; null if nothing listens, so that staying up has to do. */
export const probeFor = (engine: Engine, workload: Workload, instance: Instance): ProbeCall | null => {
  if (workload.readiness !== null) return probeCallOf(engine, workload.readiness, instance)
  const port = usualPort(workload)
  const address = port && instance.endpoints[port.internalPort]
  if (address === undefined) return null
  if (port!.protocol !== 'HTTP') return (signal) => probeTcp(address, port!.internalPort, defaultTimeoutMs, signal)
  const any: HttpProbe = { scheme: 'HTTP', path: '/', timeoutMs: defaultTimeoutMs, accepts: () => true }
  return (signal) => probeHttp(address, port!.internalPort, any, signal)
}
