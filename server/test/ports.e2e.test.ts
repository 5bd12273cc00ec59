/** Ports of every protocol on a real engine: HTTP, GRPC, TCP and UDP side by side, and a public database. */
import assert from 'node:assert/strict'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { type ClientHttp2Stream, connect as connectHttp2 } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { after, before, type TestContext, test } from 'node:test'
import pg from 'pg'
import { pack } from 'tar-stream'
import { ensureDatabaseImage } from './support/docker/database-image.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import { ensureNodeImage, nodeImage } from './support/docker/node-image.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { freePort, type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  deploymentLog,
  hostOf,
  isSettled,
  settle,
  visit,
} from './support/slipway/story.ts'
import { until } from './support/until.ts'

let slipway: Slipway
let git: GitServer

const minorVersions = ['16.3', '16.4']

/** A separate image for a minor version, recognized by its label; the server inside is that of `postgres:16`. */
const makeMinor = async (version: string): Promise<void> => {
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, `FROM postgres:16\nLABEL slipway.test.minor=${version}\n`)
  archive.finalize()
  const output = await engine.stream('POST', '/build', {
    query: { t: `postgres:${version}`, version: 1 },
    body: archive,
  })
  let text = ''
  for await (const chunk of output.setEncoding('utf8')) text += chunk
  assert.doesNotMatch(text, /errorDetail/)
}

before(async () => {
  await ensureNodeImage()
  await ensureDatabaseImage('postgres:16')
  for (const version of minorVersions) await makeMinor(version)
  git = await startGitServer()
  slipway = await prepareSlipway({ env: { SLIPWAY_EXTRA_PORTS: '1024-65535' } })
  await slipway.start()
})

after(async () => {
  await slipway?.remove()
  await git?.close()
  for (const version of minorVersions) await engine.call('DELETE', `/images/postgres:${version}`)
  await engine.close()
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const program = (version: string): string => `
import { createServer as serveTcp } from 'node:net'
import { createServer as serveHttp } from 'node:http'
import { createServer as serveHttp2 } from 'node:http2'
import { createSocket } from 'node:dgram'
const version = '${version}'
const echo = (socket) => { socket.on('error', () => {}); socket.write(version + '\\n'); socket.pipe(socket) }
serveTcp(echo).listen(7000)
serveTcp(echo).listen(7001)
const udp = createSocket('udp4').on('message', (bytes, from) => udp.send(version + ' ' + bytes, from.port, from.address))
udp.bind(7000)
serveHttp2().on('stream', (stream) => {
  stream.on('error', () => {})
  stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'x-version': version }, { waitForTrailers: true })
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', 'x-served-by': version }))
  stream.pipe(stream)
}).listen(9090)
serveHttp((_, answer) => answer.end(version)).listen(8080)
process.on('SIGTERM', () => process.exit(0))
`

const files = (version: string): Record<string, string> => ({
  Dockerfile: [`FROM ${nodeImage}`, 'COPY main.mjs /app/main.mjs', 'CMD ["/app/main.mjs"]', ''].join('\n'),
  'main.mjs': program(version),
})

const repository = async (name: string): Promise<string> => {
  await git.createRepository(name)
  await git.commit(name, files('v1'), 'first')
  return git.url(name)
}

const deployed = async (id: string, environmentId: string, body?: unknown): Promise<void> => {
  await deploy(slipway, id, body)
  assert.equal(await settle(slipway, id, 120_000), 'DEPLOYED', await deploymentLog(slipway, environmentId))
}

const open = (t: TestContext, port: number): Socket => {
  const socket = connect(port, '127.0.0.1')
  t.after(() => socket.destroy())
  return socket.on('error', () => {})
}

const read = async (socket: Socket): Promise<string> => String((await once(socket, 'data'))[0]).trim()

const say = async (socket: Socket, word: string): Promise<string> => {
  socket.write(word)
  return read(socket)
}

/** The first word of a new connection, or the error code. */
const greeting = (port: number): Promise<string> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('data', (bytes) => {
      resolve(String(bytes).trim())
      socket.destroy()
    })
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
    socket.once('close', () => resolve('closed'))
  })

/** One client address that repeats its request until it gets an answer: a datagram may be lost. */
const openUdp = (t: TestContext, port: number) => {
  const socket = createSocket('udp4')
  let last = ''
  socket.on('message', (bytes) => {
    last = String(bytes)
  })
  t.after(() => socket.close())
  return (word: string): Promise<string> =>
    until(
      () => {
        socket.send(word, port, '127.0.0.1')
        return last.endsWith(` ${word}`) ? last : null
      },
      { timeoutMs: 10_000, what: `an answer to ${word}` },
    )
}

const outside = (service: Json, inside: number, protocol: string): number =>
  service.ports.find((port: Json) => port.internal_port === inside && port.protocol === protocol).external_port

