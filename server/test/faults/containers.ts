/** F7: containers that are removed or stopped behind our back, and one that can no longer run. */
import assert from 'node:assert/strict'
import { page } from '../support/docker/apps.ts'
import { busyboxImage } from '../support/docker/busybox-image.ts'
import { containersOf, engine, removeContainer } from '../support/docker/docker.ts'
import type { Slipway } from '../support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, hostOf, type Place, settle, visit } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import { followContainers } from './container-events.ts'
import type { Fault } from './fault.ts'
import { moment, timed, whole } from './figures.ts'
import { type Scene, withScene } from './scene.ts'

const noticedMs = 10_000

/** Runs once: a second start of the same container fails. */
const livesOnce: Record<string, string> = {
  Dockerfile: [
    `FROM ${busyboxImage}`,
    'COPY index.html /www/index.html',
    'CMD ["sh", "-c", "[ ! -e /lived ] && touch /lived && exec httpd -f -p 8080 -h /www"]',
    '',
  ].join('\n'),
  'index.html': 'once\n',
}

interface Service {
  id: string
  host: string
}

const deployed = async (scene: Scene, place: Place, name: string, files: Record<string, string>): Promise<Service> => {
  const { id } = await createApplication(scene.slipway, place, name, await scene.repository(name, files))
  await deploy(scene.slipway, id)
  assert.equal(await settle(scene.slipway, id), 'DEPLOYED')
  return { id, host: hostOf(place, name) }
}

const onlyContainer = async (service: Service): Promise<string> => {
  const found = await containersOf(service.id)
  assert.equal(found.length, 1)
  return found[0]!.Id
}

const runningState = async (slipway: Slipway, { id }: Service): Promise<string> =>
  (await slipway.api('GET', `/application/${id}/status`)).body.running_state

const servesAgain = (slipway: Slipway, service: Service, after: string): Promise<number> =>
  timed(() =>
    until(async () => (await visit(slipway, service.host)).status === 200, {
      timeoutMs: noticedMs,
      what: `the service to be served again after ${after}`,
    }),
  )

/** Removed while we run, and while we do not. */
const removed = async (scene: Scene, service: Service): Promise<number[]> => {
  const { slipway } = scene
  const first = await onlyContainer(service)
  await removeContainer(first)
  const runningMs = await servesAgain(slipway, service, 'a removal')
  const second = await onlyContainer(service)
  assert.notEqual(second, first)
  await slipway.kill('SIGKILL')
  await removeContainer(second)
  await slipway.start()
  const awayMs = await servesAgain(slipway, service, 'a removal while we were away')
  await until(async () => (await runningState(slipway, service)) === 'RUNNING', { what: 'the state to be RUNNING' })
  return [runningMs, awayMs]
}

const stopped = async ({ slipway }: Scene, service: Service): Promise<number> => {
  const id = await onlyContainer(service)
  await engine.call('POST', `/containers/${id}/stop`, { query: { t: 0 } })
  const ms = await servesAgain(slipway, service, 'a stop')
  assert.equal(await onlyContainer(service), id)
  return ms
}

const crashMs = 40_000
/** The engine's pauses double from a tenth of a second: not even ten starts fit. */
const mostStarts = 12

/** Stopped, it cannot live again: that is shown, and it is tried ever more seldom. Anew it lives. */
const crashing = async ({ slipway }: Scene, service: Service): Promise<{ shownMs: number; starts: number }> => {
  const id = await onlyContainer(service)
  const events = await followContainers(service.id)
  await engine.call('POST', `/containers/${id}/stop`, { query: { t: 0 } })
  const shownMs = await timed(() =>
    until(async () => (await runningState(slipway, service)) === 'ERROR', { timeoutMs: noticedMs, what: 'ERROR' }),
  )
  await moment(crashMs)
  assert.equal(await runningState(slipway, service), 'ERROR')
  const starts = events.seen.filter(({ action }) => action === 'start')
  assert.ok(starts.length >= 2 && starts.length <= mostStarts, `started ${starts.length} times`)
  const [last, before] = [starts.at(-1)!.atMs, starts.at(-2)!.atMs]
  assert.ok(last - before > 5000, `the last pause was ${whole(last - before)} ms`)
  await events.close()
  await removeContainer(id)
  await servesAgain(slipway, service, 'the removal of the broken one')
  await until(async () => (await runningState(slipway, service)) === 'RUNNING', { what: 'the state to be RUNNING' })
  return { shownMs, starts: starts.length }
}

const behindOurBack: Fault = {
  id: 'F7',
  title: 'a container removed or stopped behind our back is back within seconds, a broken one is not tried endlessly',
  deadlineMs: 180_000,
  run: () =>
    withScene({}, async (scene) => {
      const place = await createPlace(scene.slipway)
      const web = await deployed(scene, place, 'web', page('steady'))
      const once = await deployed(scene, place, 'once', livesOnce)
      const [runningMs, awayMs] = (await removed(scene, web)).map(whole)
      const stoppedMs = whole(await stopped(scene, web))
      const { shownMs, starts } = await crashing(scene, once)
      return `served again ${runningMs} ms after rm -f (${awayMs} ms after our start, if we were away), ${stoppedMs} ms after stop; broken: ERROR after ${whole(shownMs)} ms, ${starts} starts in ${crashMs / 1000} s`
    }),
}

export const containerFaults: readonly Fault[] = [behindOurBack]
