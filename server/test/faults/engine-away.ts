/** F6: the engine is gone, slow, or takes connections and never answers. */
import assert from 'node:assert/strict'
import { page } from '../support/docker/apps.ts'
import { type Load, startLoad } from '../support/slipway/load.ts'
import type { Json, Slipway } from '../support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  deploymentLog,
  hostOf,
  type Place,
  settle,
  visit,
} from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import { type EngineProxy, startEngineProxy, type Trouble } from './engine-proxy.ts'
import type { Fault } from './fault.ts'
import { median, percentile, timed, whole } from './figures.ts'
import { type Scene, withScene } from './scene.ts'

const latencyMs = 10_000
const goneMs = 30_000
const slowMs = 30_000
/** A step waits two minutes for an engine; a call that is never answered takes half a minute to be given up. */
const longestWaitMs = 180_000
const windows = 5
const asksEach = 60

interface Stage extends Scene {
  proxy: EngineProxy
  place: Place
  applicationId: string
  load: Load
  /** Latency of the API without load. */
  quietMs: number
}

/** The p99 of reads and writes of the API: the usual one of some windows. */
const p99Of = async (slipway: Slipway, place: Place, applicationId: string): Promise<number> => {
  const all: number[] = []
  for (let window = 0; window < windows; window += 1) {
    const each: number[] = []
    for (let turn = 0; turn < asksEach; turn += 1) {
      each.push(await timed(() => slipway.api('GET', `/application/${applicationId}/status`)))
      each.push(await timed(() => slipway.api('GET', `/environment/${place.environmentId}/statuses`)))
      each.push(
        await timed(() => slipway.api('PUT', `/environment/${place.environmentId}`, { name: place.environmentName })),
      )
    }
    all.push(percentile(each, 0.99))
  }
  return median(all)
}

const readStatus = async ({ slipway, applicationId }: Stage, headers: Record<string, string> = {}): Promise<Json> =>
  (await slipway.api('GET', `/application/${applicationId}/status`, undefined, headers)).body

/** The state that must be shown for a running application while it is unknown. */
const showsUnavailable = async (stage: Stage): Promise<void> => {
  await until(async () => (await readStatus(stage)).running_state === 'UNAVAILABLE', {
    timeoutMs: 30_000,
    what: 'the state to be UNAVAILABLE',
  })
  const [own, exact] = [await readStatus(stage), await readStatus(stage, { 'x-state-vocabulary': 'deployment' })]
  assert.deepEqual([own.state, exact.state], ['UNAVAILABLE', 'DEPLOYED'])
  assert.deepEqual([own.service_deployment_status, exact.service_deployment_status], ['UP_TO_DATE', 'UP_TO_DATE'])
}

const isRunningAgain = (stage: Stage): Promise<unknown> =>
  until(async () => (await readStatus(stage)).running_state === 'RUNNING', {
    timeoutMs: 90_000,
    what: 'the state to be RUNNING again',
  })

/** The trouble, for at least `ms`; answers the p99 of the API in it. */
const suffer = async (stage: Stage, trouble: Trouble, ms: number, more = async () => {}): Promise<number> => {
  const from = performance.now()
  stage.proxy.set(trouble)
  await showsUnavailable(stage)
  const p99 = await p99Of(stage.slipway, stage.place, stage.applicationId)
  assert.ok(
    p99 <= 2 * stage.quietMs + 50,
    `p99 of the API ${whole(p99)} ms, ${whole(stage.quietMs)} ms in a quiet time`,
  )
  await more()
  await until(() => performance.now() - from >= ms, { timeoutMs: ms + 5000, what: 'the end of the trouble' })
  return p99
}

const relieve = async (stage: Stage): Promise<void> => {
  stage.proxy.set('none')
  await isRunningAgain(stage)
}

/** Deploys `version`; returns how the deployment ends, to be awaited during the outage. */
const deployVersion = async (stage: Stage, version: string): Promise<void> => {
  await stage.git.commit('web', { 'index.html': `${version}\n` }, version)
  await deploy(stage.slipway, stage.applicationId)
}

/** While nothing answers, a deployment waits, then fails with that as its cause; the old version serves. */
const failInSilence = async (stage: Stage): Promise<number> => {
  await deployVersion(stage, 'v3')
  const endedMs = await timed(async () =>
    assert.match(await settle(stage.slipway, stage.applicationId, longestWaitMs), /^(BUILD|DEPLOYMENT)_ERROR$/),
  )
  assert.ok(endedMs > 60_000, `failed after ${whole(endedMs)} ms`)
  const log = await deploymentLog(stage.slipway, stage.place.environmentId)
  assert.match(log, /The Docker engine does not answer/)
  const { body } = await stage.slipway.api('GET', `/application/${stage.applicationId}/deploymentHistory`)
  assert.equal(body.results[0].status, 'FAILED')
  return endedMs
}

const setStage = async (scene: Scene, proxy: EngineProxy): Promise<Stage> => {
  const { slipway } = scene
  const place = await createPlace(slipway)
  const { id } = await createApplication(slipway, place, 'web', await scene.repository('web', page('v1')))
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id), 'DEPLOYED')
  const load = startLoad(slipway.routerPort, hostOf(place, 'web'), { clients: 2, websocket: false })
  const quietMs = await p99Of(slipway, place, id)
  return { ...scene, proxy, place, applicationId: id, load, quietMs }
}

const troubles = async (stage: Stage): Promise<string> => {
  const { slipway, applicationId } = stage
  const gone = await suffer(stage, 'away', goneMs, () => deployVersion(stage, 'v2'))
  await relieve(stage)
  assert.equal(await settle(slipway, applicationId), 'DEPLOYED')
  assert.equal((await visit(slipway, hostOf(stage.place, 'web'))).text, 'v2')
  const slow = await suffer(stage, 'slow', slowMs)
  await relieve(stage)
  let failedMs = 0
  const silent = await suffer(stage, 'silent', 0, async () => {
    failedMs = await failInSilence(stage)
  })
  await relieve(stage)
  const { failures, versions, requests } = stage.load.report()
  assert.deepEqual([failures, versions], [[], ['v1', 'v2']])
  const p99 = [stage.quietMs, gone, slow, silent].map(whole)
  return `p99 of the API quiet ${p99[0]} ms, gone ${p99[1]}, slow ${p99[2]}, silent ${p99[3]}; waited out ${goneMs / 1000} s, failed with the cause after ${whole(failedMs / 1000)} s; ${requests} requests, none failed`
}

const away: Fault = {
  id: 'F6',
  title: 'while the engine is gone, slow or silent what runs is UNAVAILABLE and serves; deployments wait, then fail',
  deadlineMs: 600_000,
  async run() {
    const proxy = await startEngineProxy(latencyMs)
    try {
      return await withScene({ env: { DOCKER_HOST: proxy.dockerHost } }, async (scene) => {
        try {
          const stage = await setStage(scene, proxy)
          return await troubles(stage).finally(() => stage.load.stop())
        } finally {
          proxy.set('none')
        }
      })
    } finally {
      await proxy.close()
    }
  },
}

export const engineFaults: readonly Fault[] = [away]
