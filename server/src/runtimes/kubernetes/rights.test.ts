import assert from 'node:assert/strict'
import { test } from 'node:test'
import { allRules } from '../../../test/support/peers/kubernetes.ts'
import { missingIn, mostRules } from './rights.ts'

test('of the rules that a cluster reports, however many, each is read once, and those after the limit are not read', () => {
  let reads = 0
  const useless = () => ({
    get verbs() {
      reads += 1
      return ['*']
    },
    apiGroups: ['example.test'],
    resources: ['*'],
  })
  const crowd = Array.from({ length: mostRules - allRules().length }, useless)
  assert.deepEqual(missingIn([...crowd, ...allRules()]), [])
  assert.equal(reads, crowd.length)
  reads = 0
  assert.ok(missingIn(Array.from({ length: 5 * mostRules }, useless)).length > 0)
  assert.equal(reads, mostRules)
})
