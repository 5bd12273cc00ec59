/**
 * The processes beside the server are killed: PostgreSQL and the router are restarted automatically, and nothing is
 * lost.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, hostOf, type Place, settle, visit } from './support/slipway/story.ts'
import { until } from './support/until.ts'

let slipway: Slipway
let git: GitServer
let place: Place
let applicationId: string

before(async () => {
  git = await startGitServer()
  slipway = await prepareSlipway({ fake: true })
  await slipway.start()
  await git.createRepository('app')
  await git.commit('app', page('companions'), 'first')
  place = await createPlace(slipway)
  applicationId = (await createApplication(slipway, place, 'web', git.url('app'))).id
  await deploy(slipway, applicationId)
  assert.equal(await settle(slipway, applicationId), 'DEPLOYED')
})

after(async () => {
  await slipway?.remove()
  await git?.close()
})

const pidIn = (...path: string[]): number =>
  Number.parseInt(readFileSync(join(slipway.dataDir, ...path), 'utf8').split('\n')[0]!, 10)

test('when PostgreSQL is killed, requests are answered 503 with Retry-After until it is back, and deployments continue', async () => {
  await deploy(slipway, applicationId)
  process.kill(pidIn('postgres', 'data', 'postmaster.pid'), 'SIGKILL')
  const seen = new Set<number>()
  await until(
    async () => {
      const { status, headers } = await slipway.api('GET', '/organization')
      seen.add(status)
      if (status === 503) assert.ok(Number(headers.get('retry-after')) > 0)
      return status === 200 && seen.has(503)
    },
    { timeoutMs: 20_000, what: 'the database to be back' },
  )
  assert.deepEqual(
    [...seen].filter((status) => status !== 200 && status !== 503),
    [],
  )
  assert.equal(await settle(slipway, applicationId, 60_000), 'DEPLOYED')
})

test('when the router is killed, a new one is up within seconds with the same routes, and accepts new ones', async () => {
  const [web, nobody] = [hostOf(place, 'web'), hostOf(place, 'nobody')]
  const answers = async () => [await visit(slipway, web), await visit(slipway, nobody)]
  const [before, pid] = [await answers(), pidIn('router', 'router.pid')]
  assert.deepEqual(
    before.map(({ status }) => status),
    [200, 404],
  )
  process.kill(pid, 'SIGKILL')
  await until(async () => (await visit(slipway, web).catch(() => null))?.status === 200, {
    timeoutMs: 10_000,
    what: 'the router to serve again',
  })
  assert.notEqual(pidIn('router', 'router.pid'), pid)
  assert.deepEqual(await answers(), before)
  assert.equal((await slipway.api('POST', `/application/${applicationId}/stop`)).status, 202)
  assert.equal(await settle(slipway, applicationId), 'STOPPED')
  await until(async () => (await visit(slipway, web)).status === 503, { what: 'the route of what was stopped' })
  await deploy(slipway, applicationId)
  assert.equal(await settle(slipway, applicationId), 'DEPLOYED')
  await until(async () => (await visit(slipway, web)).status === 200, { what: 'the route of what was deployed' })
})
