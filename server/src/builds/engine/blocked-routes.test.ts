import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  blockedRoutes,
  formatNetwork,
  type NetworkLayout,
  parseNetwork,
  subtract,
  usualPools,
} from './blocked-routes.ts'

const network = (text: string) => parseNetwork(text)!

const around = (more: Partial<Record<keyof NetworkLayout, string[]>>): NetworkLayout => {
  const list = (name: keyof NetworkLayout) => (more[name] ?? []).map(network)
  return {
    own: network('172.20.0.0/16'),
    gateway: network('172.20.0.1'),
    pools: usualPools,
    networks: list('networks'),
    addresses: list('addresses'),
    neighbours: list('neighbours'),
    allowed: list('allowed'),
  }
}

/** True when the most specific route for an address is a blocked one; the build's own network is open. */
const isBlocked = (routes: string[], address: string): boolean => {
  const inside = (text: string) => subtract(network(address), [network(text)]).length === 0
  const bits = (text: string) => Number(text.split('/')[1])
  const closed = Math.max(-1, ...routes.filter(inside).map(bits))
  return closed >= (inside('172.20.0.0/16') ? 16 : 0)
}

test('networks are read and written, and taken from each other', () => {
  assert.equal(formatNetwork(network('10.1.2.3/8')), '10.0.0.0/8')
  for (const text of ['', '1.2.3', '1.2.3.4/33', '256.1.1.1', '::1', 'a.b.c.d'])
    assert.equal(parseNetwork(text), null, text)
  const left = (from: string, ...others: string[]) => subtract(network(from), others.map(network)).map(formatNetwork)
  assert.deepEqual(left('10.0.0.0/8', '11.0.0.0/8'), ['10.0.0.0/8'])
  assert.deepEqual(left('10.0.0.0/8', '10.0.0.0/8'), [])
  assert.deepEqual(left('10.0.0.0/30', '10.0.0.1'), ['10.0.0.0/32', '10.0.0.2/31'])
})

const cases: [what: string, more: Partial<Record<keyof NetworkLayout, string[]>>, blocked: string[], open: string[]][] =
  [
    [
      'a machine as it usually is',
      { networks: ['172.17.0.0/16', '10.224.192.0/22', '10.99.0.0/24'], addresses: ['192.0.2.2', '172.17.0.1'] },
      [
        '169.254.169.254',
        '100.100.100.200',
        '172.20.0.1',
        '172.17.0.1',
        '172.31.255.1',
        '192.168.16.1',
        '10.224.192.1',
        '10.255.0.1',
        '10.99.0.1',
        '192.0.2.2',
      ],
      ['8.8.8.8', '172.20.0.2', '192.0.2.1', '10.0.0.1'],
    ],
    [
      'a machine in a network that the engine would take from',
      { neighbours: ['192.168.1.0/24', '172.31.16.0/20'], addresses: ['192.168.1.10', '172.31.16.5'] },
      ['192.168.1.10', '172.31.16.5', '192.168.16.1', '172.30.0.1'],
      ['192.168.1.20', '192.168.2.20', '172.31.0.2'],
    ],
    [
      'a network that the operator allows, but for this machine in it',
      { allowed: ['192.168.64.0/24'], addresses: ['192.168.64.9'] },
      ['192.168.65.1', '192.168.64.9'],
      ['192.168.64.1'],
    ],
  ]

for (const [what, more, blocked, open] of cases)
  test(`a build does not reach what it may not: ${what}`, () => {
    const routes = blockedRoutes(around(more))
    for (const address of blocked) assert.equal(isBlocked(routes, address), true, address)
    for (const address of open) assert.equal(isBlocked(routes, address), false, address)
    assert.ok(routes.length < 200)
    assert.ok(!routes.includes('172.20.0.0/16'))
  })

test('the routes of a build do not show which networks there are in ranges that are blocked as a whole', () => {
  const machine = {
    addresses: ['192.0.2.2', '172.17.0.1', '10.224.192.1'],
    networks: ['172.17.0.0/16', '10.224.192.0/22'],
  }
  const more = ['10.193.4.0/22', '172.29.0.0/16', '192.168.16.0/20']
  const crowded = {
    addresses: [...machine.addresses, '10.193.4.1', '172.29.0.1'],
    networks: [...machine.networks, ...more],
  }
  assert.deepEqual(blockedRoutes(around(crowded)), blockedRoutes(around(machine)))
})
