/** F2 and F3: what was acknowledged stays, and what was done without an answer is answered to who asks again. */
import assert from 'node:assert/strict'
import { createServer, request as forward } from 'node:http'
import { page } from '../support/docker/apps.ts'
import { busyboxImage } from '../support/docker/busybox-image.ts'
import { adminToken, type Json, type Slipway } from '../support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  hostOf,
  isSettled,
  type Place,
  settle,
  stateOf,
  visit,
} from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'
import { chance, timed, whole } from './figures.ts'
import { withScene } from './scene.ts'

/** A page that begins to listen after some seconds, so that its deployment is long under way. */
export const slowPage = (text: string, seconds: number): Record<string, string> => ({
  Dockerfile: [
    `FROM ${busyboxImage}`,
    'COPY index.html /www/index.html',
    `CMD ["sh", "-c", "sleep ${seconds}; exec httpd -f -p 8080 -h /www"]`,
    '',
  ].join('\n'),
  'index.html': `${text}\n`,
})

const inFlight = 50

const variables = ({ environmentId }: Place): string => `/environment/${environmentId}/environmentVariable`

const write = (slipway: Slipway, place: Place, key: string): Promise<string | null> =>
  slipway.api('POST', variables(place), { key, value: 'kept' }).then(
    ({ status }) => {
      assert.ok(status === 201 || status === 503, `a write was answered with ${status}`)
      return status === 201 ? key : null
    },
    () => null,
  )

const keysOf = async (slipway: Slipway, place: Place): Promise<Set<string>> => {
  const { body } = await slipway.api('GET', variables(place))
  return new Set(body.results.map(({ key }: Json) => key).filter((key: string) => key.startsWith('KEY_')))
}

/** Sends all at once and SIGTERM while they are under way; answers the keys of those acknowledged, and the time to the end. */
const endAmidWrites = async (slipway: Slipway, place: Place): Promise<{ kept: string[]; endedMs: number }> => {
  let answered = 0
  const writes = Array.from({ length: inFlight }, (_, index) =>
    write(slipway, place, `KEY_${index}`).finally(() => {
      answered += 1
    }),
  )
  await until(() => answered > 0, { what: 'the first answer' })
  const endedMs = await timed(() => slipway.kill('SIGTERM'))
  const kept = (await Promise.all(writes)).filter((key) => key !== null)
  return { kept, endedMs }
}

const terminated: Fault = {
  id: 'F2',
  title: 'SIGTERM amid a deployment and 50 requests loses no acknowledged write',
  run: () =>
    withScene({}, async ({ slipway, git, repository }) => {
      const place = await createPlace(slipway)
      const application = await createApplication(slipway, place, 'web', await repository('web', page('v1')))
      await deploy(slipway, application.id)
      assert.equal(await settle(slipway, application.id), 'DEPLOYED')
      await git.commit('web', slowPage('v2', 8), 'v2')
      await deploy(slipway, application.id)
      await until(async () => (await stateOf(slipway, application.id)) === 'DEPLOYING', {
        timeoutMs: 30_000,
        what: 'the deployment to be under way',
      })
      const { kept, endedMs } = await endAmidWrites(slipway, place)
      assert.ok(endedMs <= 20_000, `ended after ${whole(endedMs)} ms`)
      assert.deepEqual(await visit(slipway, hostOf(place, 'web')), { status: 200, text: 'v1' })
      await slipway.start()
      assert.ok(!isSettled(await stateOf(slipway, application.id)), 'the deployment ended with the server')
      const found = await keysOf(slipway, place)
      // Neither acknowledged and lost nor kept and not acknowledged.
      assert.deepEqual(kept.sort(), [...found].sort())
      const throughMs = await timed(async () => assert.equal(await settle(slipway, application.id), 'DEPLOYED'))
      assert.deepEqual(await visit(slipway, hostOf(place, 'web')), { status: 200, text: 'v2' })
      return `${kept.length} of ${inFlight} acknowledged, none lost; ended after ${whole(endedMs)} ms; deployed ${whole(throughMs)} ms after the restart`
    }),
}

/** Stands before the API and cuts every answer: kills the server when it arrives, or `afterMs` after the request went in. */
const startCuttingProxy = async (slipway: Slipway) => {
  const proxy = { url: '', strike: () => {}, close: async () => {} }
  const server = createServer((incoming, outgoing) => {
    const cut = () => {
      proxy.strike()
      outgoing.destroy()
    }
    const { method, url, headers } = incoming
    const onward = forward(slipway.url + url!, { method, headers }, cut).on('error', () => outgoing.destroy())
    incoming.pipe(onward)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  proxy.url = `http://127.0.0.1:${(server.address() as { port: number }).port}`
  proxy.close = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  return proxy
}

const rounds = 10
const longestMs = 12

interface Cut {
  /** Killed this long after the request, or by its answer. */
  afterMs: number | null
}

const cutAnswer: Fault = {
  id: 'F3',
  title: 'kill -9 between commit and answer: asked again with its key, the same object is answered',
  deadlineMs: 180_000,
  run: () =>
    withScene({ fake: true }, async ({ slipway, send }) => {
      const { id } = await send('GET', '/organization')
      const projects = `/organization/${id}/project`
      const proxy = await startCuttingProxy(slipway)
      const next = chance(Date.now() % 1_000_000)
      let replayed = 0
      const attempt = async (name: string, { afterMs }: Cut): Promise<void> => {
        const headers = { authorization: `Token ${adminToken}`, 'content-type': 'application/json' }
        const body = JSON.stringify({ name })
        const key = { 'idempotency-key': `key-of-${name}` }
        const death = Promise.withResolvers<unknown>()
        const strike = () => death.resolve(slipway.kill('SIGKILL'))
        proxy.strike = strike
        const asked = fetch(proxy.url + projects, { method: 'POST', headers: { ...headers, ...key }, body })
        if (afterMs !== null) setTimeout(strike, afterMs)
        await assert.rejects(asked, `${name} was answered`)
        await death.promise
        await slipway.start()
        const again = await slipway.api('POST', projects, { name }, key)
        assert.equal(again.status, 200, JSON.stringify(again.body))
        const isReplay = again.headers.get('idempotent-replayed') === 'true'
        if (isReplay) replayed += 1
        assert.ok(isReplay || afterMs !== null, `${name} was made before, yet not known by its key`)
        const { results } = await send('GET', projects)
        const found = results.filter((each: Json) => each.name === name)
        assert.deepEqual([found.length, found[0]?.id], [1, again.body.id], name)
      }
      try {
        for (let round = 0; round < rounds; round += 1) {
          await attempt(`answered-${round}`, { afterMs: null })
          await attempt(`under-way-${round}`, { afterMs: next() * longestMs })
        }
      } finally {
        await proxy.close()
      }
      return `${2 * rounds} answers cut, ${replayed} of them after the commit: each object is there once`
    }),
}

export const acknowledgedFaults: readonly Fault[] = [terminated, cutAnswer]
