/**
 * Promises about kinds that the compiler and the table keep. The first three tests fail in `npm run check`, before
 * anything runs.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Kind, type KindRow, kinds } from './kinds.ts'
import { serviceOf } from './resources/index.ts'

/** The words that a row could do without and still compile. */
type Optional = { [Word in keyof KindRow]-?: Omit<KindRow, Word> extends KindRow ? Word : never }[keyof KindRow]

test('a kind that lacks any word does not compile', () => {
  const none: [Optional] extends [never] ? true : Optional = true
  const { stage: _, ...rest } = kinds.job
  // @ts-expect-error Property 'stage' is missing
  const lacking: KindRow = rest
  assert.ok(none && lacking)
})

test('a kind without its file does not compile', () => {
  const { job: _, ...rest } = serviceOf
  // @ts-expect-error Property 'job' is missing
  const lacking: typeof serviceOf = rest
  assert.ok(lacking)
})

test('a word that is not a kind does not compile', () => {
  // @ts-expect-error Type '"kinds"' is not assignable
  const unknown: Kind = 'kinds'
  assert.ok(!(unknown in kinds))
})

test('the file of a kind does what its row says', () => {
  for (const [kind, { definition, deployable, operations }] of Object.entries(serviceOf)) {
    const { runs, schedule } = kinds[kind as Kind]
    assert.equal(definition.kind, kind)
    if (runs === 'tasks') assert.ok(deployable.tasks !== undefined, kind)
    if (runs === 'apps') assert.ok(deployable.refusal?.({ git_repository: null }), kind)
    assert.equal('schedule' in definition.spec.properties, schedule, kind)
    assert.equal(
      operations.some(({ id }) => id === `reboot${definition.noun}`),
      runs === 'instances',
      kind,
    )
  }
})

test('no two kinds share a list', () => {
  const rows = Object.values(kinds)
  for (const words of [rows.map(({ plural }) => plural), rows.map(({ runningPlural }) => runningPlural)])
    assert.equal(new Set(words).size, rows.length)
})
