/** What every runtime guarantees, of a real cluster: the same cases as of every other one. */
import { after, before, describe } from 'node:test'
import { type KubernetesAccess, parseKubeconfig } from '../../src/lib/kubernetes/kubeconfig.ts'
import { createKubernetesApi } from '../../src/lib/kubernetes/kubernetes-api.ts'
import { capacityOf } from '../../src/runtimes/kubernetes/nodes.ts'
import { openKubernetes } from '../../src/runtimes/kubernetes/open.ts'
import { accessManifest } from '../../src/runtimes/kubernetes/rights.ts'
import { createKubernetesRuntime } from '../../src/runtimes/kubernetes/runtime.ts'
import type { Runtime } from '../../src/runtimes/runtime.ts'
import type { FakeRegistry } from '../support/docker/fake-registry.ts'
import { conform, type Program } from '../support/runtimes/conformance.ts'
import { until } from '../support/until.ts'
import type { Admin } from './cluster/admin.ts'
import { importImages } from './cluster/cluster.ts'
import { nodeArchive } from './cluster/image.ts'
import { hasMetrics, startMetrics } from './cluster/metrics.ts'
import { onlyRegistry, startNodeRegistry } from './cluster/registry.ts'
import { grantAccess, openCluster, outbound, ownNode, revokeAccess } from './cluster/scene.ts'
import { askPod, createVisit } from './cluster/visit.ts'

const skip = ownNode === undefined && 'it needs the cluster of the tests, whose node pulls from a registry here'

const nodeImage = 'slipway.test/node:1'
const size = { cpuMillicores: 40, memoryMb: 32 }
const shell = (script: string): Program => ({
  ...{ image: 'docker.io/library/busybox:1', entrypoint: ['sh', '-c'], arguments: [script] },
  ...size,
})
const serveFrom = (folder: string): string => `exec httpd -f -p 8080 -h ${folder}`

const echo = `
const server = require('dgram').createSocket('udp4').on('message', (bytes, { port, address }) => server.send(bytes, port, address))
server.bind(8080)
require('http').createServer((_, answer) => answer.end('ok')).listen(8080)`

/** A request for it sets whether the instance reports ready from then on. */
const cgi = (name: string, command: string): string =>
  `printf '#!/bin/sh\\n${command} /tmp/w/ready; echo; echo done\\n' > /tmp/w/cgi-bin/${name}; chmod +x /tmp/w/cgi-bin/${name}`

describe('kubernetes runtime', { skip, concurrency: 4 }, () => {
  let admin: Admin
  let registry: FakeRegistry
  let access: KubernetesAccess
  let version: string
  let endMetrics = async (): Promise<void> => {}
  before(async () => {
    admin = await openCluster()
    access = await parseKubeconfig(await grantAccess(admin, accessManifest.items))
    version = (await admin.get('/version')).gitVersion
    registry = await startNodeRegistry()
    endMetrics = await startMetrics(admin)
    await importImages(ownNode!, await nodeArchive(nodeImage))
    await until(() => hasMetrics(admin), { timeoutMs: 60_000, what: 'the metrics to be served' })
  })
  const create = (ownerId: string): Runtime => {
    const api = createKubernetesApi(access, outbound.checkMachine)
    const kubernetes = openKubernetes(access, outbound.checkMachine)
    return createKubernetesRuntime({
      ...{ api, ownerId, version, runAs: 10_001, outbound: onlyRegistry(() => registry) },
      registryLogins: async () => [],
      ping: async () => {},
      capacity: async () => capacityOf(await kubernetes.nodes()),
      close: async () => {
        await kubernetes.close()
        await api.close()
      },
    })
  }

  conform({
    create,
    declared: {
      abilities: new Set(['volumes', 'tcp-ports', 'udp-ports', 'apps']),
      ...{ scalesItself: true, rollsItself: true, sharesPorts: false },
    },
    visit: (url) => createVisit(admin)(url),
    startMs: 10_000,
    streamsFiles: false,
    programs: {
      serve: shell(`mkdir -p /tmp/w; echo "$PAGE" > /tmp/w/index.html; ${serveFrom('/tmp/w')}`),
      serveBoth: { image: nodeImage, entrypoint: ['/bin/node', '-e'], arguments: [echo], cpuMillicores: 200 },
      distinct: shell(
        `mkdir -p /tmp/w/cgi-bin; hostname > /tmp/w/index.html; touch /tmp/w/ready; ${cgi('yes', 'touch')}; ${cgi('no', 'rm -f')}; ${serveFrom('/tmp/w')}`,
      ),
      neverReady: shell('echo waiting; exec sleep 1000'),
      crash: shell('echo about to fail >&2; exit 3'),
      talk: {
        ...shell(
          'httpd -p 8080 -h /tmp; i=1; while [ $i -le 3000 ]; do echo "line $i"; [ $i -ge 5 ] && usleep 20000; i=$((i+1)); done; exec sleep 1000',
        ),
        cpuMillicores: 120,
      },
      task: shell('cat /proc/sys/kernel/random/uuid; echo one; sleep 0.3; echo two; exit 3'),
      endlessTask: shell('echo begun; exec sleep 1000'),
      writer: shell('cat /in/given; printf left > /out/left.txt'),
      keeper: shell('cat /in/kept; printf kept > /in/kept'),
      badWriter: shell('printf left > /out/left.txt; exit 3'),
      endlessWriter: shell('printf begun > /out/left.txt; echo begun; exec sleep 1000'),
    },
    readiness: {
      check: { kind: 'http', port: 8080, path: '/ready', scheme: 'HTTP' },
      ...{ initialDelaySeconds: 0, periodSeconds: 1, timeoutSeconds: 5, successThreshold: 1, failureThreshold: 1 },
    },
    async say(_runtime, { id, environmentId }, isReady) {
      const answer = await askPod(admin, `slipway-${environmentId}`, id, `/cgi-bin/${isReady ? 'yes' : 'no'}`)
      if (!answer.startsWith('200')) throw new Error(answer)
    },
    commands: {
      // The program is not process 1 of its pod.
      tell: (line) => ['sh', '-c', `until pid=$(pidof httpd); do usleep 20000; done; echo ${line} > /proc/$pid/fd/1`],
      fail: ['sh', '-c', 'echo no >&2; exit 3'],
    },
    images: {
      get held() {
        return `${registry.host}/shop/app:1`
      },
      missing: 'localhost:1/no/such:1',
    },
  })
  // After what the suite itself ends.
  after(async () => {
    await endMetrics()
    await revokeAccess(admin)
    await registry.close()
    admin.close()
  })
})
