/**
 * Two control planes on one PostgreSQL, one of which was killed: the other ends its build, and both routers keep
 * running.
 */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { onlyAtNight } from './support/nightly.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { type Planes, startPlanes } from './support/planes.ts'
import type { Slipway } from './support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  deploymentLog,
  hostOf,
  type Place,
  settle,
  visit,
} from './support/slipway/story.ts'
import { startVisits } from './support/slipway/visits.ts'
import { until } from './support/until.ts'

let both: Planes
let git: GitServer

/** Its build takes this long after its first output. */
const slowPage = (text: string, seconds: number) => ({
  ...page(text),
  Dockerfile: page(text).Dockerfile!.replace('COPY', `RUN echo ${text} builds && sleep ${seconds}\nCOPY`),
})

const routerPid = async ({ dataDir }: Slipway): Promise<string> =>
  (await readFile(join(dataDir, 'router/router.pid'), 'utf8')).trim()

describe('one of two control planes is down', () => {
  before(async () => {
    await ensureBusybox()
    git = await startGitServer()
    both = await startPlanes()
  })

  after(async () => {
    await both?.remove()
    await git?.close()
    await engine.close()
  })

  const deployFirst = async (name: string): Promise<{ place: Place; id: string }> => {
    const [first] = both.planes
    await git.createRepository(name)
    await git.commit(name, page('v1'), 'v1')
    const place = await createPlace(first)
    const { id } = await createApplication(first, place, name, git.url(name))
    await deploy(first, id)
    assert.equal(await settle(first, id), 'DEPLOYED')
    return { place, id }
  }

  test('the router of a killed server follows the other’s deployments without a failed request, and later its own again', async (t) => {
    const { place, id } = await deployFirst('web')
    const [dead, other] = both.planes
    const host = hostOf(place, 'web')
    const router = await routerPid(dead)
    await dead.kill('SIGKILL')
    const stop = startVisits([dead], host, t)
    for (const version of ['v2', 'v3']) {
      await git.commit('web', page(version), version)
      await deploy(other, id)
      assert.equal(await settle(other, id), 'DEPLOYED')
      await until(async () => (await visit(dead, host)).text === version, { timeoutMs: 5000, what: version })
    }
    const { failures, versions } = await stop()
    assert.deepEqual([failures, versions], [[], ['v1', 'v2', 'v3']])
    assert.equal(await routerPid(dead), router)
    // When it is back, it sets its own routes, and after a graceful stop its router follows again.
    await dead.start()
    await git.commit('web', page('v4'), 'v4')
    await deploy(dead, id)
    assert.equal(await settle(dead, id), 'DEPLOYED')
    for (const plane of both.planes) assert.equal((await visit(plane, host)).text, 'v4')
    await dead.kill('SIGTERM')
    await git.commit('web', page('v5'), 'v5')
    await deploy(other, id)
    assert.equal(await settle(other, id), 'DEPLOYED')
    await until(async () => (await visit(dead, host)).text === 'v5', { timeoutMs: 5000, what: 'v5' })
    await dead.start()
  })

  test('a build whose server is killed is taken over by the other, which fetches the commit again', {
    skip: onlyAtNight,
  }, async () => {
    const { place, id } = await deployFirst('slow')
    await git.commit('slow', slowPage('v2', 6), 'v2')
    const [first, second] = both.planes
    await deploy(first, id)
    await until(async () => (await deploymentLog(first, place.environmentId)).includes('v2 builds'), {
      timeoutMs: 30_000,
      what: 'the build to begin',
    })
    const [builder] = await both.workers()
    const other = builder === first ? second : first
    await builder!.kill('SIGKILL')
    const beganMs = performance.now()
    assert.equal(await settle(other, id), 'DEPLOYED', await deploymentLog(other, place.environmentId))
    const tookMs = performance.now() - beganMs
    assert.ok(tookMs < 45_000, `${tookMs} ms`)
    for (const plane of both.planes) assert.equal((await visit(plane, hostOf(place, 'slow'))).text, 'v2')
    await builder!.start()
  })
})
