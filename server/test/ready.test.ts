/** Files that the programs in bin/ write on the machine before the server runs. */
import assert from 'node:assert/strict'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { exec } from '../src/lib/exec.ts'

const ready = new URL('../../bin/ready.sh', import.meta.url).pathname

test('an installer’s output never follows a planted link, and is kept only after a failure', async (t) => {
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

/** A checkout with our scripts and an npm that does what `install` says, in the folder where it is started. */
const newCheckout = (folder: string) => {
  const root = join(folder, 'checkout')
  cpSync(new URL('../../bin/ready.sh', import.meta.url), join(root, 'bin/ready.sh'))
  for (const name of ['package.json', 'package-lock.json', 'server/package.json', 'console/package.json']) {
    mkdirSync(dirname(join(root, name)), { recursive: true })
    writeFileSync(join(root, name), '{}')
  }
  const programs = join(folder, 'programs')
  mkdirSync(programs)
  const program = (name: string, text: string): void => {
    writeFileSync(join(programs, name), `#!/bin/sh\n${text}\n`)
    chmodSync(join(programs, name), 0o755)
  }
  program('node', 'exit 0')
  const half = 'mkdir -p node_modules/.bin node_modules/fastify && touch node_modules/.package-lock.json'
  const rest = 'touch node_modules/fastify/whole && cp "$(command -v node)" node_modules/.bin/node'
  const env = { PATH: `${programs}:${process.env.PATH}`, TMPDIR: folder }
  // In a session of its own: the interrupt is for all of its processes, as from a terminal.
  const startWith = (npm: string) => {
    program('npm', npm)
    const script = `. ${root}/bin/ready.sh; ready_modules`
    return exec('setsid', ['--wait', 'bash', '-c', script], { env, timeoutMs: 20_000 })
  }
  return {
    root,
    interrupted: () => startWith(`${half}; kill -INT 0; sleep 5`).catch(() => null),
    whole: () => startWith(`${half} && ${rest}`),
    withoutNpm: () => startWith('exit 1'),
  }
}

test('an interrupted install leaves nothing that a later start takes for complete', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-ready-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const { root, interrupted, whole, withoutNpm } = newCheckout(folder)
  await interrupted()
  assert.ok(!existsSync(join(root, 'node_modules')))
  assert.equal((await whole()).code, 0)
  assert.ok(existsSync(join(root, 'node_modules/fastify/whole')))
  assert.deepEqual(readdirSync(root).toSorted(), [
    'bin',
    'console',
    'node_modules',
    'package-lock.json',
    'package.json',
    'server',
  ])
  assert.equal((await withoutNpm()).code, 0, 'what is complete needs no npm')
  writeFileSync(join(root, 'package-lock.json'), '{"changed":1}')
  await interrupted()
  assert.ok(existsSync(join(root, 'node_modules/fastify/whole')), 'an interrupted upgrade leaves what was there')
  rmSync(join(root, 'node_modules/.slipway-stamp'))
  rmSync(join(root, 'node_modules/fastify/whole'))
  assert.equal((await whole()).code, 0)
  assert.ok(existsSync(join(root, 'node_modules/fastify/whole')), 'a tree without a stamp is replaced')
})
