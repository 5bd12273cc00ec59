import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createLogins } from './logins.ts'

const bcrypted = { name: 'ada', hash: '$2b$04$/A3/4GvmJiE5suNNvkVKdOC4iSN0mNqIsyCXTxEvHNn.h1b1.g1KO' }
const login = (password: string): string => `Basic ${Buffer.from(`ada:${password}`).toString('base64')}`

test('a thousand logins are remembered: an answer that arrives takes only its own place', async () => {
  const logins = createLogins([bcrypted])
  assert.equal(await logins.check(login('secret')), true)
  for (let others = 1; others < 1000; others++) assert.equal(await logins.check(login(`wrong ${others}`)), false)
  assert.equal(logins.check(login('secret')), true, 'without a comparison')
  await logins.check(login('one more'))
  assert.notEqual(logins.check(login('secret')), true, 'the oldest one gave way')
})
