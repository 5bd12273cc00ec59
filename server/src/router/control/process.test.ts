import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readFile, realpath, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import {
  ask,
  freePort,
  isAlive,
  makeDataDir,
  processes,
  quiet,
  route,
  serve,
  startProcess,
  stream,
  until,
} from '../../../test/support/router/parts.ts'
import { createRouter } from './client.ts'
import { pathsOf } from './protocol.ts'

test('a router that is killed comes back with its table, started by the control plane that still runs', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, port } = await startProcess(t, { port: await freePort() })
  await router.setService('a', [route([target])])
  const before = await router.health()
  process.kill(before!.pid, 'SIGKILL')
  await until(async () => {
    const now = await router.health()
    return now !== null && now.pid !== before!.pid
  })
  assert.equal((await ask(port)).body, 'ok')
  assert.deepEqual(await router.routes(), [route([target])])
})

test('a call to a killed router starts it first', async (t) => {
  const { router } = await startProcess(t)
  const before = await router.health()
  process.kill(before!.pid, 'SIGKILL')
  await router.setService('a', [route([])])
  assert.deepEqual(await router.routes(), [route([])])
})

test('a second client adopts the router, which outlives the process that started it', async (t) => {
  const dataDir = await makeDataDir(t)
  const port = await freePort()
  const script = `
    import { createRouter } from ${JSON.stringify(new URL('./client.ts', import.meta.url).href)}
    const log = { debug() {}, info() {}, warn() {} }
    const processes = ${JSON.stringify(processes)}
    const router = createRouter({ dataDir: ${JSON.stringify(dataDir)}, host: '127.0.0.1', port: ${port}, log, processes })
    await router.start()
    console.log((await router.health()).pid)`
  const parent = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(parent, 'exit')
  const mute = exited.then(([code]) => assert.fail(`the parent ended with ${code} and said nothing`))
  const [said] = await Promise.race([once(parent.stdout, 'data'), mute])
  mute.catch(() => {})
  // It ends by itself: an adopted or started router keeps no process alive.
  assert.deepEqual(await exited, [0, null])
  const { router } = await startProcess(t, { dataDir, port })
  assert.equal((await router.health())?.pid, Number(said))
  assert.equal((await stat(pathsOf(dataDir).folder)).mode & 0o777, 0o700)
  assert.equal(Number(await readFile(pathsOf(dataDir).pid, 'utf8')), Number(said))
})

test('starters at the same moment end with one router', async (t) => {
  for (const port of [await freePort(), 0]) {
    const dataDir = await makeDataDir(t)
    const started = await Promise.all(Array.from({ length: 4 }, () => startProcess(t, { dataDir, port })))
    const pids = await Promise.all(started.map(async ({ router }) => (await router.health())?.pid))
    assert.equal(new Set(pids).size, 1)
    const log = await readFile(pathsOf(dataDir).log, 'utf8')
    assert.equal(log.match(/listens on/g)?.length, 1)
  }
})

const skip = process.platform !== 'linux'

test('a local user who holds a socket under a name of ours keeps no router from starting, nor from taking over', {
  skip,
}, async (t) => {
  const dataDir = await makeDataDir(t)
  const { folder } = pathsOf(dataDir)
  await mkdir(folder, { mode: 0o700 })
  const squatter = createServer()
  squatter.listen(
    `\0slipway-router-${createHash('sha256')
      .update(await realpath(folder))
      .digest('hex')}`,
  )
  await once(squatter, 'listening')
  t.after(() => squatter.close())
  const { router } = await startProcess(t, { dataDir })
  const before = await router.health()
  assert.ok(before !== null)
  const next = await startProcess(t, { dataDir, port: await freePort() })
  assert.notEqual((await next.router.health())?.pid, before.pid)
})

test('a changed port is taken over: the new router serves while the old one finishes its request', async (t) => {
  const { promise: asked, resolve: onAsked } = Promise.withResolvers<() => void>()
  const { target } = await serve(t, (req, res) =>
    req.url === '/slow' ? onAsked(() => res.end('slow')) : res.end('ok'),
  )
  const { router, port, dataDir } = await startProcess(t)
  await router.setService('a', [route([target])])
  const slow = ask(port, { path: '/slow' })
  const answerNow = await asked
  const old = await router.health()
  const next = await startProcess(t, { dataDir, port: await freePort() })
  assert.notEqual((await next.router.health())?.pid, old?.pid)
  assert.equal((await ask(next.port)).body, 'ok')
  await assert.rejects(ask(port))
  answerNow()
  assert.equal((await slow).body, 'slow')
  await until(() => !isAlive(old!.pid))
})

