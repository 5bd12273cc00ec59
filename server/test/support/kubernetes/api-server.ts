/**
 * A Kubernetes cluster in memory, behind an API server on loopback: what is applied is kept, watched and carried out by
 * controllers (controllers.ts), so that pods become ready, fail and end as a test says.
 */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { text } from 'node:stream/consumers'
import { WebSocketServer } from 'ws'
import type { KubernetesAccess } from '../../../src/lib/kubernetes/kubeconfig.ts'
import { Secret } from '../../../src/lib/secret.ts'
import type { Json } from '../api.ts'
import {
  allRules,
  clusterCertificate,
  clusterKey,
  failure,
  json,
  kubeconfigOf,
  nodeNamed,
} from '../peers/kubernetes.ts'
import { type Behave, createControllers } from './controllers.ts'
import { createStore, kindsByPlural, type Store, type Stored, type Told } from './store.ts'

export interface MemoryCluster {
  store: Store
  /** `METHOD path` of every request, without its query. */
  asked: string[]
  /** Says no instead: a status and what the cluster says, or null. */
  refuse: (method: string, kind: string, body: Json) => [number, string] | null
  /** Answers of this many requests to come are a 429. */
  busy: number
  /** How pods behave, by their image. */
  behave: Behave
  /** Nothing is answered any more, and what is open says nothing, until `speak`. */
  hush(): void
  speak(): void
  /** Ends every watch that is open. */
  cut(): void
  /**
   * What a command in a pod writes, piece by piece, and its exit code; null where its connection ends before it does.
   */
  exec: (pod: Stored, words: readonly string[]) => { pieces: readonly string[]; exitCode: number | null }
  /** Files that executions have left, by task and path, as a pod with their claim reads them. */
  files: Map<string, Readonly<Record<string, string>>>
  /** Lines of a pod's log. */
  log(pod: string, line: string): void
  access(): KubernetesAccess
  kubeconfig(): string
  close(): Promise<void>
}

interface Asked {
  method: string
  kind: string
  namespace: string | undefined
  name: string | undefined
  isLog: boolean
  query: URLSearchParams
  body: Json
}

const pattern = /^\/apis?(?:\/[^/]+)?\/v\w+(?:\/namespaces\/([^/]+))?\/([a-z]+)(?:\/([^/]+))?(\/log)?$/

const read = async (request: IncomingMessage): Promise<Asked | null> => {
  const { pathname, searchParams: query } = new URL(request.url ?? '/', 'https://cluster')
  const body = await text(request)
  const namespaces = /^\/api\/v1\/namespaces(?:\/([^/]+))?$/.exec(pathname)
  const [, namespace, plural = '', name, log] =
    namespaces === null ? (pattern.exec(pathname) ?? []) : [undefined, undefined, 'namespaces', namespaces[1]]
  const kind = kindsByPlural[plural]
  if (kind === undefined) return null
  const parsed = body === '' ? {} : (JSON.parse(body) as Json)
  return { method: request.method ?? 'GET', kind, namespace, name, isLog: log !== undefined, query, body: parsed }
}

/** `a=1,b=2`; `a`: whatever its value. */
const hasLabels = ({ metadata }: Stored, selector: string | null): boolean =>
  (selector ?? '')
    .split(',')
    .filter((each) => each !== '')
    .every((each) => {
      const [name = '', value] = each.split('=')
      const own = metadata.labels?.[name]
      return own !== undefined && (value === undefined || own === value)
    })

const hasFields = (object: Stored, selector: string | null): boolean =>
  selector === null || object[selector.split('=')[0]!] === selector.split('=')[1]

const isWanted = (object: Stored, { kind, namespace, query }: Asked): boolean =>
  object.kind === kind &&
  (namespace === undefined || object.metadata.namespace === namespace) &&
  hasLabels(object, query.get('labelSelector')) &&
  hasFields(object, query.get('fieldSelector'))

const watch = (store: Store, asked: Asked, response: ServerResponse, isHushed: () => boolean): unknown => {
  const from = Number(asked.query.get('resourceVersion'))
  if (from < store.forgotten) return failure(response, 410, 'too old resource version')
  response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders()
  const leave = store.listen(from, ({ type, object }: Told) => {
    if (!isHushed() && isWanted(object, asked)) response.write(`${JSON.stringify({ type, object })}\n`)
  })
  response.on('close', leave)
}

