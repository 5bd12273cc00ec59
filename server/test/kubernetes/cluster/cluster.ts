/**
 * A Kubernetes cluster of one node for tests: its programs run in namespaces and cgroups of their own, beside the
 * machine's Docker engine and without its containerd. It ends with the process that started it, also when that is
 * killed.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { exec } from '../../../src/lib/exec.ts'
import type { Json } from '../../support/api.ts'
import { until } from '../../support/until.ts'
import { type Admin, openAdmin } from './admin.ts'
import { createClusterKeys } from './certificates.ts'
import { busyboxArchive } from './image.ts'
import { removeGroups, removeLeftovers } from './leftovers.ts'
import {
  containerdSettings,
  dnsAddress,
  dnsSettings,
  firstPrograms,
  firstServiceAddress,
  kubeletSettings,
  laterPrograms,
  type NodePlace,
  podNetwork,
  proxySettings,
  sandboxImage,
} from './settings.ts'

export interface OwnCluster {
  /** Everything of it: `log/` has what its programs say. */
  folder: string
  /** With an administrator's credentials. */
  kubeconfig: string
  /** Rejects when one of its programs ends. */
  ended: Promise<never>
  close(): Promise<void>
}

const patienceMs = 120_000

const kubeconfigOf = (server: string, ca: string, cert: string, key: string): string => {
  const base64 = (text: string): string => Buffer.from(text).toString('base64')
  const cluster = { server, 'certificate-authority-data': base64(ca) }
  const user = { 'client-certificate-data': base64(cert), 'client-key-data': base64(key) }
  return `${JSON.stringify(
    {
      ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'test' },
      clusters: [{ name: 'test', cluster }],
      users: [{ name: 'admin', user }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin' } }],
    },
    null,
    2,
  )}\n`
}

const writeFiles = async (place: NodePlace): Promise<void> => {
  const { folder, inside } = place
  const write = (name: string, content: string | object): void =>
    writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content), { mode: 0o600 })
  for (const name of ['log', 'pids', 'cni', 'registries', 'tmp/volumes'])
    mkdirSync(join(folder, name), { recursive: true })
  const names = ['kubernetes', 'kubernetes.default', 'kubernetes.default.svc', 'localhost']
  const keys = await createClusterKeys([inside, firstServiceAddress, '127.0.0.1'], names)
  write('ca.pem', keys.ca.certificate)
  write('server.pem', keys.server.certificate)
  write('server.key', keys.server.key)
  write('accounts.key', keys.accounts)
  const { certificate, key } = keys.admin
  write('kubeconfig', kubeconfigOf(`https://${inside}:6443`, keys.ca.certificate, certificate, key))
  write('containerd.toml', containerdSettings(place))
  write('cni/pods.conflist', podNetwork(place))
  write('kubelet.json', kubeletSettings(place))
  write('proxy.json', proxySettings(place))
  write('Corefile', dnsSettings(place))
  write('resolv.conf', `nameserver ${inside}\n`)
}

/** 198.18.0.0/15 is for tests. */
const choosePlace = (nodes: string): { name: string; link: string; place: NodePlace } => {
  const random = randomBytes(4)
  const name = `slipway-kubernetes-${random.toString('hex')}`
  const first = random[1]! & 0xfc
  const address = (last: number): string => `198.19.${random[0]}.${first + last}`
  const folder = join(nodes, name)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  return { name, link: `slk-${random.toString('hex')}`, place: { folder, outside: address(1), inside: address(2) } }
}