test('a router that is replaced at its own port finishes its requests, and the next one has its table at once', async (t) => {
  const { promise: asked, resolve: onAsked } = Promise.withResolvers<() => void>()
  const { target } = await serve(t, (req, res) =>
    req.url === '/slow' ? onAsked(() => res.end('slow')) : res.end('ok'),
  )
  const { router, port, dataDir } = await startProcess(t, { port: await freePort() })
  const tcpPort = await freePort()
  await router.setService('a', [route([target]), stream(tcpPort, [target])])
  const slow = ask(port, { path: '/slow' })
  const answerNow = await asked
  const old = await router.health()
  const starters = await Promise.all([1, 2].map(() => startProcess(t, { dataDir, port, trustedProxies: ['10.0.0.1'] })))
  const pids = await Promise.all(starters.map(async (one) => (await one.router.health())?.pid))
  assert.equal(new Set([...pids, old?.pid]).size, 2)
  assert.equal((await ask(port)).body, 'ok')
  assert.equal((await ask(tcpPort)).body, 'ok')
  answerNow()
  assert.equal((await slow).body, 'slow')
  await until(() => !isAlive(old!.pid))
})

test('a port of another program, and a path too long, are refused in one sentence', async (t) => {
  const foreign = createServer().listen(0, '127.0.0.1')
  t.after(() => foreign.close())
  await once(foreign, 'listening')
  const { port } = foreign.address() as AddressInfo
  const dataDir = await makeDataDir(t)
  await assert.rejects(startProcess(t, { dataDir, port }), {
    message: `the router cannot listen on 127.0.0.1:${port}: another program uses that port; SLIPWAY_ROUTER_PORT sets another one`,
  })
  await assert.rejects(startProcess(t, { dataDir: `${dataDir}/${'x'.repeat(100)}` }), /bytes too long/)
})

test('leftovers of a dead router do not block a start; a broken table is set aside', async (t) => {
  const dataDir = await makeDataDir(t)
  const paths = pathsOf(dataDir)
  await mkdir(paths.folder, { recursive: true })
  await Promise.all([
    writeFile(paths.controlSocket, ''),
    writeFile(paths.pid, '1\n'),
    writeFile(paths.table, '{"routes": ['),
    writeFile(paths.log, 'x'.repeat(2 << 20)),
  ])
  const { router } = await startProcess(t, { dataDir })
  assert.deepEqual(await router.routes(), [])
  assert.equal(await readFile(`${paths.table}.broken`, 'utf8'), '{"routes": [')
  assert.ok((await stat(paths.log)).size < 1_000)
})

test('SIGTERM and stop let requests end, and free the port at once', async (t) => {
  for (const how of ['SIGTERM', 'stop']) {
    const { promise: asked, resolve: onAsked } = Promise.withResolvers<() => void>()
    const { target } = await serve(t, (req, res) =>
      req.url === '/slow' ? onAsked(() => res.end('slow')) : res.end('ok'),
    )
    const { router, port, dataDir } = await startProcess(t)
    await router.setService('a', [route([target])])
    const slow = ask(port, { path: '/slow' })
    const answerNow = await asked
    const { pid } = (await router.health())!
    const stopped = how === 'stop' ? router.stop() : process.kill(pid, 'SIGTERM')
    const isRefused = (): Promise<boolean> =>
      ask(port).then(
        () => false,
        () => true,
      )
    await until(isRefused)
    answerNow()
    const answer = await slow
    assert.deepEqual([answer.body, answer.headers.connection], ['slow', 'close'])
    await stopped
    await until(() => !isAlive(pid))
    await assert.rejects(stat(pathsOf(dataDir).pid), { code: 'ENOENT' })
  }
})

test('a route that cannot be served is refused with a sentence, and nothing changes', async (t) => {
  const { router } = await startProcess(t)
  await router.setService('a', [route([])])
  await assert.rejects(router.setService('a', [route([], { protocol: 'SMTP' as 'HTTP' })]), /protocol must be/)
  assert.deepEqual(await router.routes(), [route([])])
  const other = createRouter({ dataDir: '/nonexistent', host: '127.0.0.1', port: 0, log: quiet })
  await assert.rejects(other.routes(), /the router is not running/)
})
