/** Several processes that share the ports of one router: the promises of one hold for each of them. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { type TestContext, test } from 'node:test'
import { connect as connectTls } from 'node:tls'
import {
  ask,
  freePort,
  isAlive,
  readAnswer,
  route,
  serve,
  startProcess,
  stream,
  until,
} from '../../../test/support/router/parts.ts'
import { createTestCa } from '../../../test/support/tls/test-ca.ts'
import type { ProcessRouter } from '../control/client.ts'

const three = { least: 3, most: 3 }

/** Connections made meanwhile are accepted by this process only. */
const through = async <Result>(all: readonly number[], pid: number, work: () => Promise<Result>): Promise<Result> => {
  const others = all.filter((other) => other !== pid)
  for (const other of others) process.kill(other, 'SIGSTOP')
  try {
    return await work()
  } finally {
    for (const other of others) process.kill(other, 'SIGCONT')
  }
}

const pidsOf = async (router: ProcessRouter): Promise<number[]> => (await router.counts()).processes

const open = async (t: TestContext, more: { tlsPort?: number; port?: number } = {}) => {
  const started = await startProcess(t, { processes: three, ...more })
  const pids = await pidsOf(started.router)
  assert.equal(new Set(pids).size, 3)
  return { ...started, pids }
}

/** Answers slowly until the test releases it. */
const serveSlowly = async (t: TestContext) => {
  const waiting: (() => void)[] = []
  const program = await serve(t, (req, res) => {
    if (req.url === '/slow') waiting.push(() => res.end('slow'))
    else res.end('ok')
  })
  return { ...program, waiting }
}

/** A request whose answer is awaited later. */
const begin = async (port: number, path: string) => {
  const out = request({ host: '127.0.0.1', port, path, agent: false, headers: { host: 'a.localhost' } }).end()
  const answered = once(out, 'response').then(([answer]) => readAnswer(answer))
  answered.catch(() => {})
  await once(out, 'socket')
  return { answered }
}

test('a change is confirmed when each process goes by it, also one of TCP', async (t) => {
  const programs = await Promise.all(['one', 'two'].map((name) => serve(t, (_req, res) => res.end(name))))
  const { router, port, pids } = await open(t)
  const tcpPort = await freePort()
  for (const [at, name] of ['one', 'two', 'one'].entries()) {
    const { target } = programs[at % 2]!
    await router.setService('a', [route([target]), stream(tcpPort, [target])])
    for (const pid of pids) assert.equal((await through(pids, pid, () => ask(port))).body, name)
    assert.equal((await ask(tcpPort)).body, name)
  }
  await router.setService('a', [])
  for (const pid of pids) assert.equal((await through(pids, pid, () => ask(port))).status, 404)
})

test('twenty switches under load: no request fails, and none reaches a target that was switched away from', async (t) => {
  const closed = new Set<number>()
  let late = 0
  const programs = await Promise.all(
    [0, 1].map((own) =>
      serve(t, (_req, res) => {
        if (closed.has(own)) late++
        res.end('ok')
      }),
    ),
  )
  const { router, port } = await open(t)
  await router.setService('a', [route([programs[0]!.target])])
  let isOver = false
  const statuses = new Map<unknown, number>()
  const clients = Array.from({ length: 24 }, async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    while (!isOver) {
      const out = request({ host: '127.0.0.1', port, agent, headers: { host: 'a.localhost' } }).end()
      const status = await once(out, 'response').then(
        async ([answer]) => (await readAnswer(answer)).status,
        (error: Error) => error.message,
      )
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
    agent.destroy()
  })
  for (let turn = 1; turn <= 20; turn++) {
    const [next, before] = [programs[turn % 2]!, programs[(turn + 1) % 2]!]
    closed.delete(turn % 2)
    await router.setService('a', [route([next.target])])
    const { remaining } = await router.drain([before.target], 10_000, AbortSignal.timeout(20_000))
    assert.equal(remaining, 0)
    closed.add((turn + 1) % 2)
    const seen = statuses.get(200) ?? 0
    await until(() => (statuses.get(200) ?? 0) > seen + 20)
  }
  isOver = true
  await Promise.all(clients)
  assert.deepEqual([...statuses.keys()], [200])
  assert.equal(late, 0)
})

/** A slow request through each process, in their order. */
const beginInEach = async (pids: number[], port: number, waiting: unknown[]) => {
  const slow = []
  for (const [at, pid] of pids.entries())
    slow.push(
      await through(pids, pid, async () => {
        const begun = await begin(port, '/slow')
        await until(() => waiting.length === at + 1)
        return begun
      }),
    )
  return slow
}

test('a drain waits for the requests of every process, and says how many are left', async (t) => {
  const { target, waiting } = await serveSlowly(t)
  const { router, port, pids } = await open(t)
  await router.setService('a', [route([target])])
  const slow = await beginInEach(pids, port, waiting)
  await router.setService('a', [])
  assert.equal((await router.counts()).inFlight, 3)
  assert.deepEqual(await router.drain([target], 1, AbortSignal.timeout(10_000)), { remaining: 3 })
  let isDrained = false
  const drained = router.drain([target], 30_000, AbortSignal.timeout(30_000)).then((found) => {
    isDrained = true
    return found
  })
  for (const [at, { answered }] of slow.entries()) {
    assert.equal(isDrained, false)
    waiting[at]!()
    assert.equal((await answered).body, 'slow')
  }
  assert.deepEqual(await drained, { remaining: 0 })
})