const list = (store: Store, asked: Asked, response: ServerResponse): void => {
  const items = store.all(asked.kind).filter((each) => isWanted(each, asked))
  json(response, { metadata: { resourceVersion: String(store.version) }, items })
}

const remove = (store: Store, asked: Asked, object: Stored, response: ServerResponse): unknown => {
  const { preconditions } = asked.body as { preconditions?: { uid?: string } }
  if (preconditions?.uid !== undefined && preconditions.uid !== object.metadata.uid)
    return failure(response, 409, 'the uid does not match')
  if (['Pod', 'Namespace', 'Deployment', 'StatefulSet', 'Job', 'Application'].includes(asked.kind))
    store.merge(object, { metadata: { deletionTimestamp: new Date().toISOString() } })
  else store.drop(object)
  json(response, { status: 'Success' })
}

const answerOne = (store: Store, asked: Asked, response: ServerResponse): unknown => {
  const { method, kind, namespace, name = '', body } = asked
  const object = store.find(kind, namespace, name)
  if (method === 'PATCH' && body.kind === kind) {
    const isThere = namespace === undefined || store.find('Namespace', undefined, namespace) !== undefined
    if (!isThere) return failure(response, 404, `namespaces "${namespace}" not found`)
    return json(response, store.apply(body as never))
  }
  if (object === undefined) return failure(response, 404, `${name} not found`)
  if (method === 'GET') return json(response, object)
  if (method === 'PATCH') return json(response, store.merge(object, body))
  return remove(store, asked, object, response)
}

/** Of two with one name the second is refused. */
const create = (store: Store, { kind, namespace, body }: Asked, response: ServerResponse): unknown => {
  const { name = '' } = body.metadata as { name?: string }
  if (store.find(kind, namespace, name) !== undefined) return failure(response, 409, `${name} already exists`)
  return json(response, store.apply(body as never), 201)
}

const sendLog = (lines: readonly string[], { query }: Asked, response: ServerResponse): void => {
  const tail = query.get('tailLines')
  const since = query.get('sinceTime') ?? ''
  const later = lines.filter((line) => line.slice(0, 19) >= since.slice(0, 19))
  response.writeHead(200, { 'content-type': 'text/plain' })
  const shown = tail === null ? later : later.slice(Math.max(0, later.length - Number(tail)))
  response.end(shown.map((line) => `${line}\n`).join(''))
}

/**
 * What reads a file of an execution: the words are its script's, and the last ones a path and the most that is read.
 */
const readLeft = (
  files: MemoryCluster['files'],
  pod: Stored,
  words: readonly string[],
): ReturnType<MemoryCluster['exec']> => {
  const [path = '', most = ''] = words.slice(-2)
  const content = files.get(pod.metadata.labels?.['slipway.task'] ?? '')?.[path]
  if (content === undefined) return { pieces: [], exitCode: 44 }
  const size = Buffer.byteLength(content)
  const half = Math.floor(content.length / 2)
  const shown = size > Number(most) ? [] : [content.slice(0, half), content.slice(half)]
  return { pieces: [`${size}\n`, ...shown], exitCode: 0 }
}

const statusOf = (exitCode: number): Json =>
  exitCode === 0
    ? { status: 'Success' }
    : { status: 'Failure', details: { causes: [{ reason: 'ExitCode', message: String(exitCode) }] } }

/** Commands in pods, over WebSockets as Kubernetes speaks them. */
const createExec = (store: Store, token: string, cluster: () => Pick<MemoryCluster, 'asked' | 'exec'>) => {
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => 'v4.channel.k8s.io' })
  return (request: IncomingMessage, stream: Duplex, head: Buffer): void => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'https://cluster')
    cluster().asked.push(`${request.method} ${pathname}`)
    const [, namespace, name = ''] = /^\/api\/v1\/namespaces\/([^/]+)\/pods\/([^/]+)\/exec$/.exec(pathname) ?? []
    const pod = store.find('Pod', namespace, name)
    if (pod === undefined || request.headers.authorization !== `Bearer ${token}`) {
      stream.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n')
      return
    }
    sockets.handleUpgrade(request, stream, head, (socket) => {
      const { pieces, exitCode } = cluster().exec(pod, searchParams.getAll('command'))
      const say = (of: number, piece: string): void => socket.send(Buffer.concat([Buffer.of(of), Buffer.from(piece)]))
      for (const piece of ['', ...pieces]) say(1, piece)
      if (exitCode !== null) say(3, JSON.stringify(statusOf(exitCode)))
      socket.close()
    })
  }
}

