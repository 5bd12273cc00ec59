/** The limits of an organization, through the real API: exceeding one is a 409 that names limit, value and setting. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ListedImage } from '../src/images/listed-image.ts'
import { newId } from '../src/lib/ids.ts'
import { createLog } from '../src/lib/log.ts'
import { systemClock } from '../src/lib/time/clock.ts'
import { createDisk } from '../src/limits/disk.ts'
import { readServiceUse } from '../src/limits/service-room.ts'
import { createWorkRegistry } from '../src/work/registry.ts'
import { databaseBody } from './cases/database.ts'
import { lifecycleBody } from './cases/job.ts'
import { terraformBody } from './cases/terraform.ts'
import { type Answer, applicationBody, type Call, type Json, startApi } from './support/api.ts'
import { until } from './support/until.ts'

const limits = {
  services: 6,
  memoryMb: 4096,
  cpuMillicores: 6000,
  volumes: 3,
  volumeGb: 100,
  queued: 3,
  diskGb: 10,
  streams: 0,
  streamsPerToken: 0,
  engines: 0,
  certificates: 0,
  repositoryMb: 0,
  repositoriesMb: 0,
  mirrorsMb: 0,
  previews: 0,
  ports: 0,
}

/** The list of the engine. */
const images: ListedImage[] = []
const disk = createDisk({
  images: async () => [...images],
  folders: async () => ({}),
  diskGb: limits.diskGb,
  reserveMb: 0,
  // Nothing is cached between two readings.
  clock: { ...systemClock, monotonicMs: () => performance.now() * 1e6 },
  log: createLog('silent'),
  work: createWorkRegistry(systemClock),
})
const api = await startApi({ settings: { limits }, idle: true, disk })
const working = await startApi({ settings: { limits }, disk })

interface Tenant {
  id: string
  call: Call
  projectId: string
  environmentId: string
  /** Creates a service, small unless `more` says otherwise. */
  make(kind: string, body: Record<string, unknown>, environmentId?: string): Promise<Answer>
}

let count = 0

const made = (answer: Answer): Json => {
  assert.ok(answer.status < 300, JSON.stringify(answer.body))
  return answer.body
}

const small = (more: Record<string, unknown> = {}) => {
  count += 1
  return applicationBody(`app ${count}`, { cpu: 100, memory: 64, ports: [], ...more })
}

/** An organization of its own with an environment. */
const newTenant = async (on = api): Promise<Tenant> => {
  count += 1
  const { id } = made(await on.call('POST', '/organization', { name: `tenant ${count}`, plan: 'FREE' }))
  const call = on.as(await on.newToken(['Admin'], id))
  const projectId = made(await call('POST', `/organization/${id}/project`, { name: 'project' })).id
  const environmentId = made(await call('POST', `/project/${projectId}/environment`, { name: 'first' })).id
  const make: Tenant['make'] = (kind, body, at = environmentId) => call('POST', `/environment/${at}/${kind}`, body)
  return { id, call, projectId, environmentId, make }
}

const isRefused = (answer: Answer, sentence: RegExp): void => {
  assert.deepEqual([answer.status, answer.body.code], [409, 'limit_reached'], JSON.stringify(answer.body))
  assert.match(answer.body.message, sentence)
}

const serviceCount = async ({ id }: Tenant): Promise<number> => (await readServiceUse(api.database, id)).services

test('one service more than allowed is refused, whatever its kind; another organization is not affected', async () => {
  const tenant = await newTenant()
  for (let each = 0; each < limits.services; each += 1) made(await tenant.make('application', small()))
  const sentence = /^The limit is 6 services in an organization; this would bring it to 7\. .*SLIPWAY_LIMIT_SERVICES\.$/
  isRefused(await tenant.make('application', small()), sentence)
  isRefused(await tenant.make('database', databaseBody('db', { cpu: 100, memory: 100 })), sentence)
  isRefused(await tenant.make('job', lifecycleBody({ name: 'job', cpu: 100, memory: 100 })), sentence)
  isRefused(await tenant.make('terraform', terraformBody('module')), sentence)
  assert.equal(await serviceCount(tenant), 6)
  made(await (await newTenant()).make('application', small()))
})

