/**
 * The Engine API with nothing in between, as the Docker floors use it. Containers carry the label `slipway.bench=1`,
 * and `removeOwn` removes all of them.
 */
import { Agent } from 'undici'

export interface ContainerOptions {
  image: string
  /** Host port for 8080; without it, the container is reached by its own address. */
  hostPort?: number
  init?: boolean
  /** Caps of the log, as the product sets them; without it, none. */
  cappedLog?: boolean
  /** As the product sets them; without it, none. */
  limits?: { cpuMillicores: number; memoryMb: number }
}

export interface Engine {
  call<T = unknown>(method: string, path: string, body?: unknown): Promise<T>
  /** The bytes of a GET as they come; aborting ends it. */
  stream(path: string, signal: AbortSignal): Promise<AsyncIterable<Buffer>>
  /** The text of a GET, for answers that are lines of JSON. */
  text(path: string): Promise<string>
  create(options: ContainerOptions): Promise<string>
  start(id: string): Promise<void>
  /** Address inside the default bridge. */
  address(id: string): Promise<string>
  stop(id: string): Promise<void>
  remove(id: string): Promise<void>
  removeOwn(): Promise<void>
  close(): Promise<void>
}

const socketPath = (): string => {
  const host = process.env.DOCKER_HOST ?? 'unix:///var/run/docker.sock'
  if (!host.startsWith('unix://')) throw new Error(`the bench reaches the engine by its unix socket only, not ${host}`)
  return host.slice('unix://'.length)
}

export const createEngine = (): Engine => {
  const agent = new Agent({ connect: { socketPath: socketPath() }, headersTimeout: 60_000, bodyTimeout: 0 })
  const request = async (method: string, path: string, headers: Record<string, string>, body?: string) => {
    const answer = await agent.request({
      origin: 'http://engine',
      path: `/v1.41${path}`,
      method: method as 'GET',
      headers,
      body: body ?? null,
    })
    const text = await answer.body.text()
    if (answer.statusCode >= 400) throw new Error(`engine: ${method} ${path}: ${answer.statusCode} ${text.trim()}`)
    return text
  }
  const call = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const headers: Record<string, string> = body === undefined ? {} : { 'content-type': 'application/json' }
    const text = await request(method, path, headers, body === undefined ? undefined : JSON.stringify(body))
    return (text === '' ? undefined : JSON.parse(text)) as T
  }
  const engine: Engine = {
    call,
    async stream(path, signal) {
      const answer = await agent.request({ origin: 'http://engine', path: `/v1.41${path}`, method: 'GET', signal })
      if (answer.statusCode >= 400) throw new Error(`engine: ${path}: ${answer.statusCode} ${await answer.body.text()}`)
      return answer.body
    },
    text: (path) => request('GET', path, {}),
    async create({ image, hostPort, init = true, cappedLog = false, limits }) {
      const body = {
        Image: image,
        Labels: { 'slipway.bench': '1' },
        ExposedPorts: { '8080/tcp': {} },
        HostConfig: {
          Init: init,
          ...(limits === undefined
            ? {}
            : {
                NanoCpus: limits.cpuMillicores * 1e6,
                Memory: limits.memoryMb * 2 ** 20,
                MemorySwap: limits.memoryMb * 2 ** 20,
              }),
          ...(cappedLog ? { LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } } } : {}),
          PortBindings:
            hostPort === undefined ? {} : { '8080/tcp': [{ HostIp: '127.0.0.1', HostPort: String(hostPort) }] },
        },
      }
      return (await call<{ Id: string }>('POST', '/containers/create', body)).Id
    },
    start: (id) => call('POST', `/containers/${id}/start`),
    async address(id) {
      const seen = await call<{ NetworkSettings: { IPAddress: string } }>('GET', `/containers/${id}/json`)
      return seen.NetworkSettings.IPAddress
    },
    stop: (id) => call('POST', `/containers/${id}/stop?t=10`),
    remove: (id) => call('DELETE', `/containers/${id}?force=1&v=1`),
    async removeOwn() {
      const filters = encodeURIComponent(JSON.stringify({ label: ['slipway.bench=1'] }))
      const containers = await call<{ Id: string }[]>('GET', `/containers/json?all=1&filters=${filters}`)
      await Promise.all(containers.map(({ Id }) => engine.remove(Id)))
      const images = await call<{ Id: string }[]>('GET', `/images/json?filters=${filters}`)
      for (const { Id } of images) await call('DELETE', `/images/${Id}?force=1`).catch(() => {})
    },
    close: () => agent.close(),
  }
  return engine
}