test('one that is killed loses its own connections only; another one takes its place with the whole table', async (t) => {
  const { target, waiting } = await serveSlowly(t)
  const { router, port, pids } = await open(t)
  await router.setService('a', [route([target])])
  const slow = await beginInEach(pids, port, waiting)
  process.kill(pids[1]!, 'SIGKILL')
  const later = await Promise.all(Array.from({ length: 50 }, () => ask(port)))
  assert.deepEqual(new Set(later.map(({ status }) => status)), new Set([200]))
  for (const answerNow of waiting) answerNow()
  await assert.rejects(slow[1]!.answered)
  assert.equal((await slow[0]!.answered).body, 'slow')
  assert.equal((await slow[2]!.answered).body, 'slow')
  await router.setService('b', [route([target], { host: 'b.localhost', serviceId: 'b' })])
  await until(async () => (await pidsOf(router)).length === 3)
  const now = await pidsOf(router)
  const fresh = now.find((pid) => !pids.includes(pid))!
  for (const host of ['a.localhost', 'b.localhost'])
    assert.equal((await through(now, fresh, () => ask(port, { host }))).body, 'ok')
  assert.equal((await router.health())?.pid, pids[0])
})

test('when the first one is killed the others end, and the next router has the port and the table', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, port, pids } = await open(t, { port: await freePort() })
  await router.setService('a', [route([target])])
  process.kill(pids[0]!, 'SIGKILL')
  await until(() => !pids.some(isAlive))
  await until(async () => (await router.health()) !== null)
  assert.equal((await ask(port)).body, 'ok')
})

test('requests that wait in every process wake their service, and continue when it runs', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, port, pids } = await open(t)
  await router.setService('a', [route([], { state: 'asleep' })])
  const told: string[] = []
  router.wanted((serviceId) => told.push(serviceId))
  const waiting = []
  for (const pid of pids) waiting.push(await through(pids, pid, () => begin(port, '/')))
  await until(() => told.length > 0)
  assert.deepEqual(new Set(told), new Set(['a']))
  await router.setService('a', [route([target])])
  for (const { answered } of waiting) assert.equal((await answered).body, 'ok')
})

test('a service that one process is asked for is not idle', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, port, pids } = await open(t)
  await router.setService('a', [route([target])])
  for (const pid of pids) {
    const isIdle = async (): Promise<boolean> => (await router.idle(['a'], 300)).length === 1
    await until(isIdle)
    await through(pids, pid, () => ask(port))
    assert.equal(await isIdle(), false, `asked at ${pids.indexOf(pid)}`)
  }
})

test('certificates and challenges are known to each process, and sessions continue in any', async (t) => {
  const ca = await createTestCa()
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, port, pids } = await open(t, { tlsPort: 0 })
  const { tlsPort } = (await router.health())!
  await router.setService('a', [route([target])])
  await router.setTls('a.localhost', {
    ...(await ca.issue('a.localhost')),
    challenge: { token: 'token', answer: 'answer' },
  })
  let session: Buffer | undefined
  const shake = async (): Promise<boolean> => {
    const socket = connectTls({
      ...{ host: '127.0.0.1', port: tlsPort!, servername: 'a.localhost', ca: ca.certificate },
      ...(session === undefined ? {} : { session }),
    })
    socket.on('session', (given) => {
      session = given
    })
    socket.write('GET / HTTP/1.1\r\nHost: a.localhost\r\nConnection: close\r\n\r\n')
    await once(socket, 'data')
    const isContinued = socket.isSessionReused()
    socket.destroy()
    return isContinued
  }
  for (const [at, pid] of pids.entries()) {
    const path = '/.well-known/acme-challenge/token'
    assert.equal((await through(pids, pid, () => ask(port, { path }))).body, 'answer')
    assert.equal(await through(pids, pid, shake), at > 0)
  }
  await router.setTls('a.localhost', {})
  for (const pid of pids) assert.equal((await through(pids, pid, () => ask(port))).body, 'ok')
})

test('a stop ends all of them after their requests, and frees the port at once', async (t) => {
  const { target, waiting } = await serveSlowly(t)
  const { router, port, pids } = await open(t)
  await router.setService('a', [route([target])])
  const slow = await through(pids, pids[2]!, async () => {
    const begun = await begin(port, '/slow')
    await until(() => waiting.length === 1)
    return begun
  })
  const stopped = router.stop()
  await until(() =>
    ask(port).then(
      () => false,
      () => true,
    ),
  )
  assert.ok(isAlive(pids[2]!))
  waiting[0]!()
  assert.equal((await slow.answered).body, 'slow')
  await stopped
  await until(() => !pids.some(isAlive))
})
