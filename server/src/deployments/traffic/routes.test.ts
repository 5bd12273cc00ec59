import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { WorkloadPort } from '../../runtimes/runtime.ts'
import { exposureFor } from './routes.ts'

const serviceId = 'a'
const open = (internalPort: number, protocol: WorkloadPort['protocol'], externalPort?: number): WorkloadPort => ({
  internalPort,
  protocol,
  publiclyAccessible: true,
  ...(externalPort === undefined ? {} : { externalPort }),
})
const hosts = [{ host: 'a.localhost', serviceId, port: 80, protocol: 'HTTP' as const, isMain: true }]
const outside = [
  { serviceId, protocol: 'TCP' as const, port: 30_000 },
  { serviceId, protocol: 'UDP' as const, port: 30_001 },
  { serviceId, protocol: 'TCP' as const, port: 30_002 },
]
const ports = [open(80, 'HTTP'), open(53, 'TCP', 30_000), open(53, 'UDP', 30_001), open(99, 'TCP', 40_000)]

test('a service is published at its hosts and at those of its own published ports that the version has', () => {
  assert.deepEqual(exposureFor({ hosts, outside }, ports), {
    hosts: [{ host: 'a.localhost', internalPort: 80, protocol: 'HTTP' }],
    ports: [
      { protocol: 'TCP', externalPort: 30_000, internalPort: 53 },
      { protocol: 'UDP', externalPort: 30_001, internalPort: 53 },
    ],
  })
  const hidden = ports.map((port) => ({ ...port, publiclyAccessible: false }))
  assert.deepEqual(exposureFor({ hosts, outside }, hidden).ports, [])
  assert.deepEqual(exposureFor({ hosts, outside }, []).ports, [])
})

test('a version from before a port was changed keeps answering at its host: at its only web port', () => {
  const [at] = exposureFor({ hosts, outside: [] }, [open(8080, 'HTTP'), open(53, 'TCP')]).hosts
  assert.equal(at!.internalPort, 8080)
  const [none] = exposureFor({ hosts, outside: [] }, [open(8080, 'HTTP'), open(8081, 'HTTP')]).hosts
  assert.equal(none!.internalPort, 80)
})

test('a main host leads below their paths to all public ports that have one, the address of a port to that port alone', () => {
  const paths = [
    open(80, 'HTTP'),
    { ...open(81, 'HTTP'), publicPath: '/api', publicPathRewrite: '/' },
    { ...open(82, 'HTTP'), publicPath: '/inner', publiclyAccessible: false },
  ]
  const port = { host: 'p81-a.localhost', serviceId, port: 81, protocol: 'HTTP' as const, isMain: false }
  assert.deepEqual(exposureFor({ hosts: [...hosts, port], outside: [] }, paths, { sticky: true }), {
    hosts: [
      { host: 'a.localhost', internalPort: 80, protocol: 'HTTP' },
      { host: 'a.localhost', internalPort: 81, protocol: 'HTTP', path: '/api', rewrite: '/' },
      { host: 'p81-a.localhost', internalPort: 81, protocol: 'HTTP', path: '/api', rewrite: '/' },
    ],
    ports: [],
    policy: { sticky: true },
  })
})
