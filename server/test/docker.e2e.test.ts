/**
 * The whole path on a real engine: a process as a user starts it, git over HTTP, Docker, the router.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { broken, deaf, page } from './support/docker/apps.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { containersOf, inspectContainer, networksOf, removeContainer } from './support/docker/docker.ts'
import { ensureNodeImage, nodeImage } from './support/docker/node-image.ts'
import { howMany } from './support/nightly.ts'
import { startGitServer } from './support/peers/git-server.ts'
import { startLoad } from './support/slipway/load.ts'
import type { Json } from './support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  deploymentLog,
  hostOf,
  settle,
  stateOf,
  visit,
} from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway, git } = await withSlipway()

const repository = async (name: string, files: Record<string, string>): Promise<string> => {
  await git.createRepository(name)
  await git.commit(name, files, 'first')
  return git.url(name)
}

test('the polling client of the specification goes from nothing to a running application and back', async () => {
  const url = await repository('story', page('hello story'))
  const organization = (await slipway.api('GET', '/organization')).body
  for (const field of ['id', 'name', 'created_at', 'plan', 'results']) assert.ok(field in organization, field)

  const place = await createPlace(slipway)
  const projects = (await slipway.api('GET', `/organization/${organization.id}/project`)).body.results
  assert.ok(projects.some(({ id }: Json) => id === place.projectId))
  const application = await createApplication(slipway, place, 'web', url)
  const plain = await slipway.api('POST', `/application/${application.id}/environmentVariable`, {
    key: 'PLAIN',
    value: 'a',
  })
  assert.equal(plain.status, 201)
  const secret = await slipway.api('POST', `/application/${application.id}/secret`, {
    key: 'HIDDEN',
    value: 'canary-77',
  })
  assert.equal(secret.status, 201)
  assert.equal(JSON.stringify(secret.body).includes('canary-77'), false)

  const accepted = await deploy(slipway, application.id)
  assert.deepEqual([accepted.status, accepted.application_id, accepted.id], ['QUEUED', application.id, application.id])
  assert.equal(accepted.state, 'DEPLOYMENT_QUEUED')
  assert.ok(accepted.created_at)
  const status = await until(
    async () => {
      const { body } = await slipway.api('GET', `/application/${application.id}/status`)
      assert.ok(!['STOPPED', 'ERROR'].includes(body.state), body.state)
      return body.state === 'RUNNING' ? body : null
    },
    { timeoutMs: 60_000, what: 'RUNNING' },
  )
  assert.equal(status.service_deployment_status, 'UP_TO_DATE')
  assert.equal(status.id, application.id)
  assert.ok(Date.parse(status.last_deployment_date))

  assert.deepEqual(await visit(slipway, hostOf(place, 'web')), { status: 200, text: 'hello story' })
  const [container] = await containersOf(application.id)
  const inspected = await inspectContainer(container!.Id)
  assert.ok(inspected.Config.Env.includes('HIDDEN=canary-77'))
  assert.ok(inspected.Config.Env.includes('PLAIN=a'))

  const variables = (await slipway.api('GET', `/application/${application.id}/environmentVariable`)).body.results
  const own = variables.find((each: Json) => each.key === 'PLAIN')
  assert.deepEqual([own.value, own.scope, own.variable_type], ['a', 'APPLICATION', 'VALUE'])
  const log = (await slipway.api('GET', `/application/${application.id}/log?tail=5`)).body
  assert.deepEqual(log.results, [], 'the web server of this page says nothing')

  await slipway.api('POST', `/application/${application.id}/environmentVariable`, { key: 'PLAIN', value: 'b' })
  const outdated = (await slipway.api('GET', `/application/${application.id}/status`)).body
  assert.equal(outdated.service_deployment_status, 'OUT_OF_DATE')

  assert.equal((await slipway.api('POST', `/application/${application.id}/stop`)).status, 202)
  assert.equal(await settle(slipway, application.id), 'STOPPED')
  assert.equal((await visit(slipway, hostOf(place, 'web'))).status, 503)
  assert.deepEqual(await containersOf(application.id), [])

  assert.equal((await slipway.api('DELETE', `/environment/${place.environmentId}`)).status, 204)
  await until(async () => (await slipway.api('GET', `/application/${application.id}`)).status === 404, {
    timeoutMs: 30_000,
    what: 'the application to be gone',
  })
  await until(async () => (await slipway.api('GET', `/environment/${place.environmentId}`)).status === 404, {
    timeoutMs: 30_000,
    what: 'the environment to be gone',
  })
  assert.deepEqual(await networksOf(place.environmentId), [])
  assert.equal((await visit(slipway, hostOf(place, 'web'))).status, 404)
})

test('a broken Dockerfile ends in ERROR with the last lines of the build in the deployment log', async () => {
  const url = await repository('broken', broken('reason-of-the-failure'))
  const place = await createPlace(slipway)
  const application = await createApplication(slipway, place, 'web', url)
  await deploy(slipway, application.id)
  const status = await until(
    async () => {
      const { body } = await slipway.api('GET', `/application/${application.id}/status`)
      return body.state === 'ERROR' ? body : null
    },
    { timeoutMs: 60_000, what: 'ERROR' },
  )
  assert.equal(status.deployment_state, 'BUILD_ERROR')
  assert.match(await deploymentLog(slipway, place.environmentId), /reason-of-the-failure/)
})

test('a private repository is deployed with its git token, which is stored nowhere afterwards', async () => {
  const password = 'canary-git-4711'
  const own = await startGitServer({ auth: { username: 'x-access-token', password } })
  try {
    await own.createRepository('private')
    await own.commit('private', page('private page'), 'first')
    const place = await createPlace(slipway)
    const token = await slipway.api('POST', `/organization/${place.organizationId}/gitToken`, {
      name: 'mine',
      type: 'GITHUB',
      token: password,
      git_api_url: 'https://api.github.example',
    })
    assert.equal(token.status, 201, JSON.stringify(token.body))
    const application = await createApplication(slipway, place, 'web', own.url('private'), {
      git_repository: { url: own.url('private'), branch: 'main', git_token_id: token.body.id },
    })
    await deploy(slipway, application.id)
    assert.equal(await settle(slipway, application.id), 'DEPLOYED')
    assert.equal((await visit(slipway, hostOf(place, 'web'))).text, 'private page')
    assert.equal((await deploymentLog(slipway, place.environmentId)).includes(password), false)
    assert.equal(slipway.output().includes(password), false)
    await slipway.api('DELETE', `/environment/${place.environmentId}`)
  } finally {
    await own.close()
  }
})

const loadApp = (version: string): Record<string, string> => ({
  Dockerfile: [`FROM ${nodeImage}`, 'COPY . /app', 'CMD ["/app/main.mjs"]', ''].join('\n'),
  'main.mjs': readFileSync(new URL('./support/slipway/load-app.mjs', import.meta.url), 'utf8'),
  'version.mjs': `export const version = '${version}'\n`,
  ...websocketPackage(),
})

/** The files of the package `ws`, which is plain JavaScript without dependencies. */
const websocketPackage = (): Record<string, string> => {
  const folder = new URL('../../node_modules/ws/', import.meta.url)
  const names = ['package.json', 'wrapper.mjs', 'index.js']
  const library = ['buffer-util', 'constants', 'event-target', 'extension', 'limiter', 'permessage-deflate', 'receiver']
  library.push('sender', 'stream', 'subprotocol', 'validation', 'websocket', 'websocket-server')
  const files = [...names, ...library.map((name) => `lib/${name}.js`)]
  return Object.fromEntries(
    files.map((name) => [`node_modules/ws/${name}`, readFileSync(new URL(name, folder), 'utf8')]),
  )
}

