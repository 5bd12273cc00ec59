import assert from 'node:assert/strict'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { createResolve } from './name-lookup.ts'

const a = 1

/** A name server on loopback: addresses of some names, silence for those that begin with `silent`, and no other names. */
const serve = async (t: TestContext, names: Record<string, string>): Promise<string> => {
  const socket = createSocket('udp4')
  socket.on('message', (query, { port, address }) => {
    const labels: string[] = []
    let at = 12
    for (; query[at]! > 0; at += query[at]! + 1) labels.push(query.toString('latin1', at + 1, at + 1 + query[at]!))
    const name = labels.join('.').toLowerCase()
    if (name.startsWith('silent')) return
    const found = names[name]
    const isHere = found !== undefined && query.readUInt16BE(at + 1) === a
    const head = Buffer.from(query.subarray(0, 12))
    head.writeUInt16BE(found === undefined ? 0x8183 : 0x8180, 2)
    head.writeUInt16BE(isHere ? 1 : 0, 6)
    for (const count of [8, 10]) head.writeUInt16BE(0, count)
    const answer = isHere ? [0xc0, 12, 0, a, 0, 1, 0, 0, 0, 60, 0, 4, ...found.split('.').map(Number)] : []
    socket.send(Buffer.concat([head, query.subarray(12, at + 5), Buffer.from(answer)]), port, address)
  })
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  t.after(() => socket.close())
  return `127.0.0.1:${socket.address().port}`
}

const open = async (t: TestContext, names: Record<string, string>) => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-names-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const [hosts, config] = [join(folder, 'hosts'), join(folder, 'resolv.conf')]
  writeFileSync(hosts, '# a list\n10.0.0.1 listed.company Git.company # here\nfd00::1 git.company\n')
  writeFileSync(config, 'nameserver 192.0.2.1\nsearch . inner.company outer.company\n')
  const resolve = createResolve({ servers: [await serve(t, names)], hosts, config })
  return async (host: string): Promise<string[]> => (await resolve(host)).map(({ address }) => address)
}

test('a hundred names whose servers do not answer delay no other name', async (t) => {
  const resolve = await open(t, { 'www.shop.company': '10.0.0.7', 'www.shop.co.uk': '10.0.0.8' })
  // The last ones have all places of one owner.
  const names = Array.from({ length: 116 }, (_, index) => `silent-${index}${index < 100 ? '.company' : '.a.co.uk'}`)
  let silent = names.length
  const waiting = names.map((name) =>
    resolve(name).catch((error: { code: string }) => {
      silent -= 1
      return error.code
    }),
  )
  const others = await Promise.all([resolve('www.shop.company'), resolve('www.shop.co.uk')])
  assert.deepEqual(others.flat(), ['10.0.0.7', '10.0.0.8'])
  assert.equal(silent, names.length)
  assert.deepEqual([...new Set(await Promise.all(waiting))], ['ETIMEOUT'])
})

test('names are found in the list of hosts, over DNS and with the search suffixes; a missing one is reported as such', async (t) => {
  const resolve = await open(t, { 'listed.company': '10.0.0.9', 'db.team.outer.company': '10.0.0.8' })
  assert.deepEqual(await resolve('listed.company'), ['10.0.0.1'])
  assert.deepEqual(await resolve('git.company'), ['10.0.0.1', 'fd00::1'])
  assert.deepEqual(await resolve('db.team'), ['10.0.0.8'])
  await assert.rejects(resolve('nothing.company'), { code: 'ENOTFOUND' })
  assert.ok((await resolve('localhost')).every((address) => /^127\.|^::1$/.test(address)))
})
