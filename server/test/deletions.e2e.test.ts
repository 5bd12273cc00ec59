/** Deletes during a build on the real engine: a deletion does not wait for work that is no longer needed. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { newId } from '../src/lib/ids.ts'
import { busyboxImage, ensureBusybox } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, type Place } from './support/slipway/story.ts'
import { until } from './support/until.ts'

let git: GitServer
let slipway: Slipway

before(async () => {
  await ensureBusybox()
  git = await startGitServer()
  slipway = await prepareSlipway()
  await slipway.start()
})

after(async () => {
  await slipway?.remove()
  await git?.close()
  await engine.close()
})

const stepsOf = async (mark: string): Promise<number> => {
  const containers = await engine.call<{ Command: string }[]>('GET', '/containers/json')
  return containers.filter(({ Command }) => Command.includes(mark)).length
}

/** An application whose build is in a step of ten minutes. */
const startBuild = async (place: Place): Promise<{ id: string; mark: string }> => {
  const mark = newId()
  const name = `app-${mark.slice(0, 8)}`
  await git.createRepository(name)
  await git.commit(name, { Dockerfile: `FROM ${busyboxImage}\nRUN sleep 600; echo ${mark}\n` }, 'slow')
  const { id } = await createApplication(slipway, place, name, git.url(name))
  await deploy(slipway, id)
  await until(async () => (await stepsOf(mark)) > 0, { timeoutMs: 60_000, what: 'the step' })
  return { id, mark }
}

/** Much longer than a cancel may take, and much shorter than the step. */
const deadline = { timeoutMs: 120_000 }

const isGone = async (path: string): Promise<boolean> => (await slipway.api('GET', path)).status === 404

test('a deleted application is gone before its build would have ended, and a second delete joins the first', async () => {
  const { id, mark } = await startBuild(await createPlace(slipway))
  assert.equal((await slipway.api('DELETE', `/application/${id}`)).status, 204)
  const again = (await slipway.api('DELETE', `/application/${id}`)).status
  assert.ok([204, 404].includes(again), String(again))
  await until(() => isGone(`/application/${id}`), { ...deadline, what: 'the end of the application' })
  await until(async () => (await stepsOf(mark)) === 0, { what: 'the end of the step' })
})

test('a deleted environment is gone before its build would have ended, and nothing is left to cancel', async () => {
  const place = await createPlace(slipway)
  const { mark } = await startBuild(place)
  const path = `/environment/${place.environmentId}`
  assert.equal((await slipway.api('DELETE', path)).status, 204)
  await slipway.api('POST', `${path}/cancelDeployment`)
  await until(() => isGone(path), { ...deadline, what: 'the end of the environment' })
  await until(async () => (await stepsOf(mark)) === 0, { what: 'the end of the step' })
})
