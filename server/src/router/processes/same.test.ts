/** The tests of a router with one process, run with two. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { onlyAtNight } from '../../../test/support/nightly.ts'

const files = ['../control/process.test.ts', '../table/switch.test.ts', '../tls/tls.test.ts']

for (const file of files)
  test(`${file} passes with two processes`, { skip: file.includes('switch') ? false : onlyAtNight }, async () => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env
    const child = spawn(process.execPath, ['--test', fileURLToPath(new URL(file, import.meta.url))], {
      env: { ...env, TEST_ROUTER_PROCESSES: '2' },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let said = ''
    child.stdout.setEncoding('utf8').on('data', (text) => {
      said += text
    })
    const [code] = await once(child, 'close')
    assert.match(said, /^ℹ pass [1-9]/m)
    assert.equal(code, 0, said)
  })
