/**
 * A process that answers as the Docker engine of a cluster would whose owner wants to stop the server: it lists 19,000
 * containers, and reports events of them as fast as they are read. Started with the paths of a certificate and its key;
 * prints its port.
 */
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

const labelsOf = (id: string) => ({
  ...{ 'slipway.service': id, 'slipway.environment': id, 'slipway.revision': 'r1', 'slipway.index': '0' },
  'slipway.organization': id,
})

const row = () => {
  const id = randomUUID()
  return {
    ...{ Id: id, Names: [`/slipway-${id}-r1-0`], State: 'running', Created: 1_700_000_000, Labels: labelsOf(id) },
    NetworkSettings: { Networks: {} },
  }
}

const containers = Buffer.from(JSON.stringify(Array.from({ length: 19_000 }, row)))

const event = () => {
  const id = randomUUID()
  const Attributes = { name: `slipway-${id}-r1-0`, exitCode: '1', ...labelsOf(id) }
  return JSON.stringify({ Action: 'die', Type: 'container', timeNano: 1.7e18, Actor: { ID: id, Attributes } })
}

const events = Buffer.from(`${Array.from({ length: 1000 }, event).join('\n')}\n`)

function* forever() {
  for (;;) yield events
}

const id = randomUUID()
const answers: Record<string, object> = {
  '/version': { Version: '28.0', ApiVersion: '1.48', Os: 'linux', Arch: 'amd64' },
  '/info': { ID: id, NCPU: 4, MemTotal: 8 * 2 ** 30, Architecture: 'x86_64', DefaultAddressPools: null },
  '/_ping': {},
  '/volumes': { Volumes: [] },
}

const listener: RequestListener = ({ url = '/' }, response) => {
  const path = new URL(url, 'http://engine.invalid').pathname.replace(/^\/v[\d.]+/, '')
  response.setHeader('content-type', 'application/json')
  if (path === '/events') return void pipeline(Readable.from(forever()), response).catch(() => {})
  response.end(path === '/containers/json' ? containers : JSON.stringify(answers[path] ?? []))
}

const [, , cert, key] = process.argv
const server = createServer({ cert: readFileSync(cert!), key: readFileSync(key!) }, listener)
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`))
