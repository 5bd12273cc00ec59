/** `npm run doctor` beside a running server and without one. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { exec } from '../src/lib/exec.ts'
import type { Finding } from '../src/lib/finding.ts'
import { adminToken, freePort, prepareSlipway } from './support/slipway/slipway.ts'

const program = new URL('../src/programs/doctor.ts', import.meta.url).pathname

const run = async (env: Record<string, string>, ...args: string[]) => {
  const given = { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '/root', ...env }
  return exec(process.execPath, [program, ...args], { env: given, timeoutMs: 60_000 })
}

const look = async (env: Record<string, string>) => {
  const { code, stdout, stderr } = await run(env, '--json')
  assert.equal(stderr, '')
  const { findings } = JSON.parse(stdout) as { findings: Finding[] }
  assert.equal(code, findings.some(({ state }) => state === 'FAILED') ? 1 : 0)
  return { code, byId: Object.fromEntries(findings.map((each) => [each.id, each])) }
}

test('a running server is asked, and what is printed fits on a screen', async (t) => {
  const slipway = await prepareSlipway({ fake: true })
  t.after(() => slipway.remove())
  await slipway.start()
  const { dataDir, routerPort, url } = slipway
  const ports = { SLIPWAY_PORT: new URL(url).port, SLIPWAY_ROUTER_PORT: String(routerPort) }
  const env = { SLIPWAY_DATA_DIR: dataDir, SLIPWAY_ADMIN_TOKEN: adminToken, SLIPWAY_DISK_RESERVE_MB: '0', ...ports }
  const { byId } = await look(env)
  assert.match(byId.server!.message, new RegExp(`runs as process ${slipway.pid()}\\.`))
  for (const id of ['server', 'settings', 'clusters', 'database', 'router', 'ports', 'names', 'clock', 'work'])
    assert.equal(byId[id]!.state, 'OK', JSON.stringify(byId[id]))
  assert.equal(byId.engine!.state, 'SKIPPED')
  assert.match(byId.backup!.message, /No backup is configured/)
  assert.match(byId.backup!.mending!, /docs\/guides\/backup\.md/)

  const printed = (await run(env)).stdout.trimEnd().split('\n')
  assert.ok(printed.length <= 40, `${printed.length} lines`)
  assert.ok(
    printed.some((line) => /^OK +Database +PostgreSQL/.test(line)),
    printed.join('\n'),
  )
  assert.ok(printed.some((line) => /^WARNING +Backup/.test(line)))
  assert.ok(printed.some((line) => /^ +→ Back up the data directory/.test(line)))

  const stranger = await look({ ...env, SLIPWAY_ADMIN_TOKEN: 'another-token-of-nobody-0123' })
  assert.equal(stranger.byId.server!.state, 'WARNING')
  assert.match(stranger.byId.server!.message, /does not accept the admin token/)
  assert.equal(stranger.byId.disks !== undefined, true)
  assert.equal(stranger.byId.work, undefined)

  await slipway.kill('SIGKILL')
  const killed = await look(env)
  assert.equal(killed.code, 1)
  assert.match(killed.byId.server!.message, /No server of .* runs\./)
  // The router and the database outlive their server.
  assert.match(killed.byId.ports!.message, /the router's own/)
  assert.match(killed.byId.database!.message, /The embedded database runs/)
})

test('without a server it says why none starts, and changes nothing', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-doctor-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  t.after(() => taken.close())
  const { port } = taken.address() as { port: number }
  const env = {
    ...{ SLIPWAY_DATA_DIR: join(folder, 'data'), DOCKER_HOST: `unix://${folder}/docker.sock` },
    ...{ SLIPWAY_PORT: String(await freePort()), SLIPWAY_ROUTER_PORT: String(port) },
  }
  const { code, byId } = await look(env)
  assert.equal(code, 1)
  assert.match(byId.server!.message, /No server of /)
  assert.match(byId['data-directory']!.message, /does not exist yet/)
  assert.match(byId.ports!.message, new RegExp(`The router cannot listen on 127\\.0\\.0\\.1:${port}: another program`))
  assert.match(byId.engine!.message, /docker\.sock does not answer/)
  assert.equal(byId.database!.state, 'SKIPPED')

  writeFileSync(join(folder, 'slipway.env'), 'SLIPWAY_PORT=none\n', { mode: 0o600 })
  const wrong = await look({ SLIPWAY_DATA_DIR: folder })
  assert.match(wrong.byId.settings!.message, /SLIPWAY_PORT must be/)
})
