import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFakeClock } from '../../../test/support/fake-clock.ts'
import type { Policy } from '../policy.ts'
import { type Comparisons, createComparisons } from './comparisons.ts'
import { createLogins } from './logins.ts'
import { createRulebook } from './rules.ts'

const hash = '$2b$04$/A3/4GvmJiE5suNNvkVKdOC4iSN0mNqIsyCXTxEvHNn.h1b1.g1KO'
const ada = { name: 'ada', hash }
const login = (password: string): string => `Basic ${Buffer.from(`ada:${password}`).toString('base64')}`
const address = '203.0.113.1'
const placeOf = (serviceId: string, party = serviceId) => ({ serviceId, party })
const [placeA, placeB] = [placeOf('a'), placeOf('b')]

/** A thread that answers when the test lets it, and records its questions in order. */
const byHand = () => {
  const asked: string[] = []
  const answers: ((isRight: boolean) => void)[] = []
  const compare = (_hash: string, password: string): Promise<boolean> => {
    asked.push(password)
    return new Promise((resolve) => answers.push(resolve))
  }
  const clock = createFakeClock()
  const next = async (isRight = false): Promise<void> => {
    await clock.rest()
    answers.shift()!(isRight)
    await clock.rest()
  }
  return { asked, next, clock, comparisons: createComparisons(compare, clock) }
}

const atOnce: Comparisons = { compare: async (_service, _hash, password) => password === 'secret' }

test('a password is compared with the hash of its user, in a thread', async () => {
  const logins = createLogins(placeA, [ada], createComparisons())
  assert.equal(await logins.check(login('secret'), address), 'right')
  assert.equal(await logins.check(login('wrong'), address), 'wrong')
  assert.equal(logins.check(login('secret'), address), 'right', 'without a comparison')
  assert.equal(logins.check(undefined, address), 'wrong')
})

test('a login waits for one comparison of another service, however many that has waiting', async () => {
  const { asked, next, comparisons } = byHand()
  const flood = Array.from({ length: 20 }, (_, n) => comparisons.compare(placeB, hash, `wrong ${n}`))
  const own = comparisons.compare(placeA, hash, 'secret')
  await next()
  await next(true)
  assert.equal(await own, true)
  assert.deepEqual(asked.slice(0, 2), ['wrong 0', 'secret'])
  // Those beyond the limit of one service are refused at once.
  assert.deepEqual(await Promise.all(flood.slice(8)), Array(12).fill(null))
})

test('a login waits for one comparison of another organization, at however many of its services passwords are tried', async () => {
  const { asked, next, comparisons } = byHand()
  const flood = Array.from({ length: 40 }, (_, n) => comparisons.compare(placeOf(`b${n}`, 'B'), hash, `wrong ${n}`))
  const own = comparisons.compare(placeOf('a', 'A'), hash, 'secret')
  await next()
  await next(true)
  assert.equal(await own, true)
  assert.deepEqual(asked.slice(0, 2), ['wrong 0', 'secret'])
  // Within one organization each service has its turn.
  const twice = comparisons.compare(placeOf('b1', 'B'), hash, 'twice')
  for (let n = 2; n <= 40; n += 1) await next()
  await next(true)
  assert.equal(await twice, true)
  assert.deepEqual(await Promise.all(flood), Array(40).fill(false))
  assert.equal(asked.at(-1), 'twice')
})

test('a login that has waited for a second is refused and may be retried', async () => {
  const { asked, next, clock, comparisons } = byHand()
  const long = comparisons.compare(placeB, hash, 'long')
  const own = comparisons.compare(placeA, hash, 'secret')
  await clock.advance(1000)
  assert.equal(await own, null)
  // A comparison that has begun is finished, and blocks no one afterwards.
  await next(true)
  assert.equal(await long, true)
  const again = comparisons.compare(placeA, hash, 'secret')
  await next(true)
  assert.deepEqual([await again, asked], [true, ['long', 'secret']])
})

test('all hosts of a service have one set of logins, which outlasts a change of its routes', () => {
  const book = createRulebook(atOnce)
  const policy = (): Policy => ({ users: [`ada:${hash}`] })
  const loginsOf = (serviceId: string, from = policy()) => book.rulesOf(from, placeOf(serviceId)).logins
  const first = loginsOf('a')
  assert.ok(first !== null)
  assert.equal(loginsOf('a'), first)
  assert.notEqual(loginsOf('b'), first)
  assert.notEqual(loginsOf('a', { users: [`bob:${hash}`] }), first)
  book.tidy()
  assert.equal(loginsOf('a'), first)
  book.tidy()
  book.tidy()
  assert.notEqual(loginsOf('a'), first, 'of a service that has gone nothing is kept')
})

test('wrong passwords, however many, put out none that was right', async () => {
  const logins = createLogins(placeA, [ada], atOnce, createFakeClock())
  assert.equal(await logins.check(login('secret'), address), 'right')
  for (let n = 0; n < 1500; n++)
    assert.equal(await logins.check(login(`wrong ${n}`), `198.51.${n >> 8}.${n & 255}`), 'wrong')
  assert.equal(logins.check(login('secret'), address), 'right')
})

test('one client may be wrong so often, which hinders neither others nor what was right before', async () => {
  const clock = createFakeClock()
  const logins = createLogins(placeA, [ada], atOnce, clock)
  assert.equal(await logins.check(login('secret'), address), 'right')
  const found: unknown[] = []
  for (let n = 0; n < 32; n++) found.push(await logins.check(login(`wrong ${n}`), address))
  assert.deepEqual(found, [...Array(30).fill('wrong'), 'tried', 'tried'])
  assert.equal(logins.check(login('secret'), address), 'right')
  assert.equal(await logins.check(login('wrong 0'), address), 'wrong')
  assert.equal(await logins.check(login('wrong x'), '203.0.113.2'), 'wrong')
  // An IPv6 network is one client.
  for (let n = 0; n < 30; n++) await logins.check(login(`other ${n}`), `2001:db8:1:2::${n.toString(16)}`)
  assert.equal(await logins.check(login('other x'), '2001:db8:1:2:ffff::1'), 'tried')
  await clock.advance(2000)
  assert.equal(await logins.check(login('wrong y'), address), 'wrong')
})
