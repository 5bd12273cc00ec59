/** Orders against certificate authorities that work, are invalid, silent or unwilling, on a clock that tests move. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService } from '../../test/support/engine.ts'
import { day, domain, hostOf, newScene, type Row, type Scene } from '../../test/support/tls/orders.ts'
import { until } from '../../test/support/until.ts'
import { newId } from '../lib/ids.ts'
import { OutboundFailed } from '../lib/net/outbound.ts'
import { AuthorityProblem, type CertificateAuthority } from './authority.ts'
import { attempt, renewalAt } from './order.ts'
import { claimDue, followHosts } from './rows.ts'

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
  // The clock has advanced a little since.
  assert.ok(pauses[0]! > 1.8 && pauses[1]! > 3.8 && pauses[3]! > 15.8, String(pauses))
  assert.ok(pauses[2]! > 299, 'Retry-After counts')
  assert.equal((await scene.row()).failures, 4)
  scene.ca.state.verdict = 'valid'
  assert.equal(await scene.work(), 1)
  const last = await scene.row()
  assert.deepEqual([last.problem, last.failures], [null, 0])
  assert.notEqual(last.chain, chain)
})

/** The calls of a successful order. */
const calls = ['order', 'look', 'answer', 'look', 'finalize', 'look', 'certificate'] as const

/** The process dies at this call, before or after the CA has received it. */
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
      // An answer that is sent twice may be refused; then the next attempt follows after a pause.
      for (let turn = 0; turn < 3 && (await scene.row()).chain === null; turn += 1) {
        await scene.work()
        await clock.advance(600_000)
      }
      assert.match((await scene.row()).chain!, /BEGIN CERTIFICATE/, `death at ${deathAt}, ${name}`)
      // The address of an order is known by its answer alone.
      const orders = name === 'order' && isHeard ? 2 : 1
      assert.equal(fake.orders.size, orders, `orders after death at ${deathAt}, ${name}`)
    }
})

test('an answer that is refused because the CA is further by now fails nothing; a refusal of a needed one is reported', async () => {
  for (const isFurther of [true, false]) {
    const scene = await newScene()
    const { answer } = scene.ca.authority
    scene.ca.authority.answer = async (url, signal) => {
      if (isFurther) await answer(url, signal)
      throw new AuthorityProblem('refused', 'The certificate authority refused: only status pending')
    }
    await scene.work()
    const { chain, problem } = await scene.row()
    assert.deepEqual(
      [chain !== null, problem?.message.includes('only status pending') ?? false],
      [isFurther, !isFurther],
    )
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
  await followHosts(database, { domain, apiHost: undefined, hasDns: false })
  assert.equal(await scene.row(), undefined)
  await database.query(
    `insert into route (host, organization_id, environment_id, service_id, port) values ($1, $2, $3, $4, $5)`,
    [scene.host, scene.world.ids.organizationId, scene.world.ids.environmentId, scene.id, kept!.port],
  )
  await followHosts(database, { domain, apiHost: undefined, hasDns: false })
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
  await followHosts(scene.world.database, { domain, apiHost: undefined, hasDns: false })
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
  await followHosts(full.world.database, { domain, apiHost: 'api.example.test', hasDns: false })
  await full.work()
  assert.match((await full.row(hostOf(next))).problem!.message, /The limit is 1 certificates/)
  assert.match((await full.row('api.example.test')).chain!, /BEGIN/, 'the installation has no organization')
})
