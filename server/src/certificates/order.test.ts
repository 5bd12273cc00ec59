/** Orders against certificate authorities that are good, invalid, silent and in no mood, on a clock that tests move. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { addService, createWorld, partsOf, type World } from '../../test/support/engine.ts'
import { createFakeClock, type FakeClock } from '../../test/support/fake-clock.ts'
import { createTestCa } from '../../test/support/tls/test-ca.ts'
import { until } from '../../test/support/until.ts'
import { newId } from '../lib/ids.ts'
import { createLog } from '../lib/log.ts'
import { OutboundFailed } from '../lib/net/outbound.ts'
import { createAccountKey } from './account-key.ts'
import { AuthorityProblem, type CertificateAuthority, type OrderView } from './authority.ts'
import { attempt, type OrderParts, renewalAt } from './order.ts'
import { claimDue, followHosts, type Wanted } from './rows.ts'

const ca = await createTestCa()
const day = 86_400_000
const domain = 'apps.example.test'
const log = createLog('silent')

interface Order {
  host: string
  status: OrderView['status']
  problem: string | null
  chain: string
}

/** What it does is said before each of its calls. */
const createFakeCa = (clock: FakeClock) => {
  const orders = new Map<string, Order>()
  const told: string[] = []
  const state = { refusal: null as Error | null, verdict: 'valid' as 'valid' | 'invalid' | 'never', calls: 0 }
  const orderOf = (url: string): Order => {
    const found = orders.get(url)
    if (found === undefined) throw new AuthorityProblem('gone', 'The certificate authority refused: no such order')
    return found
  }
  const step = async (): Promise<void> => {
    state.calls += 1
    if (state.refusal !== null) throw state.refusal
  }
  const authority: CertificateAuthority = {
    async order(host) {
      await step()
      const url = `order-${orders.size + 1}`
      orders.set(url, { host, status: 'pending', problem: null, chain: '' })
      return url
    },
    async look(url) {
      await step()
      const { host, status, problem } = orderOf(url)
      const challenge = {
        kind: 'http-01' as const,
        token: `t-${host}`,
        answer: `t-${host}.print`,
        url,
        isAnswered: false,
      }
      return { status, challenge: status === 'pending' ? challenge : null, problem }
    },
    async answer(url) {
      await step()
      const order = orderOf(url)
      if (state.verdict === 'never') return
      order.status = state.verdict === 'valid' ? 'ready' : 'invalid'
      order.problem = state.verdict === 'valid' ? null : 'Connection refused'
    },
    createKey: createAccountKey,
    async finalize(url, host, key) {
      await step()
      const life = { notBefore: clock.now(), notAfter: new Date(clock.now().getTime() + 90 * day) }
      Object.assign(orderOf(url), { status: 'valid', chain: await ca.certify(host, key, life) })
    },
    async certificate(url) {
      await step()
      return orderOf(url).chain
    },
    alpnPair: (host) => ca.issue(host),
  }
  return { authority, orders, told, state }
}

interface Row {
  host: string
  problem: { code: string; message: string } | null
  failures: number
  next_at: Date
  chain: string | null
  chain_key: string | null
  order_url: string | null
  challenge: unknown
}

interface Scene {
  world: World
  clock: FakeClock
  ca: ReturnType<typeof createFakeCa>
  parts: OrderParts
  row(host?: string): Promise<Row>
  /** Does what is due; how many there were. */
  work(): Promise<number>
}

const hostOf = (id: string): string => `${id}.${domain}`

const newScene = async (more: Partial<OrderParts> = {}): Promise<Scene & { id: string; host: string }> => {
  const world = await createWorld(await testDatabase())
  const { database } = world
  const clock = createFakeClock(new Date())
  const fake = createFakeCa(clock)
  const engineParts = partsOf(world, { off: false } as never)
  const parts: OrderParts = {
    ...{ database, sealer: engineParts.sealer, authority: fake.authority, clock, log },
    outbound: { addressesOf: async () => ['192.0.2.1'] },
    tellRouters: async (host) => void fake.told.push(host),
    ...{ challenge: 'http-01', mostCertificates: 10, random: () => 0 },
    ...more,
  }
  const id = await addService(world)
  await database.query('update route set host = $2 where service_id = $1', [id, hostOf(id)])
  await followHosts(database, { domain, apiHost: undefined })
  const run = async (wanted: Wanted): Promise<void> => {
    let isDone = false
    const done = attempt(parts, wanted, new AbortController().signal).finally(() => {
      isDone = true
    })
    // The order polls with pauses of its own.
    while (!isDone) {
      await until(() => isDone || clock.sleeping() > 0, { what: 'the next pause of the order' })
      await clock.advance(1000)
    }
    await done
  }
  return {
    ...{ world, clock, ca: fake, parts, id, host: hostOf(id) },
    async row(host = hostOf(id)) {
      const [row] = await database.query<Row>('select * from certificate where host = $1', [host])
      return row!
    },
    async work() {
      const { claimed } = await claimDue(database, newId(), 10, clock.now())
      for (const wanted of claimed) await run(wanted)
      return claimed.length
    },
  }
}

