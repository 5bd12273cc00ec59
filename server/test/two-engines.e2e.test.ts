// Runs alone: it measures, or takes what the machine has.
/**
 * Two engines, each a cluster: this machine's, and one of another machine that is reached over TLS and then over SSH.
 * One server deploys to both, one router leads to both, and the end of one does not affect the other.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { busyboxImage, busyboxName, busyboxTag, ensureBusybox } from './support/docker/busybox-image.ts'
import { ensureDatabaseImage } from './support/docker/database-image.ts'
import { containersOf, engine as near, removeContainer } from './support/docker/docker.ts'
import {
  type OtherMachine,
  otherMachineIsMissing,
  sshIsMissing,
  startOtherMachine,
} from './support/docker/other-machine.ts'
import { type Registry, registryIsMissing, startRegistry } from './support/docker/registry.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { deploymentLog, isSettled, settle, visit } from './support/slipway/story.ts'
import { until } from './support/until.ts'

let machine: OtherMachine
let slipway: Slipway
let git: GitServer
let registry: Registry | undefined
let organizationId: string
let projectId: string
let registryId: string
let credentials: Json | undefined
let clusterId: string

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const engineByTls = () => ({
  engine_url: machine.tls.url,
  engine_ca_certificate: machine.tls.ca,
  engine_client_certificate: machine.tls.cert,
  engine_client_key: machine.tls.key,
})

const addCredentials = (): Promise<Json> =>
  send('POST', `/organization/${organizationId}/onPremise/credentials`, { name: 'second machine', ...engineByTls() })

const addCluster = async (): Promise<void> => {
  credentials ??= await addCredentials()
  const { id, name } = credentials
  const cluster = await send('POST', `/organization/${organizationId}/cluster`, {
    ...{ name: 'second', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' },
    cloud_provider_credentials: { cloud_provider: 'ON_PREMISE', credentials: { id, name }, region: 'unknown' },
  })
  clusterId = cluster.id
}

const addRegistry = async (): Promise<void> => {
  const body = registry
    ? { name: 'open', kind: 'GENERIC_CR', url: registry.url }
    : { name: 'hub', kind: 'DOCKER_HUB', url: 'https://docker.io' }
  const path = `/organization/${organizationId}/containerRegistry`
  registryId = (await send('POST', path, { ...body, description: 'for the test', config: {} })).id
}

/** As the guide says, docs/guides/second-machine.md. */
const closeFirewall = async (): Promise<void> => {
  const drop = (...rule: string[]) => machine.run('iptables', '-I', ...rule, '-j', 'DROP')
  await drop('DOCKER-USER', '-i', 'eth0', '!', '-s', machine.here, '-m', 'conntrack', '--ctstate', 'NEW')
  for (const bridge of ['docker0', 'br-+']) await drop('INPUT', '-i', bridge, '-d', machine.address)
}

const begin = async (): Promise<void> => {
  const env = { SLIPWAY_OUTBOUND_ALLOW: 'loopback,198.18.0.0/15', SLIPWAY_ENGINE_WAIT_SECONDS: '15' }
  slipway = await prepareSlipway({ env })
  await slipway.start()
  git = await startGitServer()
  ;[machine] = await Promise.all([
    startOtherMachine(['198.18.0.0/15']),
    ensureBusybox(),
    ensureDatabaseImage('redis:7'),
  ])
  await Promise.all([closeFirewall(), ...[busyboxImage, 'redis:7'].map((image) => machine.load(image))])
  if (registryIsMissing === false) registry = await startRegistry({ address: machine.here, engine: machine.engine })
  await registry?.publish(busyboxImage, 'team/busybox', '1')
  organizationId = (await send('GET', '/organization')).id
  projectId = (await send('POST', `/organization/${organizationId}/project`, { name: 'both' })).id
  await addRegistry()
  await addCluster()
}

interface Place {
  name: string
  environmentId: string
  web: string
  image: string
  job: string
}

const port = { internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true, name: 'p8080' }
const one = { cpu: 200, memory: 64, min_running_instances: 1, max_running_instances: 1, healthchecks: {} }
const busybox = () =>
  registry === undefined ? { image_name: busyboxName, tag: busyboxTag } : { image_name: 'team/busybox', tag: '1' }

