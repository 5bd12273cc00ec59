/**
 * The effects of a service's network settings, through the real router on a real engine, while allowed clients keep
 * sending requests: none of their requests fails while the settings change, and no instance restarts.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Agent, request } from 'undici'
import { containersOf, engine } from './support/docker/docker.ts'
import { ensureNodeImage, nodeImage } from './support/docker/node-image.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  deploymentLog,
  hostOf,
  type Place,
  settle,
} from './support/slipway/story.ts'

let slipway: Slipway
let git: GitServer

before(async () => {
  await ensureNodeImage()
  git = await startGitServer()
  slipway = await prepareSlipway({ env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' } })
  await slipway.start()
})

after(async () => {
  await slipway?.remove()
  await git?.close()
  await engine.close()
})

const program = `
import { createServer } from 'node:http'
import { hostname } from 'node:os'
const answer = (port) => (req, res) => {
  if (req.url === '/hang') return
  req.resume().on('end', () => res.setHeader('x-instance', hostname()).end(port + ' ' + req.url))
}
for (const port of [8080, 8081]) createServer(answer(port)).listen(port)
process.on('SIGTERM', () => process.exit(0))
`
const files = {
  Dockerfile: `FROM ${nodeImage}\nCOPY main.mjs /app/main.mjs\nCMD ["/app/main.mjs"]\n`,
  'main.mjs': program,
}

const friend = {
  authorization: `Basic ${Buffer.from('ada:secret').toString('base64')}`,
  'x-forwarded-for': '10.1.1.1',
}
const login = 'ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ='

const ask = async (
  host: string,
  path = '/',
  more: { method?: string; headers?: object; body?: string; dispatcher?: Agent } = {},
) => {
  const { headers, ...options } = more
  const answer = await request(`http://127.0.0.1:${slipway.routerPort}${path}`, {
    ...(options as object),
    headers: { host, ...headers },
  })
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() }
}

/** Eight clients that are allowed to connect. */
const startFriends = (host: string) => {
  const failures: string[] = []
  let isOver = false
  let requests = 0
  const dispatcher = new Agent({ connections: 8 })
  const client = async (): Promise<void> => {
    while (!isOver) {
      const answer = await ask(host, '/', { headers: friend, dispatcher }).catch((error: Error) => ({
        status: 0,
        text: error.message,
      }))
      requests++
      if (answer.status !== 200) failures.push(`${answer.status} ${answer.text}`)
    }
  }
  const clients = Array.from({ length: 8 }, client)
  const end = async (): Promise<void> => {
    isOver = true
    await Promise.all(clients)
    if (!dispatcher.closed) await dispatcher.close()
  }
  return {
    end,
    async stop() {
      await end()
      return { requests, failures }
    },
  }
}

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const ports = (paths: object) => [
  { internal_port: 8080, protocol: 'HTTP', publicly_accessible: true, is_default: true },
  { internal_port: 8081, protocol: 'HTTP', publicly_accessible: true, ...paths },
]

const instancesOf = async (id: string): Promise<string[]> =>
  (await containersOf(id)).map((container) => container.Id).sort()

/** Sets and deploys them: out of date before, up to date afterwards. */
const apply = async (id: string, place: Place, change: () => Promise<unknown>): Promise<string> => {
  await change()
  assert.equal((await send('GET', `/application/${id}/status`)).service_deployment_status, 'OUT_OF_DATE')
  await deploy(slipway, id)
  const state = await settle(slipway, id, 60_000)
  if (state === 'DEPLOYED')
    assert.equal((await send('GET', `/application/${id}/status`)).service_deployment_status, 'UP_TO_DATE')
  return `${state} ${state === 'DEPLOYED' ? '' : await deploymentLog(slipway, place.environmentId)}`.trim()
}

