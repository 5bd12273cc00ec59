import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseIdentities } from './lock.ts'
import { pathsInSettings, settingsAfterRestore, settingsInEnvironment } from './own-files.ts'

test('settings that lead to the first machine become comments, all others stay', () => {
  const text = '# mine\nSLIPWAY_PORT=8123\n DATABASE_URL=postgres://old\nSLIPWAY_MASTER_KEY_FILE = /etc/key\n'
  const rest = '# mine\nSLIPWAY_PORT=8123\n# before the restore:  DATABASE_URL=postgres://old\n'
  const commented = `${rest}# before the restore: SLIPWAY_MASTER_KEY_FILE = /etc/key\n`
  assert.equal(settingsAfterRestore(text, undefined), commented)
  assert.equal(settingsAfterRestore(text, 'postgres://new'), `${commented}DATABASE_URL=postgres://new\n`)
  assert.equal(settingsAfterRestore('', 'postgres://new'), 'DATABASE_URL=postgres://new\n')
})

test('a report names files of settings, and settings of the environment', () => {
  const text = 'SLIPWAY_TOFU="/opt/tofu"\n# SLIPWAY_HELM=/x\nSLIPWAY_PORT=1\nSLIPWAY_MASTER_KEY_FILE=/etc/key\n'
  assert.deepEqual(pathsInSettings(text), [{ name: 'SLIPWAY_TOFU', path: '/opt/tofu' }])
  const env = {
    SLIPWAY_PORT: '1',
    PATH: '/bin',
    SLIPWAY_DATA_DIR: '/x',
    SLIPWAY_BACKUP_PASSPHRASE: 'x',
    DATABASE_URL: 'p',
  }
  assert.deepEqual(settingsInEnvironment(env), ['DATABASE_URL', 'SLIPWAY_PORT'])
})

test('an identity file is read as age-keygen writes it', () => {
  const key = `AGE-SECRET-KEY-1${'Q'.repeat(58)}`
  assert.deepEqual(parseIdentities(`# created: today\n# public key: age1x\n${key}\n`).reveal(), [key])
  for (const wrong of ['', '# nothing', 'age1xyz', `${key}\n-----BEGIN`])
    assert.throws(() => parseIdentities(wrong), /identity file/)
})
