/** The API server of a Kubernetes cluster, as far as this server asks one; on loopback, with TLS and a token. */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { noRuntime } from '../../../src/clusters/no-runtime.ts'
import type { KubernetesAccess } from '../../../src/lib/kubernetes/kubeconfig.ts'
import { Secret } from '../../../src/lib/secret.ts'
import type { OpenKubernetes } from '../../../src/runtimes/kubernetes/kubernetes.ts'
import { rights } from '../../../src/runtimes/kubernetes/rights.ts'
import type { Json } from '../api.ts'

// Signed by itself until 2126, for 127.0.0.1 and kubernetes.test, and of no use but in tests.
export const clusterCertificate = `-----BEGIN CERTIFICATE-----
MIIBrjCCAVOgAwIBAgIUFUWYQt0Ofy4+/Sl5ow3gpEYq0iQwCgYIKoZIzj0EAwIw
GjEYMBYGA1UEAwwPa3ViZXJuZXRlcyB0ZXN0MCAXDTI2MTEyMzEyNDAyMloYDzIx
MjYxMDMwMTI0MDIyWjAaMRgwFgYDVQQDDA9rdWJlcm5ldGVzIHRlc3QwWTATBgcq
hkjOPQIBBggqhkjOPQMBBwNCAASQjLF4g4NX9HHZSxp8gPPjYu4aFlwCCXs4a2Oz
9b+4yTLjQCMjwwMhsYY6r0RZFYxON7GWKVIIcx/MN0oP4y/Oo3UwczAdBgNVHQ4E
FgQUG15wk6zvmxEsdjTFahiPILX4tIkwHwYDVR0jBBgwFoAUG15wk6zvmxEsdjTF
ahiPILX4tIkwDwYDVR0TAQH/BAUwAwEB/zAgBgNVHREEGTAXhwR/AAABgg9rdWJl
cm5ldGVzLnRlc3QwCgYIKoZIzj0EAwIDSQAwRgIhAMzG9fPK6ca6yibQQBtiT7C4
kxENLv9U0gM2qnh+285MAiEApBkc753yTcux59sktqi7l9jz6BYvpNA/DvATOedU
JiQ=
-----END CERTIFICATE-----
`
export const clusterKey = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgYColZVsU1kNZaMBb
NufCbR+vUcYUZ/Fe+o6s8KPsX5qhRANCAASQjLF4g4NX9HHZSxp8gPPjYu4aFlwC
CXs4a2Oz9b+4yTLjQCMjwwMhsYY6r0RZFYxON7GWKVIIcx/MN0oP4y/O
-----END PRIVATE KEY-----
`

export type Respond = (request: IncomingMessage, response: ServerResponse) => void

export interface TestCluster {
  uid: string
  port: number
  token: string
  version: string
  nodes: Json[]
  /** What the token may do. */
  rules: Json[]
  /** `method path` of every request, with its query. */
  asked: string[]
  /** Answers instead, by path without the query. */
  instead: Map<string, Respond>
  access(more?: Partial<KubernetesAccess>): KubernetesAccess
  close(): Promise<void>
}

export const json = (
  response: ServerResponse,
  body: unknown,
  status = 200,
  headers: Record<string, string> = {},
): void => void response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))

/** As Kubernetes says no. */
export const failure = (response: ServerResponse, status: number, message: string): void =>
  json(response, { kind: 'Status', status: 'Failure', message, code: status }, status)

/** All of the rights, as rules. */
export const allRules = (): Json[] =>
  rights.map(({ group, resources, verbs }) => ({ apiGroups: [group], resources: [...resources], verbs: [...verbs] }))

export const nodeNamed = (name: string, more: Json = {}): Json => ({
  metadata: { name, creationTimestamp: '2026-01-02T03:04:05Z', labels: { 'node.kubernetes.io/instance-type': 'm5' } },
  spec: { taints: [{ key: 'only', value: 'gpu', effect: 'NoSchedule' }] },
  status: {
    allocatable: { cpu: '3920m', memory: '16Gi', 'ephemeral-storage': '1Gi', pods: '110' },
    capacity: { cpu: '4', memory: '17Gi', 'ephemeral-storage': '2Gi', pods: '110' },
    nodeInfo: { architecture: 'arm64', kubeletVersion: 'v1.31.2', operatingSystem: 'linux' },
    addresses: [{ type: 'InternalIP', address: '10.0.0.7' }],
    conditions: [{ type: 'Ready', status: 'True', reason: 'KubeletReady', message: 'kubelet is ready' }],
    ...more,
  },
})

const usual: Record<string, (cluster: TestCluster, response: ServerResponse) => void> = {
  '/version': (cluster, response) => json(response, { gitVersion: cluster.version }),
  '/api/v1/namespaces/kube-system': ({ uid }, response) => json(response, { metadata: { name: 'kube-system', uid } }),
  '/api/v1/nodes': ({ nodes }, response) => json(response, { items: nodes, metadata: {} }),
  '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews': ({ rules }, response) =>
    json(response, { status: { resourceRules: rules, incomplete: false } }, 201),
}

const answer = (cluster: TestCluster, request: IncomingMessage, response: ServerResponse): void => {
  request.resume()
  const { pathname } = new URL(request.url ?? '/', 'https://cluster')
  cluster.asked.push(`${request.method} ${request.url}`)
  const isKnown = request.headers.authorization === `Bearer ${cluster.token}`
  const found: Respond | undefined = usual[pathname] && ((_, its) => usual[pathname]!(cluster, its))
  const missing: Respond = (_, its) => failure(its, isKnown ? 404 : 401, isKnown ? 'not found' : 'Unauthorized')
  const respond = cluster.instead.get(pathname) ?? (isKnown ? found : undefined) ?? missing
  respond(request, response)
}

export const startCluster = async (): Promise<TestCluster> => {
  const server = createServer({ cert: clusterCertificate, key: clusterKey })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const cluster: TestCluster = {
    uid: randomUUID(),
    port,
    token: `token-${randomUUID()}`,
    version: 'v1.31.2+k3s1',
    nodes: [nodeNamed('one'), nodeNamed('two')],
    rules: allRules(),
    asked: [],
    instead: new Map(),
    access: (more = {}) => ({
      ...{ host: '127.0.0.1', port, path: '', serverName: undefined, ca: clusterCertificate },
      ...{ cert: undefined, key: undefined, token: new Secret(cluster.token) },
      ...more,
    }),
    async close() {
      server.closeAllConnections()
      await new Promise((done) => server.close(done))
    },
  }
  server.on('request', (request, response) => answer(cluster, request, response))
  return cluster
}

const base64 = (text: string): string => Buffer.from(text).toString('base64')

/** A kubeconfig as JSON, which is YAML; `cluster` and `user` are added to what is usual, undefined takes away. */
export const kubeconfigOf = (
  port: number,
  token: string | undefined,
  more: { cluster?: Json; user?: Json } = {},
): Json => ({
  apiVersion: 'v1',
  kind: 'Config',
  clusters: [
    {
      name: 'one',
      cluster: {
        server: `https://127.0.0.1:${port}`,
        'certificate-authority-data': base64(clusterCertificate),
        ...more.cluster,
      },
    },
  ],
  users: [{ name: 'me', user: { token, ...more.user } }],
  contexts: [{ name: 'mine', context: { cluster: 'one', user: 'me' } }],
  'current-context': 'mine',
})

/** A kubeconfig that is taken, with a text in its token. */
export const kubeconfigWith = (text: string): string => JSON.stringify(kubeconfigOf(6443, text))

/** Clusters that are all there, each another one. */
export const openFakeKubernetes: OpenKubernetes = async () => {
  const uid = randomUUID()
  return {
    look: async () => ({ uid, version: 'v1.31.2', missing: [] }),
    nodes: async () => [],
    runtime: async ({ capacity, close, ping }) => ({ ...noRuntime, capacity, close, ping }),
    close: async () => {},
  }
}
