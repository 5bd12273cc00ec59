import assert from 'node:assert/strict'
import { test } from 'node:test'
import { clientOf } from './client-network.ts'

test('an IPv4 address is a client, and so is a network of IPv6', () => {
  const cases: [string, string][] = [
    ['203.0.113.7', '203.0.113.7'],
    ['::ffff:203.0.113.7', '203.0.113.7'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:0DB8:1:2::', '2001:db8:1:2'],
    ['2001:db8::6', '2001:db8:0:0'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['::1', '0:0:0:0'],
  ]
  for (const [address, client] of cases) assert.equal(clientOf(address), client)
})
