import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { createWorkload } from '../../../../test/support/runtimes/conformance.ts'
import { standIn } from '../../../../test/support/stand-in.ts'
import type { Engine } from '../../../lib/docker/docker-engine.ts'
import type { Workload } from '../../runtime.ts'
import type { ContainerDetail } from '../containers.ts'
import { explainPort, parseListeners } from './listeners.ts'
import { createPortWatch } from './port-watch.ts'

const head = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n'
const row = (address: string, port: number, state = '0A'): string => {
  const zeros = '0'.repeat(address.length)
  const local = `${address}:${port.toString(16).toUpperCase().padStart(4, '0')}`
  return `   0: ${local} ${zeros}:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n`
}
const any = '00000000'
const loopback = '0100007F'
const loopback6 = '00000000000000000000000001000000'
const any6 = '0'.repeat(32)
const mapped = '0000000000000000FFFF00000100007F'

test('listening sockets are read from the table, the name server of the engine and connections are not', () => {
  const text = head + row(any, 8080) + row(loopback, 9229) + row('0B00007F', 41_234) + row(any, 5432, '01') + head
  assert.deepEqual(parseListeners(text + row(any6, 8080) + row(loopback6, 3000) + row(mapped, 3001)), [
    { reach: 'loopback', host: '::1', port: 3000 },
    { reach: 'loopback', host: '127.0.0.1', port: 3001 },
    { reach: 'any', host: '0.0.0.0', port: 8080 },
    { reach: 'any', host: '::', port: 8080 },
    { reach: 'loopback', host: '127.0.0.1', port: 9229 },
  ])
})

test('a text without such a table has no listeners', () => {
  const nonsense = ['', 'cat: not found', '0: 0:1F90 0:0 0A ', `${row(any, 80).slice(0, 20)}\n`, '\0'.repeat(1000)]
  for (const text of nonsense) assert.deepEqual(parseListeners(text), [])
})

const cases: [string, string, number[], string | null, RegExp | null][] = [
  ['it listens there', row(any, 3000), [], null, null],
  ['it listens there over IPv6', row(any6, 3000), [], null, null],
  ['at its own address', row('0900C00A', 3000), [], null, null],
  ['another port', row(any, 8080), [], 'elsewhere', /^Nothing listens on port 3000; the program listens on 8080\. /],
  ['two others', row(any, 81) + row(any, 80), [], 'elsewhere', /listens on 80 and 81\. /],
  ['only inside', row(loopback, 3000), [], 'loopback', /listens on 127\.0\.0\.1:3000 only.*listen on 0\.0\.0\.0\.$/],
  ['only inside, IPv6', row(loopback6, 3000), [], 'loopback', /listens on ::1:3000 only/],
  ['another one inside', row(loopback, 9229), [], 'nothing', /listens on 127\.0\.0\.1:9229 only/],
  ['nothing', '', [], 'nothing', /^Nothing listens on port 3000 yet\.$/],
  ['nothing, but a hint', '', [80], 'nothing', /yet\. Its image exposes 80\.$/],
]

for (const [name, table, exposed, kind, expected] of cases)
  test(`a port without an answer: ${name}`, () => {
    const finding = explainPort(3000, parseListeners(head + table), exposed)
    assert.equal(finding?.kind ?? null, kind)
    if (expected !== null) assert.match(finding!.text, expected)
  })

test('the table that a command in the container prints is read whole, up to 256 KiB', async () => {
  const read = async (count: number): Promise<string | null> => {
    const table = Buffer.from(head + row(any, 80, '01').repeat(count) + row(any, 8080))
    const frame = Buffer.alloc(8)
    frame.writeUInt32BE(table.length, 4)
    const call = async () => ({ Id: 'exec', ExitCode: 0 })
    const engine = standIn<Engine>({ call, stream: async () => Readable.from([frame, table]) })
    const detail = { Id: 'a', State: { Running: true, Pid: 0 }, Config: {} } as ContainerDetail
    const ports: Workload['ports'] = [{ internalPort: 3000, protocol: 'TCP', publiclyAccessible: false }]
    const workload = createWorkload({ image: 'x', entrypoint: [], arguments: [] }, { ports })
    const watch = createPortWatch(engine, { inspect: async () => detail })
    return watch.why(workload, { id: 'a', endpoints: {} }, new AbortController().signal)
  }
  assert.match((await read(500)) ?? '', /the program listens on 8080\./)
  assert.match((await read(3000)) ?? '', /^nothing listens on port 3000 yet\.$/)
})