test('a deleted service makes room, and so does a deleted environment', async () => {
  const tenant = await newTenant()
  const second = made(await tenant.call('POST', `/project/${tenant.projectId}/environment`, { name: 'second' })).id
  const { id } = made(await tenant.make('application', small()))
  for (let each = 1; each < limits.services; each += 1) made(await tenant.make('application', small(), second))
  isRefused(await tenant.make('application', small()), /services/)
  assert.equal((await tenant.call('DELETE', `/application/${id}`)).status, 204)
  made(await tenant.make('application', small()))
  assert.equal((await tenant.call('DELETE', `/environment/${second}`)).status, 204)
  assert.equal(await serviceCount(tenant), 1)
})

test('a clone of an environment counts all its services, and leaves nothing behind above the limit', async () => {
  const tenant = await newTenant()
  for (let each = 0; each < 4; each += 1) made(await tenant.make('application', small()))
  const clone = () => tenant.call('POST', `/environment/${tenant.environmentId}/clone`, { name: 'copy' })
  isRefused(await clone(), /^The limit is 6 services in an organization; this would bring it to 8\./)
  const environments = await tenant.call('GET', `/project/${tenant.projectId}/environment`)
  assert.deepEqual(
    environments.body.results.map(({ name }: Json) => name),
    ['first'],
  )
  assert.equal(await serviceCount(tenant), 4)
})

test('a clone of a service counts like a new one', async () => {
  const tenant = await newTenant()
  const { id } = made(await tenant.make('application', small({ memory: 2048 })))
  const clone = (name: string) =>
    tenant.call('POST', `/application/${id}/clone`, { name, environment_id: tenant.environmentId })
  made(await clone('second'))
  isRefused(await clone('third'), /^The limit is 4096 MB of memory .*bring it to 6144\. .*SLIPWAY_LIMIT_MEMORY_MB/)
})

test('memory and CPU count for every possible instance, also of a changed service', async () => {
  const tenant = await newTenant()
  const { id } = made(await tenant.make('application', small({ memory: 1024, cpu: 500, max_running_instances: 4 })))
  const edit = (body: object) => tenant.call('PUT', `/application/${id}`, body)
  isRefused(await edit({ max_running_instances: 5 }), /MB of memory .* would bring it to 5120\./)
  isRefused(await edit({ memory: 1025 }), /would bring it to 4100\./)
  isRefused(await tenant.make('application', small({ memory: 6 })), /would bring it to 4102\./)
  made(await edit({ memory: 512 }))
  isRefused(
    await edit({ cpu: 1501 }),
    /^The limit is 6000 millicores .*bring it to 6004\. .*SLIPWAY_LIMIT_CPU_MILLICORES/,
  )
  isRefused(
    await tenant.make('terraform', terraformBody('m')).then((answer) => {
      made(answer)
      return edit({ memory: 1024 })
    }),
    /would bring it to 4608\./,
  )
  isRefused(await tenant.make('job', lifecycleBody({ name: 'j', memory: 1800, cpu: 100 })), /would bring it to 4360\./)
})

test('volumes count by number and size, including those of databases', async () => {
  const tenant = await newTenant()
  const storage = (...sizes: number[]) => sizes.map((size, at) => ({ size, mount_point: `/data${at}` }))
  made(await tenant.make('database', databaseBody('db', { storage: 50, cpu: 100, memory: 64 })))
  const { id } = made(await tenant.make('application', small({ storage: storage(4, 4) })))
  isRefused(
    await tenant.make('application', small({ storage: storage(4) })),
    /^The limit is 3 volumes in an organization; this would bring it to 4\. .*SLIPWAY_LIMIT_VOLUMES\.$/,
  )
  isRefused(
    await tenant.call('PUT', `/application/${id}`, { storage: storage(4, 47) }),
    /^The limit is 100 GB in all volumes of an organization; this would bring it to 101\. .*SLIPWAY_LIMIT_VOLUME_GB\.$/,
  )
  made(await tenant.call('PUT', `/application/${id}`, { storage: storage(4, 46) }))
})

test('of many concurrent creates exactly as many succeed as the limit allows', async () => {
  const tenant = await newTenant()
  const answers = await Promise.all(Array.from({ length: 24 }, () => tenant.make('application', small())))
  assert.equal(answers.filter(({ status }) => status === 201).length, limits.services)
  for (const answer of answers.filter(({ status }) => status !== 201)) isRefused(answer, /services/)
  assert.equal(await serviceCount(tenant), limits.services)
})

