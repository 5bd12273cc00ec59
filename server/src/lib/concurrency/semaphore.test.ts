import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createSemaphore } from './semaphore.ts'

const never = new AbortController().signal
const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

/** Builds that end on command, in the order in which they began. */
const scene = (places: number, each = Math.max(1, places - 1), most = places) => {
  const withPlace = createSemaphore(places, each, most)
  const begun: string[] = []
  const ends: (() => void)[] = []
  const told: number[] = []
  return {
    begun,
    told,
    add: (who: string, signal = never) =>
      withPlace(
        who,
        () => {
          begun.push(who)
          return new Promise<void>((resolve) => ends.push(resolve))
        },
        { signal, onWait: (running) => told.push(running) },
      ),
    endFirst: async () => {
      ends.shift()!()
      await turn()
    },
  }
}

for (const places of [1, 2, 4])
  test(`with ${places} places, a newcomer while another floods the queue waits for one end at most`, async () => {
    const { add, begun, endFirst } = scene(places)
    for (let count = 0; count < 50; count += 1) void add('flood')
    void add('other')
    await turn()
    assert.ok(begun.filter((who) => who === 'flood').length <= Math.max(1, places - 1))
    if (places === 1) await endFirst()
    assert.ok(begun.includes('other'), begun.join())
  })

test('a first place is had at once, however many others have taken all, up to the most in all', async () => {
  const { add, begun, endFirst } = scene(4, 2, 6)
  for (const who of ['a', 'a', 'a', 'b', 'b', 'b', 'c', 'c', 'd', 'e']) void add(who)
  await turn()
  assert.deepEqual(begun, ['a', 'a', 'b', 'b', 'c', 'd'])
  await endFirst()
  assert.equal(begun.at(-1), 'e')
  await endFirst()
  assert.equal(begun.at(-1), 'a', 'both of its first ones have ended')
  await endFirst()
  // One of b's has ended. It gets a second one only while fewer than four run.
  assert.equal(begun.length, 8)
})

test('waiters are served in turns, in whatever order they came', async () => {
  const { add, begun, endFirst } = scene(1)
  for (const who of ['a', 'a', 'a', 'b', 'b', 'c']) void add(who)
  await turn()
  for (let count = 0; count < 5; count += 1) await endFirst()
  assert.deepEqual(begun, ['a', 'b', 'c', 'a', 'b', 'a'])
})

test('a waiter gets the number of running works, and one that gives up leaves no hole', async () => {
  const { add, begun, told, endFirst } = scene(1)
  void add('a')
  const control = new AbortController()
  const given = add('b', control.signal)
  void add('c')
  await turn()
  assert.deepEqual(told, [1, 1])
  control.abort(new Error('given up'))
  await assert.rejects(given, /given up/)
  await endFirst()
  assert.deepEqual(begun, ['a', 'c'])
})
