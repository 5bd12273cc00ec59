/** F21, F23 and F26: floods of logs, of connections, of bytes and of clones, seen by a client of the API. */
import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { page } from '../support/docker/apps.ts'
import { busyboxImage } from '../support/docker/busybox-image.ts'
import { containersOf, inspectContainer } from '../support/docker/docker.ts'
import { adminToken, type Slipway } from '../support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, settle } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'
import { median, percentile, residentMb, timed, whole } from './figures.ts'
import { addContainer, addRegistry, withScene } from './scene.ts'

const floodBytes = 100_000_000
const line = 'x'.repeat(99)
const asks = 20

const flooding = {
  Dockerfile: [
    `FROM ${busyboxImage}`,
    'EXPOSE 8080',
    `CMD ["sh", "-c", "yes ${line} | head -c ${floodBytes}; echo the-end; mkdir /w; exec httpd -f -p 8080 -h /w"]`,
    '',
  ].join('\n'),
}

/** Reads the last hundred lines again and again; answers each time's milliseconds and the highest memory. */
const readTails = async ({ api, pid }: Slipway, id: string) => {
  const tailsMs: number[] = []
  let [mostMb, last] = [0, '']
  for (let n = 0; n < asks; n += 1) {
    tailsMs.push(
      await timed(async () => {
        const { status, body } = await api('GET', `/application/${id}/log?tail=100`)
        assert.deepEqual([status, body.results.length], [200, 100])
        last = body.results.at(-1).message
      }),
    )
    mostMb = Math.max(mostMb, residentMb(pid()))
  }
  return { tailsMs, mostMb, last }
}

const logFlood: Fault = {
  id: 'F21',
  title: 'a service that prints 100 MB fills neither the disk nor our memory, and its log is read at once',
  deadlineMs: 120_000,
  run: () =>
    withScene({}, async (scene) => {
      const { slipway } = scene
      const place = await createPlace(slipway)
      const deployed = async (name: string, files: Record<string, string>) => {
        const application = await createApplication(slipway, place, name, await scene.repository(name, files))
        await deploy(slipway, application.id)
        assert.equal(await settle(slipway, application.id), 'DEPLOYED')
        return application
      }
      // The first build starts the thread that prepares builds; that is not caused by a flood.
      await deployed('quiet', page('quiet'))
      const beforeMb = residentMb(slipway.pid())
      const application = await deployed('flood', flooding)
      const { tailsMs, mostMb, last } = await readTails(slipway, application.id)
      assert.equal(last, 'the-end')
      const p90 = percentile(tailsMs, 0.9)
      assert.ok(p90 <= 200, `tail=100 took ${whole(p90)} ms`)
      const grownMb = mostMb - beforeMb
      assert.ok(grownMb < 64, `the server grew by ${whole(grownMb)} MB`)
      const [container] = await containersOf(application.id)
      const { HostConfig } = (await inspectContainer(container!.Id)) as unknown as {
        HostConfig: { LogConfig: { Type: string; Config: Record<string, string> } }
      }
      assert.deepEqual(HostConfig.LogConfig, { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } })
      return `tail=100 in ${whole(median(tailsMs))} ms (p90 ${whole(p90)} ms), ${whole(grownMb)} MB more memory, at most 3 files of 10 MB`
    }),
}

const open = (port: number): Promise<Socket> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => resolve(socket))
    socket.on('error', reject)
  })

const idle = 1000
const loris = 200

/** Connections that ask once, hear the answer, and stay. */
const openIdle = async (port: number): Promise<Socket[]> => {
  const sockets: Socket[] = []
  for (let n = 0; n < idle; n += 1) {
    const socket = await open(port)
    socket.write('GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive\r\n\r\n')
    await new Promise((resolve) => socket.once('data', resolve))
    sockets.push(socket)
  }
  return sockets
}

/** Requests whose headers (and whose bodies, every other one) never end: a byte each half second. */
const openLoris = async (port: number): Promise<Socket[]> => {
  const sockets = await Promise.all(Array.from({ length: loris }, () => open(port)))
  const begin = [
    'GET /organization HTTP/1.1\r\nhost: localhost\r\nx-slow: ',
    `POST /organization HTTP/1.1\r\nhost: localhost\r\nauthorization: Token ${adminToken}\r\ncontent-type: application/json\r\ncontent-length: 900000\r\n\r\n{"name":"`,
  ]
  for (const [index, socket] of sockets.entries()) {
    socket.on('error', () => {}).on('data', () => {})
    socket.write(begin[index % 2]!)
    const drip = setInterval(() => socket.writable && socket.write('x'), 500)
    socket.on('close', () => clearInterval(drip))
  }
  return sockets
}