test('each network setting acts at the router, and changes under load without a failed request or a restart', async (t) => {
  await git.createRepository('ingress')
  await git.commit('ingress', files, 'first')
  const place = await createPlace(slipway)
  const { id } = await createApplication(slipway, place, 'web', git.url('ingress'), {
    ports: ports({}),
    min_running_instances: 2,
    max_running_instances: 2,
  })
  await send('POST', `/application/${id}/secret`, { key: 'LOGINS', value: login })
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id, 120_000), 'DEPLOYED', await deploymentLog(slipway, place.environmentId))
  const host = hostOf(place, 'web')
  const containers = await instancesOf(id)
  const friends = startFriends(host)
  t.after(() => friends.end())
  const set = async (settings: Record<string, unknown>): Promise<string> => {
    const ended = await apply(id, place, () => send('PUT', `/application/${id}/advancedSettings`, settings))
    assert.deepEqual(await instancesOf(id), containers, `no instance is replaced for ${Object.keys(settings)}`)
    return ended
  }

  assert.equal(await set({ 'network.ingress.basic_auth_env_var': 'LOGINS' }), 'DEPLOYED')
  assert.equal((await ask(host)).status, 401)
  assert.match((await ask(host, '/', { headers: { accept: 'text/html' } })).text, /^<!doctype html>/)

  const lists = {
    'network.ingress.whitelist_source_range': '10.0.0.0/8',
    'network.ingress.denylist_source_range': '10.9.0.0/16',
  }
  assert.equal(await set(lists), 'DEPLOYED')
  for (const [address, status] of [
    ['10.1.2.3', 200],
    ['10.9.1.1', 403],
    ['192.0.2.1', 403],
    ['10.1.2.3, 192.0.2.1', 403],
  ] as const)
    assert.equal((await ask(host, '/', { headers: { 'x-forwarded-for': address } })).status, status, address)
  assert.equal((await ask(host)).status, 403)

  assert.equal(await set({ 'network.ingress.proxy_body_size_mb': 1 }), 'DEPLOYED')
  assert.equal((await ask(host, '/', { method: 'POST', body: 'x'.repeat(1_048_576) })).status, 200)
  assert.equal((await ask(host, '/', { method: 'POST', body: 'x'.repeat(1_048_577) })).status, 413)

  assert.equal(await set({ 'network.ingress.proxy_read_timeout_seconds': 2 }), 'DEPLOYED')
  assert.equal((await ask(host, '/hang')).status, 504)

  const cors = { 'network.ingress.enable_cors': true, 'network.ingress.cors_allow_origin': 'https://app.example.com' }
  assert.equal(await set({ ...cors, 'network.ingress.extra_headers': '{"X-Frame-Options":"DENY"}' }), 'DEPLOYED')
  const origin = 'https://app.example.com'
  const preflight = await ask(host, '/', {
    method: 'OPTIONS',
    headers: { origin, 'access-control-request-method': 'PUT' },
  })
  assert.deepEqual([preflight.status, preflight.headers['access-control-allow-origin']], [204, origin])
  const read = await ask(host, '/', { headers: { origin } })
  assert.deepEqual([read.headers['access-control-allow-origin'], read.headers['x-frame-options']], [origin, 'DENY'])

  assert.equal(await set({ 'network.ingress.enable_sticky_session': true }), 'DEPLOYED')
  const first = await ask(host)
  const cookie = String(first.headers['set-cookie']).split(';')[0]!
  for (let turn = 0; turn < 10; turn++)
    assert.equal((await ask(host, '/', { headers: { cookie } })).headers['x-instance'], first.headers['x-instance'])

  const edit = (paths: object) =>
    apply(id, place, () =>
      send('PUT', `/application/${id}`, {
        name: 'web',
        git_repository: { url: git.url('ingress'), branch: 'main' },
        min_running_instances: 2,
        max_running_instances: 2,
        cpu: 500,
        memory: 128,
        dockerfile_path: 'Dockerfile',
        ports: ports(paths),
      }),
    )
  assert.equal(await edit({ public_path: '/api', public_path_rewrite: '/' }), 'DEPLOYED')
  assert.equal((await ask(host, '/api/x?y=1')).text, '8081 /x?y=1')
  assert.equal((await ask(host, '/apix')).text, '8080 /apix')
  assert.equal((await ask(host, '/api/..%2f')).status, 400)
  const own = await send('GET', `/application/${id}/link`)
  for (const link of own.results)
    assert.ok([200, 404].includes((await ask(new URL(link.url).hostname)).status), link.url)
  const hosts = own.results.map((link: Json) => [new URL(link.url).hostname, link.is_default])
  assert.deepEqual(hosts, [
    [host, true],
    [`p8080-${host}`, false],
    [`p8081-${host}`, false],
  ])
  assert.equal((await ask(`p8080-${host}`)).text, '8080 /')

  assert.deepEqual(await instancesOf(id), containers, 'no instance is replaced for a path')
  const { requests, failures } = await friends.stop()
  assert.deepEqual(failures, [])
  assert.ok(requests > 500, `${requests} requests`)
})

test('a missing or malformed login fails the deployment, and the running version is unchanged', async () => {
  const place = await createPlace(slipway)
  const { id } = await createApplication(slipway, place, 'closed', git.url('ingress'))
  await send('PUT', `/application/${id}/advancedSettings`, { 'network.ingress.basic_auth_env_var': 'LOGINS' })
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id, 120_000), 'DEPLOYMENT_ERROR')
  assert.match(await deploymentLog(slipway, place.environmentId), /The service has no variable LOGINS/)
  assert.equal((await ask(hostOf(place, 'closed'))).status, 503)
  await send('POST', `/application/${id}/secret`, { key: 'LOGINS', value: 'ada:secret' })
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id, 60_000), 'DEPLOYMENT_ERROR')
  const log = await deploymentLog(slipway, place.environmentId)
  assert.match(log, /The variable LOGINS.* unsupported hash/)
  assert.ok(!log.includes('ada:secret'))
})