const minutesLeft = ({ clock }: Scene, { next_at: at }: Row): number => (at.getTime() - clock.now().getTime()) / 60_000

test('a host gets a certificate, and the next one at two thirds of its time; its key is sealed', async () => {
  const scene = await newScene()
  assert.equal(await scene.work(), 1)
  const first = await scene.row()
  assert.deepEqual([first.problem, first.failures, first.order_url, first.challenge], [null, 0, null, null])
  assert.match(first.chain!, /BEGIN CERTIFICATE/)
  assert.doesNotMatch(first.chain_key!, /BEGIN/)
  assert.ok(Math.abs(minutesLeft(scene, first) - 60 * 24 * 60) < 120, String(first.next_at))
  assert.ok(scene.ca.told.includes(scene.host))
  assert.equal(await scene.work(), 0)
  await scene.clock.advance(60 * day + 3_600_000)
  assert.equal(await scene.work(), 1)
  assert.notEqual((await scene.row()).chain, first.chain)
  const [begin, end] = [new Date(0), new Date(90 * day)]
  assert.ok(renewalAt(begin, end, 1) < renewalAt(begin, end, 0))
})

test('a CA that is invalid, limits us or says nothing leaves what is served, says why, and is left alone for longer', async () => {
  const scene = await newScene()
  await scene.work()
  const { chain } = await scene.row()
  await scene.clock.advance(61 * day)
  const pauses: number[] = []
  const fail = async (problem: RegExp, code: string): Promise<void> => {
    assert.equal(await scene.work(), 1)
    const row = await scene.row()
    assert.equal(row.chain, chain)
    assert.match(row.problem!.message, problem)
    assert.equal(row.problem!.code, code)
    pauses.push(minutesLeft(scene, row))
    await scene.clock.advance(row.next_at.getTime() - scene.clock.now().getTime())
  }
  scene.ca.state.verdict = 'invalid'
  await fail(/could not verify the host: Connection refused/, 'refused')
  scene.ca.state.refusal = new AuthorityProblem(
    'silent',
    'The certificate authority did not answer: no answer in time.',
  )
  await fail(/did not answer/, 'silent')
  scene.ca.state.refusal = new AuthorityProblem(
    'limited',
    'The certificate authority limits requests: too many',
    5 * 3_600_000,
  )
  await fail(/limits requests/, 'limited')
  scene.ca.state.refusal = null
  scene.ca.state.verdict = 'never'
  await fail(/did not finish the order in time/, 'silent')
  // The clock has gone on a little since.
  assert.ok(pauses[0]! > 1.8 && pauses[1]! > 3.8 && pauses[3]! > 15.8, String(pauses))
  assert.ok(pauses[2]! > 299, 'Retry-After counts')
  assert.equal((await scene.row()).failures, 4)
  scene.ca.state.verdict = 'valid'
  assert.equal(await scene.work(), 1)
  const last = await scene.row()
  assert.deepEqual([last.problem, last.failures], [null, 0])
  assert.notEqual(last.chain, chain)
})

/** Of an order that goes well. */
const calls = ['order', 'look', 'answer', 'look', 'finalize', 'look', 'certificate'] as const

/** The process ends at this call, before the CA has heard of it or after. */
const mortal = (authority: CertificateAuthority, deathAt: number, isHeard: boolean) => {
  const life = { calls: 0, isOver: false }
  const its = new Proxy(authority, {
    get(target, name) {
      const call = Reflect.get(target, name) as (...values: unknown[]) => Promise<unknown>
      if (!calls.includes(name as never)) return call
      return async (...values: unknown[]) => {
        const isLast = life.calls++ === deathAt
        if (!isLast) return call(...values)
        if (isHeard) await call(...values)
        life.isOver = true
        return new Promise(() => {})
      }
    },
  })
  return { authority: its, life }
}

