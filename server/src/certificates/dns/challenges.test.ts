/**
 * Wildcards: one order for all names of a level, with a DNS provider that works, is slow, refuses, or is no longer
 * configured.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService } from '../../../test/support/engine.ts'
import { day, domain, hostOf, log, newScene, type Scene } from '../../../test/support/tls/orders.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'
import { attempt, type OrderParts } from '../order.ts'
import { claimDue, followHosts } from '../rows.ts'
import { createDnsChallenges } from './challenges.ts'
import { DnsProblem, type DnsProblemKind, type TxtRecord } from './provider.ts'

const wildcard = `*.${domain}`
const name = `_acme-challenge.${domain}`
const { signal } = new AbortController()

/** A provider whose name servers answer a new record only after some queries. */
const createFakeDns = ({ database, clock }: OrderParts) => {
  const records: TxtRecord[] = []
  const state = { problem: null as DnsProblemKind | null, looksLeft: 2, silent: ['dead:53'], sets: 0 }
  const step = async (): Promise<void> => {
    if (state.problem !== null) throw new DnsProblem(state.problem)
  }
  const challenges = createDnsChallenges({
    ...{ database, clock, log },
    provider: {
      check: step,
      async set(record) {
        await step()
        state.sets += 1
        records.push(record)
      },
      async remove({ value }) {
        await step()
        records.splice(0, records.length, ...records.filter((each) => each.value !== value))
      },
    },
    nameServers: {
      of: async () => ['one:53', 'two:53', ...state.silent],
      async texts(server) {
        if (state.silent.includes(server)) return null
        if (server === 'two:53' && state.looksLeft-- > 0) return []
        return records.map(({ value }) => value)
      },
    },
  })
  return { records, state, challenges }
}

const newDnsScene = async () => {
  let dns: ReturnType<typeof createFakeDns>
  const scene = await newScene((base) => {
    dns = createFakeDns(base)
    return { dns: dns.challenges }
  })
  return { scene, dns: dns! }
}

const hostsOf = async ({ world }: Scene): Promise<string[]> =>
  (await world.database.query<{ host: string }>('select host from certificate order by host')).map(({ host }) => host)

const leftIn = async ({ world }: Scene): Promise<TxtRecord[]> =>
  world.database.query<TxtRecord>('select name, value from dns_record')

test('all names of a level share one certificate, for which name servers are waited and records are removed', async () => {
  const { scene, dns } = await newDnsScene()
  const other = await addService(scene.world)
  await scene.world.database.query('update route set host = $2 where service_id = $1', [other, hostOf(other)])
  const names = { domain, apiHost: `api.${domain}`, hasDns: true }
  await followHosts(scene.world.database, names)
  assert.deepEqual(await hostsOf(scene), [wildcard])
  assert.equal(await scene.work(), 1)
  const row = await scene.row(wildcard)
  assert.match(row.chain!, /BEGIN CERTIFICATE/)
  assert.deepEqual(
    [...scene.ca.orders.values()].map(({ host }) => host),
    [wildcard],
  )
  assert.ok(dns.state.looksLeft < 0, 'asked before all name servers had it')
  assert.deepEqual([dns.records.map((each) => each.name), (await leftIn(scene)).length], [[name], 1])
  // A provider that does not answer is asked again.
  dns.state.problem = 'silent'
  await assert.rejects(dns.challenges.sweep(signal), DnsProblem)
  dns.state.problem = null
  await scene.clock.advance(6 * 60_000)
  await dns.challenges.sweep(signal)
  assert.deepEqual([dns.records, await leftIn(scene)], [[], []])
})