test('HTTP, TCP and UDP ports of one application: old connections drain while new ones and flows go to the new version', async (t) => {
  const place = await createPlace(slipway)
  const url = await repository('ports')
  const named = await freePort()
  const open_ = { publicly_accessible: true }
  const application = await createApplication(slipway, place, 'ports', url, {
    ports: [
      { internal_port: 8080, protocol: 'HTTP', ...open_ },
      { internal_port: 7000, protocol: 'TCP', ...open_ },
      { internal_port: 7000, protocol: 'UDP', ...open_ },
      { internal_port: 7001, protocol: 'TCP', external_port: named, ...open_ },
    ],
  })
  const path = `/application/${application.id}`
  const [tcp, udp] = [outside(application, 7000, 'TCP'), outside(application, 7000, 'UDP')]
  assert.equal(outside(application, 7001, 'TCP'), named)
  assert.equal(await greeting(tcp), 'ECONNREFUSED')
  await deployed(application.id, place.environmentId)
  assert.equal((await visit(slipway, hostOf(place, 'ports'))).text, 'v1')
  assert.deepEqual([await greeting(tcp), await greeting(named)], ['v1', 'v1'])
  const ask = openUdp(t, udp)
  assert.equal(await ask('one'), 'v1 one')
  const links = (await send('GET', `${path}/link`)).results.map((link: Json) => link.url)
  for (const link of [`tcp://127.0.0.1:${tcp}`, `udp://127.0.0.1:${udp}`, `tcp://127.0.0.1:${named}`])
    assert.ok(links.includes(link), `${link} of ${links}`)

  const stays = open(t, tcp)
  assert.equal(await read(stays), 'v1')
  await git.commit('ports', files('v2'), 'second')
  await deploy(slipway, application.id)
  await until(async () => (await greeting(tcp)) === 'v2', { timeoutMs: 60_000, what: 'the switch' })
  assert.equal(await say(stays, 'still here'), 'still here')
  assert.deepEqual([await ask('two'), await greeting(named)], ['v2 two', 'v2'])
  stays.end()
  assert.equal(await settle(slipway, application.id, 60_000), 'DEPLOYED')
  assert.equal((await containersOf(application.id)).length, 1)

  await send('POST', `${path}/stop`)
  assert.equal(await settle(slipway, application.id), 'STOPPED')
  assert.deepEqual([await greeting(tcp), await greeting(named)], ['ECONNREFUSED', 'ECONNREFUSED'])
  assert.match((await visit(slipway, hostOf(place, 'ports'))).text, /stopped/)
  await deployed(application.id, place.environmentId)
  assert.deepEqual([await greeting(tcp), await ask('three')], ['v2', 'v2 three'])

  const clone = await send('POST', `${path}/clone`, { name: 'copy', environment_id: place.environmentId })
  const all = [...application.ports, ...clone.ports].filter((port: Json) => port.protocol === 'TCP')
  assert.equal(new Set(all.map((port: Json) => port.external_port)).size, 4)
  const ports = [{ internal_port: 7000, protocol: 'TCP', external_port: tcp, ...open_ }]
  const taken = await slipway.api('PUT', `/application/${clone.id}`, { ports })
  assert.deepEqual([taken.status, taken.body.details[0].field], [409, '/ports/0/external_port'])
  await send('DELETE', path)
  assert.equal(await settle(slipway, application.id), 'DELETED')
  assert.equal(await greeting(tcp), 'ECONNREFUSED')
  // The state comes a moment before its row and its ports are gone.
  await until(async () => (await slipway.api('GET', path)).status === 404, { what: 'its row to go' })
  await send('PUT', `/application/${clone.id}`, { ports })
  await deployed(clone.id, place.environmentId)
  assert.equal(await greeting(tcp), 'v2')
})

test('a port that is not available on the machine fails the deployment with its number; the service serves as before', async (t) => {
  const place = await createPlace(slipway)
  const url = await repository('taken')
  const thief = createSocket('udp4').bind(0, '127.0.0.1')
  await once(thief, 'listening')
  t.after(() => thief.close())
  const { port } = thief.address()
  const application = await createApplication(slipway, place, 'taken', url)
  await deployed(application.id, place.environmentId)
  const web = { internal_port: 8080, protocol: 'HTTP', publicly_accessible: true }
  const stolen = { internal_port: 7000, protocol: 'UDP', external_port: port, publicly_accessible: true }
  await send('PUT', `/application/${application.id}`, { ports: [web, stolen] })
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYMENT_ERROR')
  const log = await deploymentLog(slipway, place.environmentId)
  assert.match(log, new RegExp(`cannot open the UDP port ${port}: it is in use on this machine`))
  assert.equal((await visit(slipway, hostOf(place, 'taken'))).text, 'v1')
  await send('DELETE', `/application/${application.id}`)
})