test('concurrent creates, clones and edits respect the limits and end', async () => {
  const tenant = await newTenant()
  const { id } = made(await tenant.make('application', small()))
  const clone = (name: string) => tenant.call('POST', `/environment/${tenant.environmentId}/clone`, { name })
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, at) => [
      tenant.make('application', small()),
      clone(`copy ${at}`),
      tenant.call('PUT', `/application/${id}`, { memory: 64 + at }),
    ]).flat(),
  )
  assert.deepEqual(
    [...new Set(answers.map(({ status }) => status))].filter((status) => ![200, 201, 202, 409].includes(status)),
    [],
  )
  const { services, memoryMb } = await readServiceUse(api.database, tenant.id)
  assert.ok(services <= limits.services && memoryMb <= limits.memoryMb)
})

test('an organization above a lowered limit may make changes that need no more, and reduce its use', async () => {
  const tenant = await newTenant()
  const { id } = made(await tenant.make('application', small({ memory: 4096 })))
  await api.database.query(`update node set spec = spec || '{"memory": 5000}' where id = $1`, [id])
  made(await tenant.call('PUT', `/application/${id}`, { description: 'as it was' }))
  isRefused(await tenant.call('PUT', `/application/${id}`, { memory: 5001 }), /would bring it to 5001/)
  made(await tenant.call('PUT', `/application/${id}`, { memory: 4500 }))
})

test('the queue of waiting deployments is limited; a canceled one makes room, and another organization has its own queue', async () => {
  const [tenant, neighbour] = [await newTenant(), await newTenant()]
  const make = async ({ call, make: create, projectId }: Tenant, name: string): Promise<string> => {
    const environment = made(await call('POST', `/project/${projectId}/environment`, { name })).id
    return made(await create('application', small(), environment)).id
  }
  const ids = await Promise.all(['a', 'b', 'c', 'd'].map((name) => make(tenant, name)))
  const deploy = (id: string) => tenant.call('POST', `/application/${id}/deploy`, {})
  const answers = await Promise.all(ids.map(deploy))
  const accepted = answers.filter(({ status }) => status === 202)
  assert.equal(accepted.length, limits.queued)
  const refused = answers.findIndex(({ status }) => status !== 202)
  isRefused(
    answers[refused]!,
    /^The limit is 3 queued deployments in an organization; this would bring it to 4\. .*SLIPWAY_LIMIT_QUEUED\.$/,
  )
  // A request that equals a waiting one joins it, and takes no place.
  assert.equal((await deploy(ids[(refused + 1) % 4]!)).status, 202)
  assert.equal((await neighbour.call('POST', `/application/${await make(neighbour, 'a')}/deploy`, {})).status, 202)
  const environment = (await tenant.call('GET', `/application/${ids[(refused + 1) % 4]}`)).body.environment.id
  assert.equal((await tenant.call('POST', `/environment/${environment}/cancelDeployment`, {})).status, 202)
  assert.equal((await deploy(ids[refused]!)).status, 202)
})

/** An image that the engine holds for an organization. */
const hold = ({ id }: Tenant, gigabytes: number): void => {
  const tag = `slipway/${id}/${newId()}:0123456789abcdef`
  images.push({ Id: newId(), ParentId: '', RepoTags: [tag], Size: gigabytes * 1e9 })
}

test('a deploy is refused while the images of its organization exceed the limit, and running services keep running', async () => {
  const [tenant, neighbour] = [await newTenant(working), await newTenant(working)]
  const service = async ({ make }: Tenant) => made(await make('application', small())).id as string
  const [ours, theirs] = [await service(tenant), await service(neighbour)]
  const stateOf = async ({ call, environmentId }: Tenant) =>
    (await call('GET', `/environment/${environmentId}/status`)).body.state
  const deploy = ({ call }: Tenant, id: string, verb = 'deploy') => call('POST', `/application/${id}/${verb}`)
  const settled = (of: Tenant, state: string) =>
    until(async () => (await stateOf(of)) === state, { what: state, timeoutMs: 10_000 })
  made(await deploy(tenant, ours))
  await settled(tenant, 'DEPLOYED')

  hold(tenant, 12.3)
  const refused = async () => (await deploy(tenant, ours)).status === 409
  await until(refused, { what: 'the engine to be asked', timeoutMs: 5000 })
  isRefused(
    await deploy(tenant, ours),
    /^The limit is 10 GB of images in an organization; it now has 12\.3\. .*SLIPWAY_LIMIT_DISK_GB\.$/,
  )
  await settled(tenant, 'DEPLOYED')
  made(await deploy(tenant, ours, 'redeploy'))
  made(await deploy(neighbour, theirs))
  await settled(neighbour, 'DEPLOYED')

  images.length = 0
  const accepted = async () => (await deploy(tenant, ours)).status === 202
  await until(accepted, { what: 'room', timeoutMs: 5000 })
})