const redeploys = howMany(6, 20)

test(`${redeploys} redeploys of a changed application under load of 16 clients lose no request`, async (t) => {
  await ensureNodeImage()
  const url = await repository('load', loadApp('v0'))
  const place = await createPlace(slipway)
  const application = await createApplication(slipway, place, 'load', url, { cpu: 2000, memory: 256 })
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id, 120_000), 'DEPLOYED')
  const redeploy = async (round: number): Promise<void> => {
    await git.commit('load', { 'version.mjs': `export const version = 'v${round}'\n` }, `v${round}`)
    await deploy(slipway, application.id)
    assert.equal(await settle(slipway, application.id, 120_000), 'DEPLOYED')
  }
  const load = startLoad(slipway.routerPort, hostOf(place, 'load'), { websocket: false, t })
  for (let round = 1; round <= redeploys - 2; round += 1) await redeploy(round)
  // An open websocket keeps the version that it is of for the drain time.
  const withSocket = startLoad(slipway.routerPort, hostOf(place, 'load'), { clients: 1, t })
  for (let round = redeploys - 1; round <= redeploys; round += 1) await redeploy(round)
  assert.deepEqual((await withSocket.stop()).failures, [])
  const report = await load.stop()
  assert.deepEqual(report.failures, [])
  assert.equal(report.versions.length, redeploys + 1, report.versions.join())
  assert.ok(report.requests > 100 * redeploys, `only ${report.requests} requests`)
  assert.equal((await containersOf(application.id)).length, 1)
  await slipway.api('DELETE', `/environment/${place.environmentId}`)
})