const grpc = { ':method': 'POST', ':path': '/echo.Echo/Talk', 'content-type': 'application/grpc', te: 'trailers' }

const firstChunk = async (stream: ClientHttp2Stream, word: string): Promise<string> => {
  stream.write(word)
  return String((await once(stream, 'data'))[0])
}

test('a GRPC stream is routed over HTTP/2 with its trailers, and outlives a redeploy', async (t) => {
  const place = await createPlace(slipway)
  const url = await repository('grpc')
  const application = await createApplication(slipway, place, 'grpc', url, {
    ports: [{ internal_port: 9090, protocol: 'GRPC', publicly_accessible: true }],
  })
  await deployed(application.id, place.environmentId)
  const session = connectHttp2(`http://127.0.0.1:${slipway.routerPort}`)
  t.after(() => session.destroy())
  const call = (): ClientHttp2Stream => session.request({ ...grpc, ':authority': hostOf(place, 'grpc') })
  const versionOf = async (stream: ClientHttp2Stream): Promise<unknown> =>
    (await once(stream, 'response'))[0]['x-version']
  const long = call()
  assert.equal(await versionOf(long), 'v1')
  assert.equal(await firstChunk(long, 'one'), 'one')

  await git.commit('grpc', files('v2'), 'second')
  await deploy(slipway, application.id)
  await until(
    async () => {
      const stream = call()
      stream.end()
      stream.resume()
      return (await versionOf(stream)) === 'v2'
    },
    { timeoutMs: 60_000, what: 'the switch' },
  )
  assert.equal(await firstChunk(long, 'two'), 'two')
  const trailers = once(long, 'trailers')
  long.end()
  assert.deepEqual((await trailers)[0]['grpc-status'], '0')
  assert.equal((await trailers)[0]['x-served-by'], 'v1')
  assert.equal(await settle(slipway, application.id), 'DEPLOYED')
})

const deployDatabase = async (id: string): Promise<void> => {
  await send('POST', `/database/${id}/deploy`)
  const settled = async () => {
    const { state } = await send('GET', `/database/${id}/status`)
    return isSettled(state) ? state : null
  }
  assert.equal(await until(settled, { timeoutMs: 100_000, what: 'the database' }), 'DEPLOYED')
}

/** Runs one statement as a client outside of the engine would. */
const query = async (id: string, statement: string): Promise<Json[]> => {
  const { host, port, login: user, password } = await send('GET', `/database/${id}/masterCredentials`)
  const client = new pg.Client({ host, port, user, password, database: 'postgres', connectionTimeoutMillis: 5000 })
  await client.connect()
  try {
    return (await client.query(statement)).rows
  } finally {
    await client.end()
  }
}

interface Seen {
  Config: { Labels: Record<string, string> }
  Mounts: { Name: string }[]
}

/** The minor version of its image, and its volume. */
const seen = async (id: string): Promise<[string | undefined, string]> => {
  const [container] = await containersOf(id)
  const { Config, Mounts } = await engine.call<Seen>('GET', `/containers/${container!.Id}/json`)
  return [Config.Labels['slipway.test.minor'], Mounts[0]!.Name]
}

test('a public PostgreSQL is reached from outside with its credentials, keeps its data over a minor version, and closes', async () => {
  const { environmentId } = await createPlace(slipway)
  const body = { name: 'data', type: 'POSTGRESQL', version: '16.3', mode: 'CONTAINER', accessibility: 'PUBLIC' }
  const database = await send('POST', `/environment/${environmentId}/database`, body)
  const path = `/database/${database.id}`
  await deployDatabase(database.id)
  await query(database.id, `create table kept as select 'marker' as word`)
  const [version, volume] = await seen(database.id)
  assert.equal(version, '16.3')

  const refused = await slipway.api('PUT', path, { version: '17' })
  assert.equal(refused.status, 400)
  assert.match(refused.body.message, /major version/)
  await send('PUT', path, { version: '16.4' })
  await deployDatabase(database.id)
  assert.deepEqual(await query(database.id, 'select word from kept'), [{ word: 'marker' }])
  assert.deepEqual(await seen(database.id), ['16.4', volume])

  const port: number = (await send('GET', path)).port
  assert.equal(database.port, port)
  const hidden = await send('PUT', path, { accessibility: 'PRIVATE' })
  assert.deepEqual([hidden.host, hidden.port], [`service-${database.id}`, 5432])
  await query(database.id, 'select 1').then(
    () => assert.fail('the answer is for its neighbours'),
    () => {},
  )
  await deployDatabase(database.id)
  assert.equal(await greeting(port), 'ECONNREFUSED')
  const again = await send('PUT', path, { accessibility: 'PUBLIC' })
  await deployDatabase(database.id)
  assert.deepEqual(await query(database.id, 'select word from kept'), [{ word: 'marker' }])
  assert.ok(again.port >= 30_000)
})
