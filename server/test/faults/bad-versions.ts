/**
 * F11 to F14: new versions that crash, that need too much memory, that never get ready, whose image is not available.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { deaf, page } from '../support/docker/apps.ts'
import { busyboxImage } from '../support/docker/busybox-image.ts'
import { containersOf } from '../support/docker/docker.ts'
import { startLoad } from '../support/slipway/load.ts'
import { freePort, type Json } from '../support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  deploymentLog,
  hostOf,
  settle,
  settleAt,
  stateAt,
} from '../support/slipway/story.ts'
import type { Fault } from './fault.ts'
import { timed, whole } from './figures.ts'
import { addContainer, addRegistry, type Scene, stepSeconds, withScene } from './scene.ts'

/** An application whose new version is `command` instead of a page. */
const running = (command: string): Record<string, string> => ({
  Dockerfile: `FROM ${busyboxImage}\nCMD ["sh", "-c", "${command}"]\n`,
})

interface Ending {
  endedMs: number
  log: string
  application: Json
  requests: number
}

/** Deploys a page, then a bad version of it under load: no request may fail, and one container of the old one stays. */
const replaceWith = async (scene: Scene, files: Record<string, string>, more: object = {}): Promise<Ending> => {
  const { slipway, git } = scene
  const place = await createPlace(slipway)
  const name = place.environmentName
  const url = await scene.repository(name, page('old version'))
  const application = await createApplication(slipway, place, 'web', url, { ...more })
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYED')
  await git.commit(name, files, 'bad')
  const load = startLoad(slipway.routerPort, hostOf(place, 'web'), { clients: 1, websocket: false })
  const endedMs = await timed(async () => {
    await deploy(slipway, application.id)
    assert.equal(await settle(slipway, application.id), 'DEPLOYMENT_ERROR')
  })
  const report = await load.stop()
  assert.deepEqual([report.failures, report.versions], [[], ['old version']])
  assert.equal((await containersOf(application.id)).length, 1)
  const log = await deploymentLog(slipway, place.environmentId)
  return { endedMs, log, application, requests: report.requests }
}

const crashes: Fault = {
  id: 'F11',
  title: 'a version that crashes again and again fails, and the old one serves',
  deadlineMs: 150_000,
  run: () =>
    withScene({}, async (scene) => {
      const { endedMs, log, requests } = await replaceWith(scene, running('echo last-words; exit 1'))
      assert.ok(endedMs <= 60_000, `ended after ${whole(endedMs)} ms`)
      assert.match(log, /last-words/)
      const times = /exited (\d+) times/.exec(log)?.[1]
      assert.ok(Number(times) > 1, log)
      return `DEPLOYMENT_ERROR after ${whole(endedMs)} ms and ${times} ends; ${requests} requests to the old version, none failed`
    }),
}

const outOfMemory: Fault = {
  id: 'F12',
  title: 'a version that needs more than its memory fails with that as its reason',
  deadlineMs: 150_000,
  run: () =>
    withScene({}, async (scene) => {
      const bad = running('exec tail /dev/zero')
      const { endedMs, log, application } = await replaceWith(scene, bad, { memory: 16 })
      assert.match(log, /ran out of memory \(OOMKilled\): it was killed at its limit of 16 MB/)
      const { results } = await scene.send('GET', `/application/${application.id}/deploymentHistoryV2`)
      assert.equal(results[0].status, 'DEPLOYMENT_ERROR')
      return `DEPLOYMENT_ERROR after ${whole(endedMs)} ms, the reason is OOMKilled`
    }),
}

const probe = { initial_delay_seconds: 0, period_seconds: 4, timeout_seconds: 1, failure_threshold: 2 }
const healthchecks = { readiness_probe: { type: { http: { path: '/', port: 8080 } }, ...probe } }

const neverReady: Fault = {
  id: 'F13',
  title: 'a version that never passes its check fails at its deadline',
  deadlineMs: 150_000,
  run: () =>
    withScene({}, async (scene) => {
      const { log, requests, application } = await replaceWith(scene, deaf('never-listens'), { healthchecks })
      const seconds = await stepSeconds(scene, `/application/${application.id}`, 'DEPLOYMENT')
      assert.ok(seconds >= 10 && seconds < 20, `waited ${seconds} s`)
      assert.match(log, /did not become ready within 10 s/)
      assert.match(log, /never-listens/)
      return `DEPLOYMENT_ERROR after waiting ${seconds} s of 10 s; ${requests} requests to the old version, none failed`
    }),
}

/** A registry that answers every question for an image with `status`; counts them. */
const startBrokenRegistry = async (status: number) => {
  const asked: string[] = []
  const server = createServer((request, response) => {
    const isImage = request.url!.includes('/manifests/')
    if (isImage && request.method === 'GET') asked.push(request.url!)
    const body = { errors: [{ code: status === 404 ? 'MANIFEST_UNKNOWN' : 'UNKNOWN', message: 'as told' }] }
    response.writeHead(isImage ? status : 200, {
      'content-type': 'application/json',
      'docker-distribution-api-version': 'registry/2.0',
    })
    response.end(isImage ? JSON.stringify(body) : '{}')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  return {
    url: `http://127.0.0.1:${port}`,
    asked,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Deploys a container whose image is not available there; returns how long that took. */
const deployFrom = async (scene: Scene, name: string, url: string): Promise<number> => {
  const place = await createPlace(scene.slipway)
  const registry = await addRegistry(scene, place, name, url)
  const image = { registry_id: registry.id, image_name: 'team/nowhere', tag: '7' }
  const container = await addContainer(scene, place.environmentId, name, image)
  const path = `/container/${container.id}`
  const endedMs = await timed(async () => {
    await scene.send('POST', `${path}/deploy`, { image_tag: '7' })
    assert.equal(await settleAt(scene.slipway, path), 'DEPLOYMENT_ERROR')
  })
  assert.ok(endedMs <= 30_000, `${name} ended after ${whole(endedMs)} ms`)
  const log = await deploymentLog(scene.slipway, place.environmentId)
  assert.ok(log.includes(`${new URL(url).host}/team/nowhere:7`), log)
  assert.equal(await stateAt(scene.slipway, path), 'DEPLOYMENT_ERROR')
  return endedMs
}

const imageMissing: Fault = {
  id: 'F14',
  title: 'an image that cannot be had fails by its name, after few tries',
  deadlineMs: 150_000,
  run: () =>
    withScene({}, async (scene) => {
      const [without, failing] = [await startBrokenRegistry(404), await startBrokenRegistry(500)]
      try {
        const missingMs = await deployFrom(scene, 'missing', without.url)
        const refusedMs = await deployFrom(scene, 'refused', failing.url)
        const awayMs = await deployFrom(scene, 'away', `http://127.0.0.1:${await freePort()}`)
        const tries = [without.asked.length, failing.asked.length]
        assert.ok(Math.max(...tries) <= 3, `tries: ${tries}`)
        return `not there ${whole(missingMs)} ms, registry fails ${whole(refusedMs)} ms, registry away ${whole(awayMs)} ms; ${tries.join(' and ')} tries`
      } finally {
        await without.close()
        await failing.close()
      }
    }),
}

export const badVersionFaults: readonly Fault[] = [crashes, outOfMemory, neverReady, imageMissing]
