/**
 * F29: floods that one organization, or a stranger without a token, sends at the default limits, seen by another one.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { hashSync } from 'bcryptjs'
import { page } from '../support/docker/apps.ts'
import { busyboxImage } from '../support/docker/busybox-image.ts'
import { createAuthority } from '../support/peers/certificates.ts'
import type { Json, Slipway } from '../support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, isSettled, type Place, settle } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'
import { percentile, residentMb, timed, whole } from './figures.ts'
import { type Scene, withScene } from './scene.ts'

interface Request {
  url: string
  method?: string
  headers?: Record<string, string>
  /** Path of a file. */
  body?: string
}

interface Attack {
  name: string
  /** What one of its answers says: that it met what it is meant for. */
  meets: RegExp
  connections: number
  requests: Request[]
  /** Done before the quiet measurement. */
  prepare?(): Promise<unknown>
  /** Done after it; returns how to end it. */
  begin?(): Promise<() => Promise<unknown>>
}

/** The loads are other machines' in real life: here they yield to the server. */
const start = (script: string, args: readonly string[]): ChildProcess => {
  const path = new URL(script, import.meta.url).pathname
  return spawn('nice', ['-n', '15', process.execPath, path, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
}

const firstLine = async (child: ChildProcess): Promise<string> => String(await once(child.stdout!, 'data')).trim()

const end = async (child: ChildProcess): Promise<string> => {
  let said = ''
  child.stdout!.on('data', (chunk) => {
    said += chunk
  })
  const closed = once(child, 'close')
  child.kill('SIGTERM')
  await closed
  return said
}

const newToken = async ({ send }: Scene, organizationId: string, name: string): Promise<string> =>
  (await send('POST', `/organization/${organizationId}/apiToken`, { name, scopes: ['Admin'] })).token

/** Of cost 10: a tenth of a second for each password that is tried. */
const login = `user:${hashSync('right', 10)}`

/** A service with a login, at so many hosts. */
const guarded = async (scene: Scene, place: Place, name: string, hosts: readonly string[]): Promise<Json> => {
  const { slipway, send } = scene
  const application = await createApplication(slipway, place, name, await scene.repository(name, page(name)))
  await send('POST', `/application/${application.id}/secret`, { key: 'LOGINS', value: login })
  await send('PUT', `/application/${application.id}/advancedSettings`, {
    'network.ingress.basic_auth_env_var': 'LOGINS',
  })
  for (const domain of hosts)
    await send('POST', `/application/${application.id}/customDomain`, { domain, generate_certificate: false })
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYED')
  return application
}

/** An organization that only uses its own services, with enough tokens never to be limited. */
interface Neighbour {
  organizationId: string
  applicationId: string
  tokens: readonly string[]
}

interface Figures {
  listMs: number
  healthMs: number
  mostMb: number
  state: string
}

const windowMs = 10_000

/** Sends requests as the other organization during its deployment, for ten seconds or until that has ended. */
const look = async ({ url, pid }: Slipway, neighbour: Neighbour): Promise<Figures> => {
  const { organizationId, applicationId, tokens } = neighbour
  let turn = 0
  const ask = (path: string, init: RequestInit = {}): Promise<Json> => {
    const authorization = `Token ${tokens[turn++ % tokens.length]}`
    return fetch(url + path, { ...init, headers: { authorization, 'x-state-vocabulary': 'deployment' } }).then(
      async (answer) => {
        assert.ok(answer.status < 300, `${path}: ${answer.status} ${await answer.clone().text()}`)
        return answer.json()
      },
    )
  }
  const [lists, healths]: number[][] = [[], []]
  let [mostMb, state] = [0, '']
  await ask(`/application/${applicationId}/deploy`, { method: 'POST' })
  const from = performance.now()
  await until(
    async () => {
      healths!.push(await timed(async () => assert.equal((await fetch(`${url}/healthz`)).status, 200)))
      lists!.push(await timed(() => ask(`/organization/${organizationId}/project`)))
      mostMb = Math.max(mostMb, residentMb(pid()))
      if (healths!.length % 10 === 0) state = (await ask(`/application/${applicationId}/status`)).state
      return performance.now() - from > windowMs && isSettled(state)
    },
    { timeoutMs: 90_000, what: 'the deployment of the neighbour to end' },
  )
  const p99 = (values: number[] | undefined): number => percentile(values!, 0.99)
  return { listMs: p99(lists), healthMs: p99(healths), mostMb, state }
}

const json = 'application/json'

/** Prints as fast as its fifth of a processor allows. */
const chatty = (): Record<string, string> => ({
  Dockerfile: [`FROM ${busyboxImage}`, `CMD ["yes", "${'a line of a log '.repeat(6)}"]`, ''].join('\n'),
})

/** Forty clients that follow the log of a service which prints without end. */
const liveLogs = async (scene: Scene, place: Place, headers: Record<string, string>): Promise<Attack> => {
  const { slipway, send } = scene
  const { id } = await send('POST', `/environment/${place.environmentId}/application`, {
    ...{ name: 'chatty', build_mode: 'DOCKER', dockerfile_path: 'Dockerfile', cpu: 200, memory: 16, healthchecks: {} },
    git_repository: { url: await scene.repository('chatty', chatty()), branch: 'main' },
  })
  return {
    name: 'live logs, forty at once',
    meets: /a line of a log/,
    connections: 40,
    requests: [{ url: `${slipway.url}/application/${id}/log/stream`, headers }],
    async prepare() {
      await deploy(slipway, id)
      assert.equal(await settle(slipway, id), 'DEPLOYED')
    },
  }
}

/** A cluster whose engine floods the server by itself, once it is connected. */
const clusterOf = (
  { slipway, send }: Scene,
  organizationId: string,
  engine: Json,
  headers: Record<string, string>,
): Attack => {
  const path = `/organization/${organizationId}`
  const begin = async () => {
    const { id, name } = await send('POST', `${path}/onPremise/credentials`, engine)
    const cluster = await send('POST', `${path}/cluster`, {
      ...{ name: 'flooding', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' },
      cloud_provider_credentials: { cloud_provider: 'ON_PREMISE', credentials: { id, name }, region: 'unknown' },
    })
    return async () => {
      await send('DELETE', `${path}/cluster/${cluster.id}`)
      await send('DELETE', `${path}/onPremise/credentials/${id}`)
    }
  }
  return {
    ...{ name: 'events and 19,000 containers of an engine', meets: /"200"/, connections: 1, begin },
    requests: [{ url: `${slipway.url}${path}/cluster`, headers }],
  }
}

/** What B and strangers send; `folder` keeps the bodies. */
const attacks = async (
  scene: Scene,
  folder: string,
  { peer, engine, floodingEngine }: { peer: string; engine: Json; floodingEngine: Json },
): Promise<Attack[]> => {
  const { slipway, send } = scene
  const { url, routerPort } = slipway
  const organization = await send('POST', '/organization', { name: 'hostile', plan: 'FREE' })
  const path = `/organization/${organization.id}`
  const authorization = `Token ${await newToken(scene, organization.id, 'hostile')}`
  const project = await send('POST', `${path}/project`, { name: 'hostile' })
  const environment = await send('POST', `/project/${project.id}/environment`, { name: 'x', mode: 'DEVELOPMENT' })
  const place: Place = {
    organizationId: organization.id,
    projectId: project.id,
    environmentId: environment.id,
    environmentName: 'x',
  }
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text)
    return join(folder, name)
  }
  const headers = { authorization, 'content-type': json }

  const storage = file('storage.json', `{"name":"x","storage":[${'{},'.repeat(330_000)}{}]}`)
  const bodies: Attack = {
    name: 'F1 bodies of 1 MB',
    meets: /at most 10000 values/,
    connections: 4,
    requests: [{ url: `${url}/environment/${environment.id}/application`, method: 'POST', headers, body: storage }],
  }

  const repositories = ['lines', 'lists', 'items', 'objects'].map((name) =>
    send('POST', `${path}/helmRepository`, { name, kind: 'HTTPS', url: `${peer}/${name}`, config: {} }),
  )
  const indexes: Attack = {
    name: 'F2 chart indexes of 31 MB',
    meets: /index of (this|the) repository|index of charts/,
    connections: 6,
    requests: (await Promise.all(repositories)).map(({ id }) => ({
      url: `${url}${path}/helmRepository/${id}/charts`,
      headers: { authorization },
    })),
  }

  const hook = await send('POST', `${path}/gitWebhook`, {})
  const delivery = file('delivery.json', `{"repository":{"full_name":"a/b"},"x":[${'{},'.repeat(1_600_000)}{}]}`)
  const signature = createHmac('sha256', hook.signing_secret).update(readFileSync(delivery)).digest('hex')
  const deliveries: Attack = {
    name: 'F3 deliveries of 5 MB',
    meets: /not that of a push event/,
    connections: 4,
    requests: [
      {
        ...{ url: `${url}/git-webhooks/${hook.id}`, method: 'POST', body: delivery },
        headers: {
          ...{ 'content-type': json, 'x-github-event': 'push', 'x-github-delivery': 'one' },
          'x-hub-signature-256': `sha256=${signature}`,
        },
      },
    ],
  }

  const token = await send('POST', `${path}/gitToken`, {
    ...{ name: 'host', type: 'GITLAB', token: 'any', git_api_url: `${peer}/api/v4` },
  })
  const answers: Attack = {
    name: 'F3 answers of 4 MB of a git host',
    meets: /not that of a git host/,
    connections: 6,
    requests: [{ url: `${url}${path}/account/gitlab/repository?gitTokenId=${token.id}`, headers: { authorization } }],
  }

  const engines: Attack = {
    name: 'F3 answers of 60 MB of an engine',
    meets: /not from a Docker engine, or too large/,
    connections: 2,
    requests: [
      {
        ...{ url: `${url}${path}/onPremise/credentials`, method: 'POST', headers },
        body: file('engine.json', JSON.stringify(engine)),
      },
    ],
  }

  const pages: Attack = {
    name: 'F4 pages, by strangers',
    meets: /"200"/,
    connections: 16,
    requests: ['/docs/js/scalar.js', '/metrics', '/openapi.json', '/docs', '/nothing-here'].map((page) => ({
      url: url + page,
    })),
  }
  const strangers: Attack = {
    name: 'F4 wrong tokens, by strangers',
    meets: /A valid token is required/,
    connections: 16,
    requests: [{ url: `${url}/organization`, headers: { authorization: 'Token slipway_wrong' } }],
  }

  const hosts = Array.from({ length: 30 }, (_, n) => `h${n}.hostile.example`)
  await guarded(scene, place, 'locked', hosts)
  const passwords: Attack = {
    name: 'F5 wrong passwords',
    meets: /requires a user name and a password/,
    connections: 240,
    requests: Array.from({ length: 240 }, (_, n) => ({
      url: `http://127.0.0.1:${routerPort}/`,
      headers: { host: hosts[n % hosts.length]!, authorization: `Basic ${btoa(`user:wrong${n}`)}` },
    })),
  }
  return [bodies, indexes, deliveries, answers, engines, pages, strangers, passwords].concat([
    await liveLogs(scene, place, headers),
    clusterOf(scene, organization.id, floodingEngine, headers),
  ])
}

const most = { slowerMs: 50, grownMb: 150 }

/** One measurement during an attack, beside a quiet one just before it. */
const measure = async (slipway: Slipway, neighbour: Neighbour, attack: Attack, folder: string) => {
  const config = join(folder, 'attack.json')
  writeFileSync(config, JSON.stringify(attack))
  await attack.prepare?.()
  const quiet = await look(slipway, neighbour)
  const quietMb = residentMb(slipway.pid())
  const stop = await attack.begin?.()
  const client = start('./flood-client.ts', [config])
  const busy = await look(slipway, neighbour)
  const { counts, firsts } = JSON.parse(await end(client)) as { counts: object; firsts: object }
  await stop?.()
  assert.match(JSON.stringify(firsts), attack.meets, attack.name)
  assert.equal(busy.state, 'DEPLOYED', `${attack.name}: the deployment of the neighbour`)
  const [listMs, healthMs] = [whole(busy.listMs - quiet.listMs), whole(busy.healthMs - quiet.healthMs)]
  const grownMb = whole(busy.mostMb - quietMb)
  return {
    isHeld: listMs <= most.slowerMs && healthMs <= most.slowerMs && grownMb <= most.grownMb,
    figures: `list +${listMs} ms, healthz +${healthMs} ms, memory +${grownMb} MB; answers ${JSON.stringify(counts)}`,
  }
}

/** Measured again where something else on the machine may be to blame. */
const hold = async (slipway: Slipway, neighbour: Neighbour, attack: Attack, folder: string): Promise<string> => {
  const seen: string[] = []
  for (let n = 0; n < 3; n += 1) {
    const { isHeld, figures } = await measure(slipway, neighbour, attack, folder)
    seen.push(figures)
    if (isHeld) return `${attack.name}: ${figures}`
  }
  return `${attack.name}: NOT HELD: ${seen.join(' / ')}`
}

const neighbourOf = async (scene: Scene): Promise<Neighbour> => {
  const place = await createPlace(scene.slipway)
  const application = await guarded(scene, place, 'neighbour', [])
  const tokens = await Promise.all(
    Array.from({ length: 12 }, (_, n) => newToken(scene, place.organizationId, `neighbour ${n}`)),
  )
  return { organizationId: place.organizationId, applicationId: application.id, tokens }
}

const attackAll = async (scene: Scene, folder: string): Promise<string> => {
  const authority = await createAuthority()
  const [server, client] = [await authority.sign('IP:127.0.0.1'), await authority.sign()]
  for (const [name, text] of Object.entries(server)) writeFileSync(join(folder, name), text)
  const [peer, flooding] = ['./hostile-peer.ts', './flooding-engine.ts'].map((script) =>
    start(script, [join(folder, 'cert'), join(folder, 'key')]),
  )
  try {
    const [plain, tls] = (await firstLine(peer!)).split(' ')
    const engine = (name: string, port: string | undefined) => ({
      ...{ name, engine_url: `tcp://127.0.0.1:${port}`, engine_ca_certificate: authority.ca },
      ...{ engine_client_certificate: client.cert, engine_client_key: client.key },
    })
    const peers = {
      peer: `http://127.0.0.1:${plain}`,
      engine: engine('large', tls),
      floodingEngine: engine('flooding', await firstLine(flooding!)),
    }
    const neighbour = await neighbourOf(scene)
    const told: string[] = []
    for (const attack of await attacks(scene, folder, peers))
      told.push(await hold(scene.slipway, neighbour, attack, folder))
    if (told.some((line) => line.includes('NOT HELD'))) throw new Error(told.join('\n'))
    return told.join('\n')
  } finally {
    await Promise.all([peer, flooding].map((child) => end(child!)))
    authority.close()
  }
}

const floods: Fault = {
  id: 'F29',
  title: 'what one organization or a stranger floods, another organization does not feel',
  deadlineMs: 1_200_000,
  run: () =>
    withScene({ env: { SLIPWAY_RATE_LIMIT: '600' } }, async (scene) => {
      const folder = mkdtempSync(join(tmpdir(), 'slipway-floods-'))
      try {
        return await attackAll(scene, folder)
      } finally {
        rmSync(folder, { recursive: true, force: true })
      }
    }),
}

export const floodFaults: readonly Fault[] = [floods]
