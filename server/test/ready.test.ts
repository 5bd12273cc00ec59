/** What the programs in bin/ write on the machine before any of ours runs. */
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { exec } from '../src/lib/exec.ts'

const ready = new URL('../../bin/ready.sh', import.meta.url).pathname

test('an installer’s output follows no link that somebody planted, and stays only when it failed', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-ready-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const victim = join(folder, 'victim')
  writeFileSync(victim, 'untouched')
  symlinkSync(victim, join(folder, `slipway-setup-${process.getuid?.()}.log`))
  const before = readdirSync(folder).length
  const install = async (code: number) => {
    writeFileSync(join(folder, 'apt-get'), `#!/bin/sh\necho installing\nexit ${code}\n`)
    chmodSync(join(folder, 'apt-get'), 0o755)
    const env = { PATH: `${folder}:${process.env.PATH}`, TMPDIR: folder }
    return exec('bash', ['-c', `. ${ready}; install_packages nothing`], { env, timeoutMs: 20_000 })
  }
  assert.equal((await install(0)).code, 0)
  assert.equal(readFileSync(victim, 'utf8'), 'untouched')
  assert.equal(readdirSync(folder).length, before + 1)
  const failed = await install(1)
  assert.equal(failed.code, 1)
  const log = /the full output is in (\S+)\.$/.exec(failed.stderr.trim())?.[1]
  assert.equal(readFileSync(log!, 'utf8').trim(), 'installing')
  assert.equal(readFileSync(victim, 'utf8'), 'untouched')
})