/** An application from git, a container from a registry and a job. */
const createPlace = async (name: string, on: { cluster_id?: string }): Promise<Place> => {
  const path = `/project/${projectId}/environment`
  const { id } = await send('POST', path, { name, mode: 'DEVELOPMENT', ...on })
  const add = async (kind: string, body: object): Promise<string> =>
    (await send('POST', `/environment/${id}/${kind}`, body)).id
  const web = await add('application', {
    ...{ ...one, name: 'web', build_mode: 'DOCKER', dockerfile_path: 'Dockerfile' },
    git_repository: { url: git.url('web'), branch: 'main' },
    ports: [port, { ...port, internal_port: 9090, external_port: 9090, publicly_accessible: false, name: 'p9090' }],
  })
  const served = [
    'sh',
    '-c',
    'echo the image serves; mkdir /w; echo from an image > /w/index.html; exec httpd -f -p 8080 -h /w',
  ]
  const image = await add('container', {
    ...{ ...one, name: 'image', registry_id: registryId, ...busybox(), ports: [port] },
    ...{ entrypoint: served[0], arguments: served.slice(1) },
  })
  const job = await add('job', {
    ...{ name: 'job', cpu: 100, memory: 64, max_nb_restart: 0, max_duration_seconds: 30, healthchecks: {} },
    source: { image: { registry_id: registryId, ...busybox() } },
    schedule: { on_start: { entrypoint: 'sh', arguments: ['-c', `echo the job of ${name} ran`] } },
  })
  return { name, environmentId: id, web, image, job }
}

const stateOf = async (environmentId: string): Promise<Json> =>
  (await send('GET', `/environment/${environmentId}/statuses`)).environment

const act = async (environmentId: string, verb: string, timeoutMs = 60_000): Promise<string> => {
  const { deployment_request_id: id } = await send('POST', `/environment/${environmentId}/${verb}`)
  const isOver = async (): Promise<string | null> => {
    const { deployment_request_id: now, state } = await stateOf(environmentId)
    return now !== id && isSettled(state) ? state : null
  }
  return until(isOver, { timeoutMs, what: `${verb} of an environment` })
}

const deploy = async (environmentId: string): Promise<void> =>
  assert.equal(await act(environmentId, 'deploy'), 'DEPLOYED', await deploymentLog(slipway, environmentId))

const read = async (name: string, service = 'web'): Promise<string> => {
  const { status, text } = await visit(slipway, `${service}-${name}.localhost`)
  return status === 200 ? text : String(status)
}

const runningState = async (serviceId: string): Promise<string> =>
  (await send('GET', `/application/${serviceId}/status`)).running_state ?? ''

/** Runs a program in a container there; answers its exit code. */
const runThere = async (container: string, ...command: string[]): Promise<number> => {
  const body = { Cmd: command, AttachStdout: true, AttachStderr: true }
  const { Id } = await machine.engine.call<{ Id: string }>('POST', `/containers/${container}/exec`, { body })
  const output = await machine.engine.stream('POST', `/exec/${Id}/start`, { body: { Detach: false, Tty: false } })
  await output.resume().toArray()
  return (await machine.engine.call<{ ExitCode: number }>('GET', `/exec/${Id}/json`)).ExitCode
}

const labelled = (label: string) => ({ all: true, filters: JSON.stringify({ label: [label] }) })

interface Row {
  Id: string
  Ports: { IP?: string; PublicPort?: number; PrivatePort: number }[]
}

const there = (serviceId: string): Promise<Row[]> =>
  machine.engine.call('GET', '/containers/json', { query: labelled(`slipway.service=${serviceId}`) })

/** The objects of this installation and its builds on the other engine. */
const leftThere = async (): Promise<string[]> => {
  const { engine } = machine
  const containers = await engine.call<{ Names: string[] }[]>('GET', '/containers/json', { query: { all: true } })
  const networks = await engine.call<{ Name: string }[]>('GET', '/networks')
  const { Volumes } = await engine.call<{ Volumes: { Name: string }[] | null }>('GET', '/volumes')
  const images = await engine.call<{ Id: string; RepoTags: string[] | null }[]>('GET', '/images/json')
  const own = new Set(['bridge', 'host', 'none'])
  return [
    ...containers.map(({ Names }) => `container ${Names[0]}`),
    ...networks.flatMap(({ Name }) => (own.has(Name) ? [] : [`network ${Name}`])),
    ...(Volumes ?? []).map(({ Name }) => `volume ${Name}`),
    ...images.flatMap(({ Id, RepoTags }) =>
      (RepoTags ?? []).some((tag) => tag === busyboxImage || tag === 'redis:7') ? [] : [`image ${Id} ${RepoTags}`],
    ),
  ]
}

