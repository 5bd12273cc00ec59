/** Messages and refusals of the commands before they do anything: each in one sentence that says what to do. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { exec } from '../src/lib/exec.ts'
import { version } from '../src/lib/version.ts'
import { freePort, main } from './support/slipway/slipway.ts'

const bin = new URL('../../bin/', import.meta.url).pathname
const PATH = process.env.PATH ?? ''

const run = (file: string, ...args: string[]) =>
  exec('bash', [join(bin, file), ...args], { env: { PATH }, timeoutMs: 20_000 })

const commands: [file: string, ...args: string[]][] = [
  ...['main', 'stop', 'reset', 'backup', 'restore', 'doctor', 'rotate-keys', 'systemd'].map(
    (name): [string, string] => ['run', name],
  ),
  ['server'],
  ['dev'],
  ['fix'],
  ['test'],
  ['test-all'],
  ['test-kubernetes'],
  ['check'],
  ['bench'],
  ['faults'],
  ['screenshots'],
]
for (const [file, ...args] of commands)
  test(`${[file, ...args].join(' ')} explains itself and refuses unknown arguments`, async () => {
    const help = await run(file, ...args, '--help')
    assert.equal(help.code, 0)
    assert.match(help.stdout, /^(npm|bin\/\w+)\s[\s\S]+\.\n/)
    const refused = await run(file, ...args, '--bogus')
    assert.equal(refused.code, 2)
    assert.match(refused.stderr, /--bogus/)
    assert.equal(refused.stdout, '')
    const asked = await run(file, ...args, '--version')
    assert.deepEqual([asked.code, asked.stdout, asked.stderr], [0, `${version}\n`, ''])
  })

test('the version is the same everywhere', async () => {
  const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
  const found = [
    'package.json',
    'server/package.json',
    'console/package.json',
    'openapi.json',
    'package-lock.json',
  ].map((path) => /"version": "([^"]+)"/.exec(read(path))?.[1])
  const chart = read('deploy/chart/Chart.yaml')
  found.push(/^version: (.+)$/m.exec(chart)?.[1], /^appVersion: (.+)$/m.exec(chart)?.[1])
  const [newest] = [...read('CHANGELOG.md').matchAll(/^## (\d\S*)$/gm)]
  assert.deepEqual(new Set([...found, newest?.[1]]), new Set([version]))
})

const newFolder = (t: TestContext): string => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-commands-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const startWith = (env: Record<string, string>) =>
  exec(process.execPath, [main, '--fake'], { env: { PATH, ...env }, timeoutMs: 20_000 })

const refusals: [env: Record<string, string>, sentence: RegExp][] = [
  [{ SLIPWAY_DATA_DIR: '/proc/x' }, /\/proc\/x cannot be created \(ENOENT\): set SLIPWAY_DATA_DIR/],
  [{ SLIPWAY_TOFU: '/nope' }, /SLIPWAY_TOFU must be the path of a program: \/nope is not one/],
  [{ SLIPWAY_TERRAFORM: '/etc/passwd' }, /SLIPWAY_TERRAFORM must be the path of a program/],
  [
    { SLIPWAY_HOST: '192.0.2.1' },
    /the API cannot listen on 192\.0\.2\.1:\d+: this machine does not have that address; SLIPWAY_HOST/,
  ],
  [{ SLIPWAY_ROUTER_HOST: '192.0.2.1' }, /the router cannot listen on 192\.0\.2\.1:\d+: .*; SLIPWAY_ROUTER_HOST/],
]
for (const [env, sentence] of refusals)
  test(`a start with ${JSON.stringify(env)} is refused and starts nothing`, async (t) => {
    const dataDir = join(newFolder(t), 'data')
    const ports = { SLIPWAY_PORT: String(await freePort()), SLIPWAY_ROUTER_PORT: String(await freePort()) }
    const { code, stderr } = await startWith({ SLIPWAY_DATA_DIR: dataDir, ...ports, ...env })
    assert.equal(code, 1)
    assert.match(stderr, sentence)
    assert.match(stderr, /^Slipway cannot start: [^\n]*\n$/)
    for (const name of ['postgres', 'router']) assert.ok(!existsSync(join(dataDir, name)), name)
  })

test('a port that is in use is reported with the name of its setting, and nothing is started', async (t) => {
  const dataDir = newFolder(t)
  const taken = createServer().listen(0, '127.0.0.1')
  t.after(() => taken.close())
  await once(taken, 'listening')
  const { port } = taken.address() as { port: number }
  const { code, stderr } = await startWith({ SLIPWAY_DATA_DIR: dataDir, SLIPWAY_PORT: String(port) })
  assert.equal(code, 1)
  assert.match(stderr, /: another program uses that port; SLIPWAY_PORT sets another one\n$/)
  assert.ok(!readdirSync(dataDir).includes('postgres'))
})

test('the settings file of the data directory is read, and a wrong line ends the start with code 2', async (t) => {
  const dataDir = newFolder(t)
  writeFileSync(join(dataDir, 'slipway.env'), '# mine\nSLIPWAY_TOFU=/nope\n')
  const told = await startWith({ SLIPWAY_DATA_DIR: dataDir })
  assert.match(told.stderr, /\/nope is not one/)
  writeFileSync(join(dataDir, 'slipway.env'), '\nSLIPWAY_PROT=1\nSLIPWAY_SAMPLE=maybe\n')
  const { code, stderr } = await startWith({ SLIPWAY_DATA_DIR: dataDir })
  assert.equal(code, 2)
  assert.deepEqual(stderr.trim().split('\n'), [
    'slipway.env, line 3: SLIPWAY_SAMPLE must be on or off.',
    'slipway.env, line 2: SLIPWAY_PROT is not a setting; did you mean SLIPWAY_PORT?',
  ])
})