const connections: Fault = {
  id: 'F23',
  title: 'slow clients and idle connections by the thousand leave the API as it is',
  deadlineMs: 150_000,
  run: () =>
    withScene({ fake: true }, async ({ slipway }) => {
      const port = Number(new URL(slipway.url).port)
      const beforeMb = residentMb(slipway.pid())
      const sockets = [...(await openIdle(port)), ...(await openLoris(port))]
      try {
        const idleClosed = () => sockets.slice(0, idle).filter((socket) => socket.destroyed).length
        const latencies: number[] = []
        let mostMb = 0
        const slow = sockets.slice(idle)
        // Until the slow ones have been shown out.
        await until(
          async () => {
            latencies.push(
              await timed(async () => assert.equal((await slipway.api('GET', '/organization')).status, 200)),
            )
            mostMb = Math.max(mostMb, residentMb(slipway.pid()))
            return slow.every((socket) => socket.closed)
          },
          { timeoutMs: 90_000, what: 'the slow clients to be shown out' },
        )
        const worstMs = Math.max(...latencies)
        assert.ok(worstMs < 1000, `the API took ${whole(worstMs)} ms`)
        const grownMb = mostMb - beforeMb
        assert.ok(grownMb < 100, `the server grew by ${whole(grownMb)} MB`)
        return `${idle} idle (${idleClosed()} closed) and ${loris} slow connections: ${whole(grownMb)} MB more, slowest of ${latencies.length} answers ${whole(worstMs)} ms; the slow ones were shown out`
      } finally {
        for (const socket of sockets) socket.destroy()
      }
    }),
}

/** The 99th percentile of the event loop's delay since it was last asked for, in milliseconds. */
const loopDelayMs = async ({ url }: Slipway): Promise<number> => {
  const text = await (await fetch(`${url}/metrics`)).text()
  return 1000 * Number(/^nodejs_eventloop_lag_p99_seconds (\S+)$/m.exec(text)?.[1])
}

const clones = 100
const bodies = 10
const bodyOf = (bytes: number): string => JSON.stringify(Array.from({ length: bytes / 10 }, () => 'x'.repeat(7)))

const postText = (slipway: Slipway, path: string, body: string): Promise<Response> =>
  fetch(slipway.url + path, {
    method: 'POST',
    headers: { authorization: `Token ${adminToken}`, 'content-type': 'application/json' },
    body,
  })

/** Bodies beyond the limit are refused unread; those just within it are read and refused. */
const sendBodies = async (slipway: Slipway): Promise<number> => {
  const [tooLarge, large] = [bodyOf(5_000_000), bodyOf(1_000_000)]
  let slowestMs = 0
  for (let n = 0; n < bodies; n += 1) {
    const refusedMs = await timed(async () => {
      // The server closes without reading: it may be heard as an answer or as a closed connection.
      const answer = await postText(slipway, '/organization', tooLarge).catch(() => null)
      if (answer !== null) assert.equal(answer.status, 413)
    })
    slowestMs = Math.max(slowestMs, refusedMs)
    assert.equal((await postText(slipway, '/organization', large)).status, 400)
  }
  return slowestMs
}

/** All at once; those that get a 503 are retried. Returns how many did. */
const cloneAll = async ({ api }: Slipway, environmentId: string, round: number): Promise<number> => {
  let later = 0
  const clone = async (name: string): Promise<boolean> => {
    const { status, headers } = await api('POST', `/environment/${environmentId}/clone`, { name })
    if (status === 202) return true
    assert.equal(status, 503)
    assert.ok(Number(headers.get('retry-after')) > 0)
    later += 1
    return false
  }
  const ask = (_: unknown, n: number) =>
    until(() => clone(`clone-${round}-${n}`), { timeoutMs: 60_000, what: `clone ${n} to be taken` })
  await Promise.all(Array.from({ length: clones }, ask))
  return later
}

/** Holds the delay during `work` to 100 ms; measured again where something else on the machine may be to blame. */
const holdDelay = async (slipway: Slipway, work: (round: number) => Promise<number>) => {
  const measured: number[] = []
  for (let round = 0; round < 3; round += 1) {
    await loopDelayMs(slipway)
    const figure = await work(round)
    measured.push(whole(await loopDelayMs(slipway)))
    if (measured.at(-1)! < 100) return { delayMs: measured.at(-1)!, figure }
  }
  throw new Error(`p99 of the loop's delay: ${measured.join(', ')} ms`)
}

const blocks: Fault = {
  id: 'F26',
  title: 'neither huge bodies nor a hundred clones at once hold up the event loop',
  deadlineMs: 150_000,
  run: () =>
    withScene({ fake: true }, async (scene) => {
      const { slipway, send } = scene
      const place = await createPlace(slipway)
      const registry = await addRegistry(scene, place, 'any', 'https://registry.example')
      for (let n = 0; n < 10; n += 1) {
        const image = { registry_id: registry.id, image_name: 'fake/serve', tag: '1' }
        const { id } = await addContainer(scene, place.environmentId, `service-${n}`, image)
        await send('POST', `/container/${id}/environmentVariable`, { key: 'KEY', value: 'value' })
      }
      const bodiesSent = await holdDelay(slipway, () => sendBodies(slipway))
      const refusedMs = bodiesSent.figure
      assert.ok(refusedMs < 1000, `5 MB were refused after ${whole(refusedMs)} ms`)
      const cloned = await holdDelay(slipway, (round) => cloneAll(slipway, place.environmentId, round))
      return `p99 of the loop's delay ${bodiesSent.delayMs} ms (5 MB bodies refused within ${whole(refusedMs)} ms) and ${cloned.delayMs} ms (${clones} clones of 10 services, ${cloned.figure} asked to come again)`
    }),
}

export const overloadFaults: readonly Fault[] = [logFlood, connections, blocks]