/** What it knows: kinds in namespaces, and those of the whole cluster. */
const kindsOf = (inside: readonly string[], wide: readonly string[] = []): Json => ({
  resources: [...inside, ...wide].map((kind) => ({
    kind,
    name: `${kind.toLowerCase()}s`,
    namespaced: inside.includes(kind),
  })),
})

/** The description of a cluster that is read when it is registered. */
const whoItIs = (): Record<string, Json> => ({
  '/version': { gitVersion: 'v1.33.1' },
  '/api/v1/namespaces/kube-system': { metadata: { name: 'kube-system', uid: randomUUID() } },
  '/api/v1/nodes': { items: [nodeNamed('one')], metadata: {} },
  '/apis': { groups: [{ versions: [{ groupVersion: 'apps/v1' }] }] },
  '/api/v1': kindsOf(['ConfigMap', 'PersistentVolumeClaim', 'Secret', 'Service'], ['Namespace']),
  '/apis/apps/v1': kindsOf(['Deployment', 'StatefulSet']),
  '/apis/batch/v1': kindsOf(['Job']),
  '/apis/networking.k8s.io/v1': kindsOf(['Ingress']),
  '/apis/rbac.authorization.k8s.io/v1': kindsOf(['Role'], ['ClusterRole']),
  '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews': {
    status: { resourceRules: allRules(), incomplete: false },
  },
})

export const startMemoryCluster = async (): Promise<MemoryCluster> => {
  const store = createStore()
  const logs = new Map<string, string[]>()
  const aboutItself = whoItIs()
  const open = new Set<ServerResponse>()
  const held: (() => void)[] = []
  let isHushed = false
  const server = createServer({ cert: clusterCertificate, key: clusterKey })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const token = `token-${randomUUID()}`

  const respond = (asked: Asked, response: ServerResponse): unknown => {
    const refused = cluster.refuse(asked.method, asked.kind, asked.body)
    if (refused !== null) return failure(response, ...refused)
    if (asked.isLog) return sendLog(logs.get(asked.name ?? '') ?? [], asked, response)
    if (asked.name !== undefined) return answerOne(store, asked, response)
    if (asked.method === 'POST') return create(store, asked, response)
    return asked.query.get('watch') === 'true'
      ? watch(store, asked, response, () => isHushed)
      : list(store, asked, response)
  }
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<unknown> => {
    const path = request.url?.replace(/\?.*/, '') ?? ''
    cluster.asked.push(`${request.method} ${path}`)
    const about = aboutItself[path]
    if (about !== undefined) return json(response, about)
    const asked = await read(request)
    if (asked === null) return failure(response, 404, 'no such path')
    if (isHushed) await new Promise<void>((resolve) => held.push(resolve))
    open.add(response)
    response.on('close', () => open.delete(response))
    if (cluster.busy > 0) {
      cluster.busy -= 1
      return json(response, { message: 'busy' }, 429, { 'retry-after': '1' })
    }
    return respond(asked, response)
  }
  const log: MemoryCluster['log'] = (pod, line) => {
    logs.set(pod, [...(logs.get(pod) ?? []), `${new Date().toISOString()} ${line}`])
  }
  const cluster: MemoryCluster = {
    store,
    asked: [],
    refuse: () => null,
    busy: 0,
    behave: () => ({ kind: 'ready' }),
    hush: () => {
      isHushed = true
    },
    speak: () => {
      isHushed = false
      for (const resolve of held.splice(0)) resolve()
    },
    files: new Map(),
    exec: (pod, words) => readLeft(cluster.files, pod, words),
    cut: () => {
      for (const response of open) response.destroy()
    },
    log,
    access: () => ({
      ...{ host: '127.0.0.1', port, path: '', serverName: undefined, ca: clusterCertificate },
      ...{ cert: undefined, key: undefined, token: new Secret(token) },
    }),
    kubeconfig: () => JSON.stringify(kubeconfigOf(port, token)),
    async close() {
      controllers.stop()
      server.closeAllConnections()
      await new Promise((done) => server.close(done))
    },
  }
  const controllers = createControllers(store, (pod) => cluster.behave(pod), log)
  server.on(
    'upgrade',
    createExec(store, token, () => cluster),
  )
  server.on('request', (request, response) => {
    take(request, response).catch(() => response.destroy())
  })
  return cluster
}
