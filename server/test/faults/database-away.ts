/** F4 and F5: the database is restarted, or does not answer for a minute. */
import assert from 'node:assert/strict'
import { page } from '../support/docker/apps.ts'
import { containersOf } from '../support/docker/docker.ts'
import { startLoad } from '../support/slipway/load.ts'
import type { Answer, Json, Slipway } from '../support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  hostOf,
  type Place,
  settle,
  stateOf,
  visit,
} from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import { slowPage } from './acknowledged.ts'
import { endAtOnce, freeze } from './database-process.ts'
import type { Fault } from './fault.ts'
import { timed, whole } from './figures.ts'
import { type Scene, withScene } from './scene.ts'

interface Asked {
  answers: number
  refused: number
  slowestMs: number
  writes: number
  /** The last turn of which each key's write was acknowledged. */
  kept: Map<string, number>
}

/** A place has room for 2,000 variables: each writer begins anew with its keys. */
const keysOfWriter = 500

/** Clients that read and write without a pause: every answer must be a success, or a 503 that says when to come back. */
const startClients = (slipway: Slipway, place: Place) => {
  const asked: Asked = { answers: 0, refused: 0, slowestMs: 0, writes: 0, kept: new Map() }
  const path = `/environment/${place.environmentId}/environmentVariable`
  let running = true
  const judge = ({ status, headers }: Answer): void => {
    asked.answers += 1
    if (status === 503) asked.refused += 1
    else assert.ok(status === 200 || status === 201, `answered with ${status}`)
    if (status === 503) assert.ok(Number(headers.get('retry-after')) <= 5, 'a 503 without Retry-After of at most 5 s')
  }
  const ask = async (work: () => Promise<Answer>): Promise<Answer> => {
    const from = performance.now()
    const answer = await work()
    asked.slowestMs = Math.max(asked.slowestMs, performance.now() - from)
    judge(answer)
    return answer
  }
  const writer = async (name: number): Promise<void> => {
    for (let turn = 0; running; turn += 1) {
      const key = `KEY_${name}_${turn % keysOfWriter}`
      if ((await ask(() => slipway.api('POST', path, { key, value: String(turn) }))).status !== 201) continue
      asked.writes += 1
      asked.kept.set(key, turn)
    }
  }
  const reader = async (url: string): Promise<void> => {
    while (running) await ask(() => slipway.api('GET', url))
  }
  const clients = Promise.all([
    writer(1),
    writer(2),
    reader(`/environment/${place.environmentId}/statuses`),
    reader(`/organization/${place.organizationId}/project`),
  ])
  clients.catch(() => {})
  return async (): Promise<Asked> => {
    running = false
    await clients
    return asked
  }
}

const isAnswering = async (slipway: Slipway): Promise<boolean> =>
  (await slipway.api('GET', '/organization')).status === 200

/** How long the API could not answer after the database went. */
const restartDatabase = async (slipway: Slipway): Promise<number> => {
  const from = performance.now()
  endAtOnce(slipway)
  await until(async () => !(await isAnswering(slipway)), { what: 'the database to be away' })
  await until(() => isAnswering(slipway), { timeoutMs: 30_000, what: 'the database to be back' })
  return performance.now() - from
}

const restarts = 3