const dockerfile = [
  `FROM ${busyboxImage}`,
  'COPY index.html /www/index.html',
  'RUN sed -i "s/$/, built/" /www/index.html',
  'CMD ["sh", "-c", "echo the page is served; (httpd -p 9090 -h /www); exec httpd -f -p 8080 -h /www"]',
  '',
].join('\n')
/** `more`: lines of its Dockerfile. */
const commit = (text: string, ...more: string[]) =>
  git.commit('web', { ...page(text), Dockerfile: [dockerfile, ...more, ''].join('\n') }, text)

/** Ends a build that reaches the address. */
const notReached = (address: string, port: number): string =>
  `RUN if nc -w 2 ${address} ${port} < /dev/null; then echo ${address} is reached; exit 1; fi`

describe('two engines', { skip: otherMachineIsMissing }, () => {
  let here: Place
  let far: Place

  before(begin)
  after(async () => {
    await slipway?.remove()
    await registry?.close()
    await machine?.close()
    await git?.close()
    await near.close()
  })

  test('services of a cluster that is another engine are built there, run there, and are published by the one router', async () => {
    await git.createRepository('web')
    await commit('one')
    here = await createPlace('here', {})
    far = await createPlace('far', { cluster_id: clusterId })
    const kept = { name: 'cache', type: 'REDIS', version: '7', mode: 'CONTAINER', accessibility: 'PRIVATE' }
    const { id: databaseId } = await send('POST', `/environment/${far.environmentId}/database`, kept)
    await Promise.all([deploy(here.environmentId), deploy(far.environmentId)])
    for (const place of [here, far]) {
      assert.equal(await read(place.name), 'one, built')
      assert.equal(await read(place.name, 'image'), 'from an image')
      const log = await deploymentLog(slipway, place.environmentId)
      assert.match(log, new RegExp(`the job of ${place.name} ran`))
      const lines: Json[] = (await send('GET', `/container/${place.image}/log`)).results
      assert.ok(lines.some(({ message }) => message === 'the image serves'))
    }
    assert.deepEqual(await containersOf(far.web), [])
    const [web, image, database] = await Promise.all([far.web, far.image, databaseId].map(there))
    assert.deepEqual([web!.length, image!.length, database!.length], [1, 1, 1])
    // Ports that are not needed outside are not published, and nothing is on every address of that machine.
    const published = [...web!, ...image!, ...database!].flatMap(({ Ports }) =>
      Ports.filter(({ IP }) => IP !== undefined),
    )
    assert.deepEqual(
      published.map(({ PrivatePort, IP }) => [PrivatePort, IP]),
      [
        [8080, machine.address],
        [8080, machine.address],
      ],
    )
    // Another container of that machine is kept from it by the rules of the guide.
    const [{ PublicPort: outer } = { PublicPort: 0 }] = web![0]!.Ports.filter(({ IP }) => IP === machine.address)
    assert.equal((await fetch(`http://${machine.address}:${outer}/`)).status, 200)
    assert.notEqual(await runThere(image![0]!.Id, 'nc', '-w', '2', machine.address, String(outer)), 0)
  })

  test('an environment is cloned from either engine to the other', async () => {
    const clone = async (place: Place, name: string, to: object): Promise<string> =>
      (await send('POST', `/environment/${place.environmentId}/clone`, { name, ...to })).id
    const { cluster_id: nearId } = await send('GET', `/environment/${here.environmentId}`)
    const made = [
      { name: 'to-far', id: await clone(here, 'to-far', { cluster_id: clusterId }) },
      { name: 'to-here', id: await clone(far, 'to-here', { cluster_id: nearId }) },
    ]
    await Promise.all(made.map(({ id }) => deploy(id)))
    for (const { name } of made) assert.equal(await read(name), 'one, built')
    for (const { id } of made) await send('DELETE', `/environment/${id}`)
    const isGone = async (id: string) => (await slipway.api('GET', `/environment/${id}`)).status === 404
    for (const { id } of made) await until(() => isGone(id), { timeoutMs: 30_000, what: 'the end of a clone' })
  })

  test('a new version is rolled out without a lost request, with the engine connected over SSH from then on', async (t) => {
    if (machine.ssh === undefined) t.diagnostic(`left out: SSH (${sshIsMissing})`)
    else {
      const { url, privateKey, hostKey } = machine.ssh
      const path = `/organization/${organizationId}/onPremise/credentials/${credentials.id}`
      await send('PUT', path, {
        ...{ name: credentials.name, engine_url: url },
        ...{ engine_ssh_key: privateKey, engine_ssh_host_keys: hostKey },
      })
    }
    // Services are published where the engine itself listens: a build reaches neither.
    await commit('two', notReached(machine.address, 2376))
    const answers = new Set<string>()
    let isOver = false
    const asking = (async () => {
      while (!isOver) answers.add(await read('far'))
    })()
    await send('POST', `/application/${far.web}/deploy`)
    assert.equal(await settle(slipway, far.web), 'DEPLOYED', await deploymentLog(slipway, far.environmentId))
    isOver = true
    await asking
    assert.deepEqual([...answers].sort(), ['one, built', 'two, built'])
    assert.equal((await there(far.web)).length, 1)
  })

  test('while one engine is dead its services say so, and everything works on the other', async () => {
    await machine.killEngine()
    const killedMs = performance.now()
    const dead = send('POST', `/environment/${far.environmentId}/redeploy`)
    await until(async () => (await runningState(far.web)) === 'UNAVAILABLE', { timeoutMs: 10_000, what: 'UNAVAILABLE' })
    assert.ok(performance.now() - killedMs < 10_000)
    const { deployment_request_id: before } = await dead
    assert.equal((await slipway.api('GET', '/readyz')).status, 200)
    assert.equal(await runningState(here.web), 'RUNNING')
    await commit('three')
    await deploy(here.environmentId)
    assert.equal(await read('here'), 'three, built')
    const lines: Json[] = (await send('GET', `/container/${here.image}/log`)).results
    assert.ok(lines.some(({ message }) => message === 'the image serves'))
    const [container] = await containersOf(here.image)
    await removeContainer(container!.Id)
    await until(async () => (await read('here', 'image')) === 'from an image', {
      timeoutMs: 20_000,
      what: 'it to be mended',
    })
    const ended = async () => {
      const { deployment_request_id: id, state } = await stateOf(far.environmentId)
      return (id !== before || isSettled(state)) && isSettled(state) ? state : null
    }
    assert.match(await until(ended, { timeoutMs: 40_000, what: 'the end of a deployment' }), /_ERROR$/)
    assert.match(await deploymentLog(slipway, far.environmentId), /Docker engine .*does not answer/)
    assert.equal((await slipway.api('GET', '/readyz')).status, 200)
  })

  test('when it is back its services run and serve again', async () => {
    await machine.startEngine()
    await until(async () => (await read('far')) === 'two, built', { timeoutMs: 30_000, what: 'the service to answer' })
    await until(async () => (await runningState(far.web)) === 'RUNNING', { timeoutMs: 15_000, what: 'RUNNING' })
    await deploy(far.environmentId)
    assert.equal(await read('far'), 'three, built')
  })

  test('a deletion leaves nothing on either engine', async () => {
    const places = [here, far]
    for (const { environmentId } of places) await send('DELETE', `/environment/${environmentId}`)
    const isGone = async ({ environmentId }: Place) =>
      (await slipway.api('GET', `/environment/${environmentId}`)).status === 404
    for (const place of places)
      await until(() => isGone(place), { timeoutMs: 30_000, what: 'the end of an environment' })
    await send('DELETE', `/organization/${organizationId}/cluster/${clusterId}`)
    await until(async () => (await leftThere()).length === 0, { timeoutMs: 30_000, what: 'the end of the images' })
  })

  test('a reset removes what runs on either engine', async () => {
    await addCluster()
    far = await createPlace('again', { cluster_id: clusterId })
    await send('POST', `/container/${far.image}/deploy`)
    await until(async () => (await read('again', 'image')) === 'from an image', {
      timeoutMs: 30_000,
      what: 'an answer',
    })
    await slipway.remove()
    assert.deepEqual(await leftThere(), [])
  })
})