test('a process that dies at any call to the CA leaves an order that another one finishes', async () => {
  for (const [deathAt, name] of calls.entries())
    for (const isHeard of [false, true]) {
      const scene = await newScene()
      const { clock, world, ca: fake } = scene
      const { claimed } = await claimDue(world.database, newId(), 1, clock.now())
      const { authority, life } = mortal(fake.authority, deathAt, isHeard)
      void attempt({ ...scene.parts, authority }, claimed[0]!, new AbortController().signal).catch(() => {})
      while (!life.isOver) {
        await until(() => life.isOver || clock.sleeping() > 0, { what: 'the next pause of the order' })
        await clock.advance(1000)
      }
      assert.equal(await scene.work(), 0, 'the lease holds')
      await world.database.query(`update certificate set lease_until = '-infinity'`)
      // An answer that was heard twice may be refused, and the next attempt is a pause later.
      for (let turn = 0; turn < 3 && (await scene.row()).chain === null; turn += 1) {
        await scene.work()
        await clock.advance(600_000)
      }
      assert.match((await scene.row()).chain!, /BEGIN CERTIFICATE/, `death at ${deathAt}, ${name}`)
      assert.ok(fake.orders.size <= 2, `${fake.orders.size} orders after death at ${deathAt}, ${name}`)
    }
})

test('two servers never work on one host at once', async () => {
  const { world, clock } = await newScene()
  const claims = await Promise.all(Array.from({ length: 4 }, () => claimDue(world.database, newId(), 10, clock.now())))
  assert.equal(claims.flatMap(({ claimed }) => claimed).length, 1)
})

test('a host that goes takes its certificate and key along; one that comes back waits as long as it had to', async () => {
  const scene = await newScene()
  const { database } = scene.world
  scene.ca.state.refusal = new AuthorityProblem(
    'limited',
    'The certificate authority limits requests: wait',
    9 * 3_600_000,
  )
  await scene.work()
  const before = await scene.row()
  const [kept] = await database.query<{ port: number }>('delete from route where service_id = $1 returning *', [
    scene.id,
  ])
  await followHosts(database, { domain, apiHost: undefined })
  assert.equal(await scene.row(), undefined)
  await database.query(
    `insert into route (host, organization_id, environment_id, service_id, port) values ($1, $2, $3, $4, $5)`,
    [scene.host, scene.world.ids.organizationId, scene.world.ids.environmentId, scene.id, kept!.port],
  )
  await followHosts(database, { domain, apiHost: undefined })
  const after = await scene.row()
  assert.deepEqual([after.next_at, after.failures], [before.next_at, 1])
  assert.equal(await scene.work(), 0)
})

test('a host that passes to another service starts over', async () => {
  const scene = await newScene()
  await scene.work()
  const other = await addService(scene.world)
  await scene.world.database.query('delete from route where service_id = $1', [other])
  await scene.world.database.query('update route set service_id = $2 where service_id = $1', [scene.id, other])
  await followHosts(scene.world.database, { domain, apiHost: undefined })
  assert.deepEqual([(await scene.row()).chain, (await scene.row()).chain_key], [null, null])
})

test('a host without an address, and one beyond the limit of its organization, are not ordered', async () => {
  const cause = Object.assign(new Error('no such name'), { code: 'ENOTFOUND' })
  const outbound = { addressesOf: () => Promise.reject(new OutboundFailed('unresolved', 'no address', cause)) }
  const nowhere = await newScene({ outbound })
  await nowhere.work()
  assert.match((await nowhere.row()).problem!.message, /has no address yet/)
  assert.deepEqual([nowhere.ca.state.calls, (await nowhere.row()).failures], [0, 0])
  const full = await newScene({ mostCertificates: 1 })
  await full.work()
  const next = await addService(full.world)
  await full.world.database.query('update route set host = $2 where service_id = $1', [next, hostOf(next)])
  await followHosts(full.world.database, { domain, apiHost: 'api.example.test' })
  await full.work()
  assert.match((await full.row(hostOf(next))).problem!.message, /The limit is 1 certificates/)
  assert.match((await full.row('api.example.test')).chain!, /BEGIN/, 'the installation has no organization')
})
