import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import { connectEngine } from '../../../test/support/docker/docker.ts'
import {
  clean,
  createWorkload,
  deploy,
  deploymentError,
  ignore,
  signal,
  until,
} from '../../../test/support/runtimes/conformance.ts'
import { patience } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { createDockerRuntime } from './docker.ts'

const folder = mkdtempSync(join(tmpdir(), 'engine-proxy-'))
const httpd = { image: busyboxImage, entrypoint: null, arguments: ['httpd', '-f', '-p', '8080'] }

/** The engine behind a socket of ours, which counts calls and can be cut. */
const startProxy = async (name: string, silent = false) => {
  const path = join(folder, name)
  const calls: string[] = []
  const sockets = new Set<Socket>()
  const server: Server = createServer((client) => {
    sockets.add(client.on('error', ignore))
    if (silent) return void client.resume()
    const engine = connectEngine().on('error', ignore)
    client.on('data', (data: Buffer) => {
      calls.push(...(data.toString('latin1').match(/^(GET|POST|PUT|DELETE) [^? ]+(?=.* HTTP\/1\.1\r$)/gm) ?? []))
    })
    client.pipe(engine).pipe(client)
    client.on('close', () => engine.destroy())
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  const cut = () => {
    for (const socket of sockets) socket.destroy()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  }
  const ownerId = `engine-test-${newId()}`
  const runtime = createDockerRuntime({
    connection: { kind: 'local', socketPath: path },
    ownerId,
    log: createLog('silent'),
  })
  return { runtime, calls, cut }
}

after(() => rmSync(folder, { recursive: true }))

describe('the engine is far, silent or gone', () => {
  before(() => ensureBusybox())

  test('a second deploy costs one create and one start, and observe one call', async () => {
    const { runtime, calls, cut } = await startProxy('counting')
    try {
      const first = createWorkload(httpd)
      await runtime.instances.apply(first, ignore, signal())
      const next = { ...first, revision: newId() }
      calls.length = 0
      const [instance] = await runtime.instances.apply(next, ignore, signal())
      assert.deepEqual(calls.splice(0), ['POST /containers/create', `POST /containers/${instance!.id}/start`])
      await runtime.instances.ready(next, ignore, signal())
      assert.deepEqual(calls.splice(0).toSorted(), ['GET /containers/json', 'GET /events'])
      assert.equal((await runtime.observe()).length, 2)
      assert.deepEqual(calls.splice(0), ['GET /containers/json'])
    } finally {
      await clean(runtime)
      await runtime.close()
      await cut()
    }
  })

  test('a rollout costs a look before, one at the instances that are to be ready and one at those that end', async () => {
    const { runtime, calls, cut } = await startProxy('rollout')
    try {
      const first = createWorkload(httpd)
      await deploy(runtime, first)
      calls.length = 0
      const next = { ...first, revision: newId() }
      await deploy(runtime, next)
      const cost = Map.groupBy(calls, (call) => call.replace(/[0-9a-f]{64}/, 'ID'))
      assert.deepEqual(Object.fromEntries([...cost].map(([call, all]) => [call, all.length])), {
        'GET /containers/json': 3,
        'POST /containers/create': 1,
        'POST /containers/ID/start': 1,
        'POST /containers/ID/stop': 1,
        'DELETE /containers/ID': 1,
      })
    } finally {
      await clean(runtime)
      await runtime.close()
      await cut()
    }
  })

  test('ping rejects within 3 s when the socket accepts and stays silent', async () => {
    const { runtime, cut } = await startProxy('silent', true)
    const begun = performance.now()
    const error = await deploymentError(runtime.ping())
    assert.deepEqual([error.code, error.next], ['engine_unavailable', 'wait'])
    assert.ok(performance.now() - begun < 3200 * patience)
    await runtime.close()
    await cut()
  })

  test('when the engine goes away, watch and a followed log end with an error, and calls say to wait', async () => {
    const { runtime, cut } = await startProxy('cut')
    const nobody = { environmentId: newId(), serviceId: newId() }
    const drain = async (source: AsyncIterable<unknown>) => {
      for await (const _ of source);
    }
    const watching = deploymentError(drain(runtime.watch(signal())))
    const following = deploymentError(drain(runtime.logs(nobody, { follow: true })))
    await until('the engine answers', async () => (await runtime.observe([nobody])).length === 0 || null)
    await cut()
    assert.equal((await watching).code, 'engine_unavailable')
    assert.equal((await following).code, 'engine_unavailable')
    const error = await deploymentError(runtime.instances.apply(createWorkload(httpd), ignore, signal()))
    assert.deepEqual([error.code, error.next], ['engine_unavailable', 'wait'])
    await runtime.close()
  })
})