const restarted: Fault = {
  id: 'F4',
  title: 'a restart of the database amid deployments costs some 503 for seconds, and nothing else',
  deadlineMs: 240_000,
  run: () =>
    withScene({}, async ({ slipway, git, repository }) => {
      const place = await createPlace(slipway)
      const application = await createApplication(slipway, place, 'web', await repository('web', page('v0')))
      await deploy(slipway, application.id)
      assert.equal(await settle(slipway, application.id), 'DEPLOYED')
      const stop = startClients(slipway, place)
      const away: number[] = []
      for (let round = 1; round <= restarts; round += 1) {
        await git.commit('web', slowPage(`v${round}`, 1), `v${round}`)
        await deploy(slipway, application.id)
        away.push(await restartDatabase(slipway))
        assert.equal(await settleThrough(slipway, application.id), 'DEPLOYED')
        assert.deepEqual(await visit(slipway, hostOf(place, 'web')), { status: 200, text: `v${round}` })
      }
      const asked = await stop()
      const { body } = await slipway.api('GET', `/environment/${place.environmentId}/environmentVariable`)
      const found = new Map<string, number>(body.results.map(({ key, value }: Json) => [key, Number(value)]))
      assert.deepEqual(
        [...asked.kept].filter(([key, turn]) => !((found.get(key) ?? -1) >= turn)),
        [],
        'acknowledged and lost',
      )
      const figures = `away ${away.map(whole).join(', ')} ms; ${asked.answers} answers, ${asked.refused} of them 503, slowest ${whole(asked.slowestMs)} ms`
      assert.ok(Math.max(...away, asked.slowestMs) <= 5000, figures)
      return `${figures}; ${asked.writes} writes kept, ${restarts} deployments through`
    }),
}

/** Waits for the end of what is under way, over answers that fail meanwhile. */
const settleThrough = (slipway: Slipway, id: string): Promise<string> =>
  until(async () => ((await isAnswering(slipway)) ? settle(slipway, id) : null), { what: 'an answer' })

const frozenMs = 60_000

const health = async ({ url }: Slipway): Promise<{ live: number; ready: number }> => ({
  live: (await fetch(`${url}/healthz`)).status,
  ready: (await fetch(`${url}/readyz`)).status,
})

/** While the database is away: alive, not ready, and what was begun goes no further. */
const holdsStill = async ({ slipway }: Scene, applicationId: string): Promise<number> => {
  const from = performance.now()
  let looks = 0
  const containers = new Set((await containersOf(applicationId)).map(({ Id }) => Id))
  await until(
    async () => {
      assert.deepEqual(await health(slipway), { live: 200, ready: 503 })
      const now = await containersOf(applicationId)
      assert.deepEqual(new Set(now.map(({ Id }) => Id)), containers, 'containers came or went')
      looks += 1
      return performance.now() - from >= frozenMs
    },
    { timeoutMs: 2 * frozenMs, what: 'the end of the fault' },
  )
  return looks
}

const gone: Fault = {
  id: 'F5',
  title: 'while the database is away for a minute the server lives, is not ready, and changes nothing',
  deadlineMs: 240_000,
  run: () =>
    withScene({}, async (scene) => {
      const { slipway, git } = scene
      const place = await createPlace(slipway)
      const application = await createApplication(slipway, place, 'web', await scene.repository('web', page('v1')))
      await deploy(slipway, application.id)
      assert.equal(await settle(slipway, application.id), 'DEPLOYED')
      await git.commit('web', slowPage('v2', 3), 'v2')
      await deploy(slipway, application.id)
      await until(async () => (await containersOf(application.id)).length === 2, {
        timeoutMs: 30_000,
        what: 'the new version beside the old',
      })
      assert.equal(await stateOf(slipway, application.id), 'DEPLOYING')
      const load = startLoad(slipway.routerPort, hostOf(place, 'web'), { clients: 2, websocket: false })
      const goOn = freeze(slipway)
      const looks = await holdsStill(scene, application.id).finally(() => {
        goOn()
        return load.stop()
      })
      const during = load.report()
      assert.deepEqual([during.failures, during.versions], [[], ['v1']])
      const readyMs = await timed(() =>
        until(async () => (await health(slipway)).ready === 200, { timeoutMs: 30_000, what: 'it to be ready' }),
      )
      assert.equal(await settleThrough(slipway, application.id), 'DEPLOYED')
      assert.deepEqual(await visit(slipway, hostOf(place, 'web')), { status: 200, text: 'v2' })
      await until(async () => (await containersOf(application.id)).length === 1, {
        timeoutMs: 60_000,
        what: 'one container',
      })
      return `${frozenMs / 1000} s away: live and not ready at ${looks} looks, ${during.requests} requests to the old version, none failed; ready ${whole(readyMs)} ms after`
    }),
}

export const databaseFaults: readonly Fault[] = [restarted, gone]
