import { after, before, describe } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import { engine } from '../../../test/support/docker/docker.ts'
import { ensureNodeImage, nodeImage } from '../../../test/support/docker/node-image.ts'
import { handed, startImages, type TestImages } from '../../../test/support/docker/organization-images.ts'
import { conform, type Program } from '../../../test/support/runtimes/conformance.ts'
import { createLog } from '../../lib/log.ts'
import { createDockerRuntime } from './docker.ts'
import { execIn } from './exec.ts'

const shell = (script: string): Program => ({ image: busyboxImage, entrypoint: ['sh', '-c'], arguments: [script] })

const echo = `
const server = require('dgram').createSocket('udp4').on('message', (bytes, { port, address }) => server.send(bytes, port, address))
server.bind(8080)
require('http').createServer((_, answer) => answer.end('ok')).listen(8080)`

describe('docker runtime', () => {
  let images: TestImages
  before(async () => {
    await ensureBusybox()
    await ensureNodeImage()
    images = await startImages()
    const query = { repo: 'slipway-test-conformance', tag: '1' }
    await engine.call('POST', `/images/${busyboxImage}/tag`, { query })
  })
  after(async () => {
    await engine.call('DELETE', '/images/slipway-test-conformance:1', { query: { noprune: true } })
    await images.close()
    await engine.close()
  })
  conform({
    create: (ownerId, router) =>
      createDockerRuntime({ ownerId, router, images: handed(() => images), log: createLog('silent') }),
    programs: {
      serve: shell('mkdir -p /w; echo "$PAGE" > /w/index.html; exec httpd -f -p 8080 -h /w'),
      serveBoth: { image: nodeImage, entrypoint: ['/bin/node', '-e'], arguments: [echo] },
      distinct: shell('mkdir -p /w; hostname > /w/index.html; exec httpd -f -p 8080 -h /w'),
      neverReady: shell('echo waiting; exec sleep 1000'),
      crash: shell('echo about to fail >&2; exit 3'),
      talk: shell(
        'httpd -p 8080; i=1; while [ $i -le 200 ]; do echo "line $i"; [ $i -ge 5 ] && usleep 20000; i=$((i+1)); done; exec sleep 1000',
      ),
      task: shell('cat /proc/sys/kernel/random/uuid; echo one; sleep 0.3; echo two; exit 3'),
      endlessTask: shell('echo begun; exec sleep 1000'),
      writer: shell('cat /in/given; printf left > /out/left.txt'),
      keeper: shell('cat /in/kept; printf kept > /in/kept'),
      badWriter: shell('printf left > /out/left.txt; exit 3'),
      endlessWriter: shell('printf begun > /out/left.txt; echo begun; exec sleep 1000'),
    },
    readiness: {
      check: { kind: 'exec', command: ['test', '!', '-e', '/tmp/no'] },
      initialDelaySeconds: 0,
      periodSeconds: 1,
      timeoutSeconds: 5,
      successThreshold: 1,
      failureThreshold: 1,
    },
    async say(_runtime, { id }, isReady) {
      const command = isReady ? ['rm', '-f', '/tmp/no'] : ['touch', '/tmp/no']
      await execIn(engine, id, command, AbortSignal.timeout(10_000))
    },
    commands: {
      tell: (line) => ['sh', '-c', `echo ${line} > /proc/1/fd/1`],
      fail: ['sh', '-c', 'echo no >&2; exit 3'],
    },
    images: { held: 'docker.io/library/slipway-test-conformance:1', missing: 'localhost:1/no/such:1' },
  })
})