test('a new version that never gets ready fails at its deadline while the old one serves every request', async (t) => {
  const url = await repository('deaf', page('old version'))
  const place = await createPlace(slipway)
  const probe = { initial_delay_seconds: 0, period_seconds: 1, timeout_seconds: 1, failure_threshold: 3 }
  const application = await createApplication(slipway, place, 'web', url, {
    healthchecks: { readiness_probe: { type: { http: { path: '/', port: 8080 } }, ...probe } },
  })
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYED')
  const load = startLoad(slipway.routerPort, hostOf(place, 'web'), { clients: 1, websocket: false, t })
  await git.commit('deaf', deaf('i-never-listen'), 'deaf')
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYMENT_ERROR')
  const report = await load.stop()
  assert.deepEqual(report.failures, [])
  assert.deepEqual(report.versions, ['old version'])
  const log = await deploymentLog(slipway, place.environmentId)
  assert.match(log, /i-never-listen/)
  assert.match(log, /ready/i)
  assert.equal((await containersOf(application.id)).length, 1)
  await slipway.api('DELETE', `/environment/${place.environmentId}`)
})

test('a cancel ends in CANCELED within 15 s and leaves nothing of the new version', async () => {
  const url = await repository('cancel', deaf('waiting'))
  const place = await createPlace(slipway)
  const application = await createApplication(slipway, place, 'web', url)
  await deploy(slipway, application.id)
  await until(async () => (await containersOf(application.id)).length > 0, { timeoutMs: 30_000, what: 'a container' })
  const beganMs = performance.now()
  const canceled = await slipway.api('POST', `/environment/${place.environmentId}/cancelDeployment`, {})
  assert.equal(canceled.status, 202)
  assert.equal(await settle(slipway, application.id, 15_000), 'CANCELED')
  const tookMs = performance.now() - beganMs
  assert.ok(tookMs <= 15_000, `${tookMs} ms`)
  assert.deepEqual(await containersOf(application.id), [])
})

test('a container reaches neither the control plane, its database and keys, nor the engine', async () => {
  const probe = [
    `FROM ${busyboxImage}`,
    'CMD ["sh", "-c", "',
    'ls /var/run/docker.sock /run/docker.sock 2>&1;',
    // Its own server shows that it would reach what there is.
    'echo OK > /tmp/healthz; httpd -p 8081 -h /tmp;',
    `for t in $(ip route | awk '/default/ {print $3}'):$API_PORT 127.0.0.1:$API_PORT 127.0.0.1:8081; do`,
    'timeout 2 wget -q -O /dev/null http://$t/healthz && echo REACHED-$t; done;',
    'echo PROBED; exec httpd -f -p 8080"]',
  ]
  const url = await repository('isolation', { Dockerfile: `${probe[0]}\n${probe.slice(1).join(' ')}\n` })
  const place = await createPlace(slipway)
  const application = await createApplication(slipway, place, 'web', url)
  const port = new URL(slipway.url).port
  await slipway.api('POST', `/application/${application.id}/environmentVariable`, { key: 'API_PORT', value: port })
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYED')
  const lines = await until(
    async () => {
      const { body } = await slipway.api('GET', `/application/${application.id}/log?tail=100`)
      const texts: string[] = body.results.map((line: Json) => line.message)
      return texts.some((text) => text.includes('PROBED')) ? texts : null
    },
    { timeoutMs: 30_000, what: 'the probe to end' },
  )
  assert.deepEqual(
    lines.filter((line) => line.includes('REACHED')),
    ['REACHED-127.0.0.1:8081'],
  )
  assert.equal(lines.filter((line) => /docker.sock: No such file/.test(line)).length, 2, lines.join('\n'))
  const [container] = await containersOf(application.id)
  const { HostConfig } = await inspectContainer(container!.Id)
  assert.deepEqual(
    [HostConfig.Privileged, HostConfig.Binds ?? [], HostConfig.NetworkMode === 'host'],
    [false, [], false],
  )
  await slipway.api('DELETE', `/environment/${place.environmentId}`)
})

test('requests are served while the control plane is down, and it takes over running services', async (t) => {
  const url = await repository('away', page('always there'))
  const place = await createPlace(slipway)
  const application = await createApplication(slipway, place, 'web', url)
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYED')
  const [before] = await containersOf(application.id)
  const load = startLoad(slipway.routerPort, hostOf(place, 'web'), { clients: 2, websocket: false, t })
  await slipway.kill('SIGTERM')
  await slipway.start()
  const report = await load.stop()
  assert.deepEqual(report.failures, [])
  assert.equal(await stateOf(slipway, application.id), 'DEPLOYED')
  const [afterwards] = await containersOf(application.id)
  assert.equal(afterwards!.Id, before!.Id)

  await removeContainer(before!.Id)
  await until(async () => (await visit(slipway, hostOf(place, 'web'))).status === 200, {
    timeoutMs: 10_000,
    what: 'a removed container to be replaced',
  })
  await slipway.api('DELETE', `/environment/${place.environmentId}`)
})