test('a deployment that started before its organization exceeded the limit ends before it builds, with that reason', async () => {
  // A server that does not know the sizes yet accepts the request.
  const fresh = await startApi({ settings: { limits }, disk: { ...disk, refuseDeploy: () => {} } })
  const tenant = await newTenant(fresh)
  const { id } = made(await tenant.make('application', small()))
  hold(tenant, 11)
  made(await tenant.call('POST', `/application/${id}/deploy`))
  const path = `/application/${id}/deploymentHistoryV2`
  const entry = await until(
    async () =>
      (await tenant.call('GET', path)).body.results.find(({ error }: Json) => error !== null && error !== undefined),
    { what: 'the end', timeoutMs: 10_000 },
  )
  assert.deepEqual([entry.error.code, entry.error.message.includes('it now has 11.')], ['limit_reached', true])
  images.length = 0
})

test('an organization can read its limits and its use of them', async () => {
  const tenant = await newTenant()
  made(await tenant.make('database', databaseBody('db', { storage: 50, cpu: 100, memory: 64 })))
  hold(tenant, 1.5)
  const read = async () => (await tenant.call('GET', `/organization/${tenant.id}/limits`)).body.results as Json[]
  const figures = (await read()).map(({ name, limit, used }) => [name, limit, used])
  assert.deepEqual(figures, [
    ['SERVICES', 6, 1],
    ['MEMORY_MB', 4096, 64],
    ['CPU_MILLICORES', 6000, 100],
    ['VOLUMES', 3, 1],
    ['VOLUME_GB', 100, 50],
    ['QUEUED_DEPLOYMENTS', 3, 0],
    ['IMAGES_GB', 10, 1.5],
    ['STREAMS', null, null],
    ['STREAMS_PER_TOKEN', null, null],
    ['ENGINES', null, 0],
    ['CERTIFICATES', null, 0],
    ['REPOSITORY_MB', null, null],
    ['REPOSITORIES_MB', null, 0],
    ['GIT_MIRRORS_MB', null, null],
    ['PREVIEWS_PER_PROJECT', null, null],
    ['PORTS', null, 0],
  ])
  assert.equal((await read())[0].setting, 'SLIPWAY_LIMIT_SERVICES')
  images.length = 0
})

test('the deployed size counts until less is deployed, and a rollback to more finds its room or fails', async () => {
  const tenant = await newTenant(working)
  const use = async () => (await readServiceUse(working.database, tenant.id)).memoryMb
  const { id } = made(await tenant.make('application', small({ memory: 3000 })))
  const path = `/application/${id}`
  const ended = async () => {
    const { state } = (await tenant.call('GET', `/environment/${tenant.environmentId}/status`)).body
    if (!/^(DEPLOYED|.*_ERROR)$/.test(state)) return null
    return (await tenant.call('GET', `${path}/deploymentHistoryV2`)).body.results[0]
  }
  const act = async (verb: string, body: object = {}): Promise<Json> => {
    made(await tenant.call('POST', `${path}/${verb}`, body))
    return until(ended, { what: verb, timeoutMs: 10_000 })
  }
  await act('deploy')
  made(await tenant.call('PUT', path, { memory: 100 }))
  // It still runs with its deployed size.
  assert.equal(await use(), 3000)
  isRefused(await tenant.make('application', small({ memory: 1200 })), /bring it to 4200/)
  await act('deploy')
  assert.equal(await use(), 100)
  const other = made(await tenant.make('application', small({ memory: 1200 })))

  const refused = await act('rollback')
  assert.deepEqual(
    [refused.error.code, refused.error.message.includes('this would bring it to 4200')],
    ['limit_reached', true],
  )
  assert.equal(await use(), 1300)
  assert.equal((await tenant.call('DELETE', `/application/${other.id}`)).status, 204)
  const rolledBack = await act('rollback')
  assert.equal(rolledBack.error ?? null, null)
  assert.equal(await use(), 3000)
})