test('a provider that denies, limits or forgets leaves what is served, says why, and costs no order', async () => {
  const { scene, dns } = await newDnsScene()
  await scene.work()
  const { chain } = await scene.row(wildcard)
  await scene.clock.advance(61 * day)
  const words: [DnsProblemKind, RegExp][] = [
    ['denied', /refuses the credentials/],
    ['zone', /has no zone/],
    ['limited', /limits requests/],
    ['silent', /did not answer/],
  ]
  for (const [kind, sentence] of words) {
    dns.state.problem = kind
    assert.equal(await scene.work(), 1, kind)
    const row = await scene.row(wildcard)
    assert.deepEqual([row.chain, row.problem!.code, scene.ca.orders.size], [chain, 'provider', 1])
    assert.match(row.problem!.message, sentence)
    await scene.clock.advance(row.next_at.getTime() - scene.clock.now().getTime())
  }
  dns.state.problem = null
  // Its name servers never have it: it is set again, and given up after a while.
  dns.state.looksLeft = 10_000
  dns.state.sets = 0
  await scene.work()
  assert.match((await scene.row(wildcard)).problem!.message, /do not answer the DNS record/)
  assert.ok(dns.state.sets > 2, String(dns.state.sets))
  dns.state.looksLeft = 0
  for (let turn = 0; turn < 3 && (await scene.row(wildcard)).chain === chain; turn += 1) {
    await scene.clock.advance(day)
    await scene.work()
  }
  assert.notEqual((await scene.row(wildcard)).chain, chain)
})

test('a process that dies with a record set leaves it to another one, which uses it or removes it', async () => {
  for (const isWanted of [true, false]) {
    const { scene, dns } = await newDnsScene()
    const { database } = scene.world
    const { claimed } = await claimDue(database, newId(), 1, scene.clock.now())
    let isDead = false
    const authority = {
      ...scene.parts.authority,
      answer: () => {
        isDead = true
        return new Promise<void>(() => {})
      },
    }
    void attempt({ ...scene.parts, authority }, claimed[0]!, signal).catch(() => {})
    while (!isDead) {
      await until(() => isDead || scene.clock.sleeping() > 0, { what: 'the next pause of the order' })
      await scene.clock.advance(1000)
    }
    await dns.challenges.sweep(signal)
    assert.equal(dns.records.length, 1, 'an order needs it')
    await database.query(`update certificate set lease_until = '-infinity'`)
    if (isWanted) assert.equal(await scene.work(), 1)
    else {
      await database.query('delete from route')
      await followHosts(database, { domain, apiHost: undefined, hasDns: true })
    }
    assert.equal((await scene.row(wildcard))?.chain != null, isWanted)
    await dns.challenges.sweep(signal)
    assert.deepEqual([dns.records, await leftIn(scene)], [[], []])
    assert.equal(scene.ca.orders.size, 1)
  }
})

test('certificates of single names are served until the wildcard is there, and the other way round', async () => {
  const { scene } = await newDnsScene()
  const { database } = scene.world
  const names = { domain, apiHost: undefined }
  const has = async (): Promise<string[]> =>
    (await database.query<{ host: string }>('select host from certificate where chain is not null order by host')).map(
      ({ host }) => host,
    )
  await followHosts(database, { ...names, hasDns: false })
  assert.deepEqual(await hostsOf(scene), [scene.host])
  await scene.work()
  await followHosts(database, { ...names, hasDns: true })
  assert.deepEqual([await hostsOf(scene), await has()], [[wildcard, scene.host].sort(), [scene.host]])
  await scene.work()
  await followHosts(database, { ...names, hasDns: true })
  assert.deepEqual(await hostsOf(scene), [wildcard])
  await followHosts(database, { ...names, hasDns: false })
  assert.deepEqual([await hostsOf(scene), await has()], [[wildcard, scene.host].sort(), [wildcard]])
  // The host waits as long as its last order asks for.
  await scene.clock.advance(2 * 60_000)
  await scene.work()
  await followHosts(database, { ...names, hasDns: false })
  assert.deepEqual([await hostsOf(scene), await has()], [[scene.host], [scene.host]])
})

test('a wildcard without a DNS provider waits and says what is missing', async () => {
  const scene = await newScene()
  await scene.world.database.query('insert into certificate (host) values ($1)', [wildcard])
  await scene.work()
  assert.match((await scene.row(wildcard)).problem!.message, /needs a DNS provider: .*SLIPWAY_ACME_DNS_PROVIDER/)
})
