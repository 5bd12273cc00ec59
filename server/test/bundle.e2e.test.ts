/** Users start the bundle: it finds all its files, and an incomplete one is never left behind. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { exec } from '../src/lib/exec.ts'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { adminToken, bundledServer, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const env = { PATH: process.env.PATH ?? '' }
let slipway: Slipway
let server: string[]

before(async () => {
  // The base of our examples, for which any will do.
  await ensureBusybox('busybox:1')
  server = await bundledServer()
})

after(async () => {
  await slipway?.remove()
  await engine.close()
})

test('the bundle starts, builds the sample from git, shows its pages, names sources in traces, and ends', async () => {
  slipway = await prepareSlipway({ server, env: { SLIPWAY_SAMPLE: 'on' } })
  await slipway.start()
  const url = await until(() => /^Sample +(http\S+)$/m.exec(slipway.output())?.[1], {
    timeoutMs: 60_000,
    what: 'the sample',
  })
  const { host } = new URL(url)
  assert.match(await (await fetch(`http://127.0.0.1:${slipway.routerPort}/`, { headers: { host } })).text(), /./)
  for (const path of ['/openapi.json', '/docs/', '/docs/js/scalar.js', '/metrics', '/organization'])
    assert.equal((await slipway.api('GET', path).catch(() => fetch(slipway.url + path))).status, 200, path)

  const second = await exec(process.execPath, server, {
    env: { ...env, SLIPWAY_DATA_DIR: slipway.dataDir, SLIPWAY_LOG_LEVEL: 'debug', SLIPWAY_ADMIN_TOKEN: adminToken },
  })
  assert.match(second.stderr, /another Slipway .* is running on/)
  assert.match(second.stderr, /at claimDataDirectory \(\/.*\/server\/src\/wiring\/process-file\.ts:\d+:\d+\)/)

  await slipway.kill('SIGTERM')
  assert.doesNotMatch(slipway.output(), /did not shut down cleanly/)
})

test('a build of the bundle deletes nothing beside it that is not its own', async () => {
  const home = mkdtempSync(join(tmpdir(), 'slipway-bundle-'))
  const program = new URL('../../bin/bundle.ts', import.meta.url).pathname
  const build = (name: string) => exec(process.execPath, [program, join(home, name)], { env })
  try {
    mkdirSync(join(home, 'notes'))
    writeFileSync(join(home, 'b.txt'), 'mine')
    mkdirSync(join(home, 'v24.0.0-x64-abc'))
    const refused = await build('out')
    assert.notEqual(refused.code, 0)
    assert.match(refused.stderr, /must be named bundle-/)
    const { code, stderr } = await build('bundle-1')
    assert.equal(code, 0, stderr)
    assert.deepEqual(readdirSync(home).sort(), ['b.txt', 'bundle-1', 'notes'])
  } finally {
    await rm(home, { recursive: true })
  }
})

test('a build of the bundle that is killed at any moment leaves none or a complete one', async () => {
  const home = mkdtempSync(join(tmpdir(), 'slipway-bundle-'))
  const place = join(home, 'bundle-1')
  const program = new URL('../../bin/bundle.ts', import.meta.url).pathname
  /** Null: it does not exist, or was just renamed. */
  const filesThere = (): number | null => {
    const [name] = readdirSync(home)
    try {
      return name === undefined ? null : readdirSync(join(home, name)).length
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
      throw error
    }
  }
  try {
    // As soon as it writes, and at the moments after.
    for (const files of [0, 1, 4]) {
      const child = spawn(process.execPath, [program, place], { env, stdio: ['ignore', 'ignore', 'pipe'] })
      child.stderr.resume()
      // Not its exit: the bundler is a separate process with the same stderr, and may still write for a moment.
      const ended = once(child, 'close')
      const written = (): boolean => (filesThere() ?? -1) >= files
      await until(() => child.exitCode !== null || written(), { what: 'the build to write', timeoutMs: 30_000 })
      child.kill('SIGKILL')
      await ended
      const left = readdirSync(home)
      if (left.includes('bundle-1')) assert.ok(readdirSync(place).includes('main.cjs'))
      for (const name of left) await rm(join(home, name), { recursive: true })
    }
    const { code, stderr } = await exec(process.execPath, [program, place], { env })
    assert.equal(code, 0, stderr)
    assert.deepEqual(readdirSync(home), ['bundle-1'])
  } finally {
    await rm(home, { recursive: true })
  }
})