const inCluster = (inside: string): Json[] => {
  const meta = { name: 'kube-dns', namespace: 'kube-system', labels: { 'k8s-app': 'kube-dns' } }
  const ports = [
    { name: 'dns', port: 53, protocol: 'UDP' },
    { name: 'dns-tcp', port: 53, protocol: 'TCP' },
  ]
  return [
    { apiVersion: 'v1', kind: 'Service', metadata: meta, spec: { clusterIP: dnsAddress, ports } },
    {
      ...{ apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', addressType: 'IPv4', ports },
      metadata: { ...meta, name: 'kube-dns-node', labels: { 'kubernetes.io/service-name': 'kube-dns' } },
      endpoints: [{ addresses: [inside], conditions: { ready: true } }],
    },
    {
      ...{ apiVersion: 'storage.k8s.io/v1', kind: 'StorageClass', provisioner: 'slipway.test/folder' },
      metadata: { name: 'standard', annotations: { 'storageclass.kubernetes.io/is-default-class': 'true' } },
      ...{ allowVolumeExpansion: true, reclaimPolicy: 'Delete' },
    },
  ]
}

const isReady = ({ status }: Json): boolean =>
  (status.conditions ?? []).some((each: Json) => each.type === 'Ready' && each.status === 'True')

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

/** Imports the images of an archive. */
export const importImages = async (folder: string, archive: Buffer): Promise<void> => {
  const file = join(folder, `images-${randomBytes(4).toString('hex')}.tar`)
  writeFileSync(file, archive)
  const socket = join(folder, 'containerd.sock')
  const { code, stderr } = await exec('ctr', ['--address', socket, '--namespace', 'k8s.io', 'images', 'import', file], {
    env: { PATH: process.env.PATH ?? '' },
    timeoutMs: patienceMs,
  })
  rmSync(file)
  if (code !== 0) throw new Error(`ctr images import: ${stderr}`)
}

const waitForNode = async (admin: Admin): Promise<void> => {
  const nodes = async () => (await admin.get('/api/v1/nodes')).items.some(isReady)
  await until(nodes, { timeoutMs: patienceMs, what: 'the node to be ready' })
  const account = async () =>
    (await admin.ask('GET', '/api/v1/namespaces/default/serviceaccounts/default')).status === 200
  await until(account, { timeoutMs: patienceMs, what: 'the account of the namespace default' })
}

const lastLines = (file: string): string => readFileSync(file, 'utf8').slice(-1500)

const end = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exit = once(child, 'exit')
  child.stdin?.end()
  await exit
}

/** `programs`: the folder with those that bin/test-kubernetes built. `nodes`: the folder for what clusters keep. */
export const startOwnCluster = async (programs: string, nodes: string): Promise<OwnCluster> => {
  removeLeftovers(nodes)
  const { name, link, place } = choosePlace(nodes)
  const { folder, outside, inside } = place
  await writeFiles(place)
  const child = spawn('bash', [path('enter.sh'), name, path('node.sh'), folder, link, outside, inside], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { PATH: `${process.env.PATH}:/usr/sbin:/sbin` },
  })
  writeFileSync(join(folder, 'pid'), String(child.pid))
  let said = ''
  let isClosing = false
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text))
  child.stdin.on('error', () => {})
  const ended = new Promise<never>((_, reject) => {
    const tell = (): void => {
      if (!isClosing) reject(new Error(`The cluster ended: ${said}`))
    }
    child.on('exit', tell)
    child.stdout.on('data', () => {
      if (said.includes(' ended\n')) tell()
    })
  })
  ended.catch(() => {})
  const close = async (): Promise<void> => {
    isClosing = true
    await end(child)
    await until(() => removeGroups(name), { timeoutMs: 30_000, what: `the cgroups ${name} to be empty` })
    rmSync(folder, { recursive: true, force: true })
  }
  const start = (words: string[]): void => void child.stdin.write(`start\t${words.join('\t')}\n`)

  const bringUp = async (): Promise<OwnCluster> => {
    const kubeconfig = readFileSync(join(folder, 'kubeconfig'), 'utf8')
    for (const words of firstPrograms(place, programs)) start(words)
    const importing = until(
      async () => {
        const archive = await busyboxArchive({ busybox: 'docker.io/library/busybox:1', pause: sandboxImage })
        return importImages(folder, archive).then(
          () => true,
          () => false,
        )
      },
      { timeoutMs: patienceMs, what: 'containerd' },
    )
    const admin = await openAdmin(kubeconfig)
    try {
      const ready = () =>
        admin.ask('GET', '/readyz').then(
          ({ status }) => status === 200,
          () => false,
        )
      await until(ready, { timeoutMs: patienceMs, what: 'the API server' })
      await importing
      for (const words of laterPrograms(place, programs)) start(words)
      for (const each of inCluster(inside)) await admin.apply(each)
      await waitForNode(admin)
    } finally {
      admin.close()
    }
    return { folder, kubeconfig, ended, close }
  }
  try {
    return await Promise.race([bringUp(), ended])
  } catch (error) {
    const logs = readdirSync(join(folder, 'log')).map((each) => `${each}: ${lastLines(join(folder, 'log', each))}`)
    await close().catch(() => {})
    throw new Error([(error as Error).message, said, ...logs].join('\n'))
  }
}
