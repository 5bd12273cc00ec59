import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi, type TestApi } from '../../test/support/api.ts'
import { type Heard, hearEvents, hearSocket, lastThat } from '../../test/support/streams.ts'
import { until } from '../../test/support/until.ts'
import { usualLimits } from '../limits/limits.ts'

// One token follows more streams here than a token may by default.
const api = await startApi({ settings: { limits: { ...usualLimits, streams: 0, streamsPerToken: 0 } } })
const { call, token, url, organizationId } = api

const newService = async (within: TestApi = api) => {
  const place = await newPlace(within)
  return { ...place, applicationId: (await newApplication(within, place.environmentId)).id as string }
}

const states = (heard: Heard, of: (frame: Json) => string): string[] =>
  heard.all.map(of).filter((state, index, all) => state !== all[index - 1])

const path = ['READY', 'DEPLOYMENT_QUEUED', 'BUILDING', 'DEPLOYING', 'DEPLOYED']

/**
 * The states of a deployment that a follower may see: short ones may be missed, none is out of order, the final ones
 * are always seen.
 */
const goesThrough = (seen: string[]): void => {
  assert.deepEqual(
    seen,
    path.filter((state) => seen.includes(state)),
    'in order',
  )
  assert.deepEqual([seen[0], seen.at(-1)], ['READY', 'DEPLOYED'])
}

const idOf = (frame: Json): string => frame.environment.state

test('a deployment is visible through events and websockets, in order, and the last frame equals a read', async () => {
  const { environmentId, projectId, applicationId } = await newService()
  const events = await hearEvents(`${url}/environment/${environmentId}/statuses/stream`, token)
  const service = await hearEvents(`${url}/application/${applicationId}/status/stream`, token)
  const asClient = { 'x-state-vocabulary': 'deployment' }
  const exact = await hearEvents(`${url}/application/${applicationId}/status/stream`, token, asClient)
  const query = `organization=${organizationId}&cluster=${api.clusterId}&project=${projectId}`
  const socket = await hearSocket(`${url}/deployment/status?${query}&environment=${environmentId}`, token)
  const project = await hearSocket(`${url}/deployment/status?${query}`, token)
  const running = await hearSocket(`${url}/service/status?${query}&environment=${environmentId}`, token)
  const pods = await hearSocket(`${url}/service/pods?${query}&service=${applicationId}`, token)
  assert.equal(socket.socket.protocol, 'v1')
  const streams = [events, service, exact, socket, project, running, pods]
  await until(() => streams.every(({ all }) => all.length > 0), { what: 'each stream to begin' })

  assert.equal((await call('POST', `/application/${applicationId}/deploy`)).status, 202)
  const done = (of: (frame: Json) => string) => (frame: Json) => of(frame) === 'DEPLOYED'
  await lastThat(events, 'the end in the events', done(idOf))
  await lastThat(socket, 'the end on the websocket', done(idOf))
  await lastThat(project, 'the end in the project', (frame) => frame.results[0].state === 'DEPLOYED')
  await lastThat(exact, 'the end of the service', (frame) => frame.state === 'DEPLOYED')
  await lastThat(service, 'the application to run', (frame) => frame.state === 'RUNNING')
  await lastThat(running, 'the instance', ({ environments: [one] }) => one.applications[0].state === 'RUNNING')
  await lastThat(pods, 'the pod', (frame) => frame.pods.length === 1)

  goesThrough(states(events, idOf))
  goesThrough(states(events, (frame) => frame.applications[0].state))
  goesThrough(states(socket, idOf))
  goesThrough(states(project, (frame) => frame.results[0].state))
  goesThrough(states(exact, (frame) => frame.state))

  const answer = async (address: string, headers = {}) => (await call('GET', address, undefined, headers)).body
  const same = (heard: Heard, wanted: () => Promise<Json>) =>
    until(async () => JSON.stringify(heard.all.at(-1)) === JSON.stringify(await wanted()), {
      what: 'the last that was told to be what is read',
    })
  await same(events, () => answer(`/environment/${environmentId}/statuses`))
  await same(socket, () => answer(`/environment/${environmentId}/statusesWithStages`))
  await same(project, () => answer(`/project/${projectId}/environment/status`))
  await same(service, () => answer(`/application/${applicationId}/status`))
  await same(exact, () => answer(`/application/${applicationId}/status`, asClient))

  const [environment] = running.all.at(-1).environments
  assert.deepEqual([environment.id, environment.project_id, environment.state], [environmentId, projectId, 'RUNNING'])
  for (const name of ['containers', 'databases', 'jobs', 'helms', 'terraform', 'argocd_apps', 'agentic_workflows'])
    assert.deepEqual(environment[name], [], name)
  const [{ pods: instances, certificates }] = environment.applications
  assert.deepEqual([instances.length, instances[0].state, certificates], [1, 'RUNNING', []])
  assert.equal(typeof instances[0].started_at, 'number')
  assert.deepEqual(pods.all.at(-1).pods[0].name, instances[0].name)
  for (const stream of streams) stream.close()
})

test('an argument that is given twice names nothing', async () => {
  const { environmentId, projectId } = await newService()
  const all = [`environment=${environmentId}`, `project=${projectId}`]
  for (const twice of all) {
    const answer = await call('GET', `/deployment/status?${[...all, twice].join('&')}`)
    assert.ok([400, 404].includes(answer.status), `${twice}: ${answer.status}`)
  }
})

test('who reconnects with the id of what it has gets nothing until something changes', async () => {
  const { environmentId, applicationId } = await newService()
  const address = `${url}/environment/${environmentId}/statuses/stream`
  const first = await hearEvents(address, token)
  await until(() => first.ids[0], { what: 'the first event' })
  first.close()
  const again = await hearEvents(address, token, { 'last-event-id': first.ids[0]! })
  const fresh = await hearEvents(address, token)
  await until(() => fresh.all.length, { what: 'the other one to begin' })
  assert.equal(again.all.length, 0)
  await call('POST', `/application/${applicationId}/deploy`)
  await lastThat(again, 'the end', (frame) => idOf(frame) === 'DEPLOYED')
  again.close()
  fresh.close()
})

test('a stream begins with the state at its opening, not with the last frame of other streams', async () => {
  const { environmentId, applicationId } = await newService()
  const address = `${url}/environment/${environmentId}/statuses/stream`
  const before = await hearEvents(address, token)
  await until(() => before.all.length, { what: 'the first to begin' })
  await api.database.transaction(async (tx) => {
    // Without a notice: as if it were still on its way.
    await tx.query('set local session_replication_role = replica')
    await tx.query(`update service_state set running_state = 'SILENT' where service_id = $1`, [applicationId])
  })
  const after = await hearEvents(address, token)
  await until(() => after.all.length, { what: 'the second to begin' })
  assert.equal(after.all[0].applications[0].running_state, 'SILENT')
  before.close()
  after.close()
})

/** Counts calls of one of the engine's reads. */
const counting = (within: TestApi, name: 'environmentStatuses') => {
  const { deployments } = within.parts
  const original = deployments[name].bind(deployments)
  const count = { reads: 0 }
  deployments[name] = (db, id) => {
    count.reads += 1
    return original(db, id)
  }
  return count
}

const note = (within: TestApi, serviceId: string, state: string) =>
  within.database.query('update service_state set running_state = $2 where service_id = $1', [serviceId, state])

test('200 watchers of an environment cost one read a change', async () => {
  const { environmentId, applicationId } = await newService()
  const address = `${url}/environment/${environmentId}/statuses/stream`
  const watchers = await Promise.all(Array.from({ length: 200 }, () => hearEvents(address, token)))
  await until(() => watchers.every(({ all }) => all.length === 1), { what: 'all to begin' })
  const count = counting(api, 'environmentStatuses')
  await note(api, applicationId, 'WARNING')
  const told = ({ all }: Heard) => all.at(-1).applications[0].running_state === 'WARNING'
  await until(() => watchers.every(told), { what: 'all to be told' })
  assert.equal(count.reads, 1)
  for (const watcher of watchers) watcher.close()
})

test('a change is sent within 300 ms of its commit', async () => {
  const { environmentId, applicationId } = await newService()
  const watcher = await hearEvents(`${url}/environment/${environmentId}/statuses/stream`, token)
  await until(() => watcher.all.length, { what: 'it to begin' })
  const tookMs: number[] = []
  for (let n = 0; n < 9; n += 1) {
    await note(api, applicationId, `N${n}`)
    const begunMs = performance.now()
    await lastThat(watcher, 'the change', (frame) => frame.applications[0].running_state === `N${n}`)
    tookMs.push(performance.now() - begunMs)
  }
  // The median: other tests may keep the machine busy.
  assert.ok(tookMs.sort((a, b) => a - b)[4]! < 300, `${tookMs} ms`)
  watcher.close()
})

test('a burst of changes is read ten times a second at most, and ends with the last of them', async () => {
  const { environmentId, applicationId } = await newService()
  const watcher = await hearEvents(`${url}/environment/${environmentId}/statuses/stream`, token)
  await until(() => watcher.all.length, { what: 'it to begin' })
  const count = counting(api, 'environmentStatuses')
  const begunMs = performance.now()
  for (let n = 0; n < 150; n += 1) await note(api, applicationId, `N${n}`)
  await lastThat(watcher, 'the last change', (frame) => frame.applications[0].running_state === 'N149')
  const seconds = (performance.now() - begunMs) / 1000
  assert.ok(count.reads <= 2 + seconds * 10, `${count.reads} reads in ${seconds} s`)
  watcher.close()
})

const everyWriter: [string, string][] = [
  ['state', `state = 'DEPLOYING'`],
  ['running state', `running_state = 'ERROR'`],
  ['release', 'current_release_id = gen_random_uuid()'],
  ['deployed fingerprint', `deployed_hash = 'x'`],
  ['deployment', 'deployment_id = gen_random_uuid()'],
  ['time', 'last_deployment_at = clock_timestamp()'],
]

test('every change of a status is notified: no writer can forget it', async () => {
  const { environmentId, applicationId } = await newService()
  const heard: string[] = []
  const stop = await api.database.listen('slipway_status', (id) => {
    if (id === environmentId || id === 'end') heard.push(id)
  })
  for (const [what, change] of everyWriter) {
    heard.length = 0
    await api.database.query(`update service_state set ${change} where service_id = $1`, [applicationId])
    await until(() => heard.includes(environmentId), { what: `a notice of a changed ${what}`, timeoutMs: 10_000 })
  }
  heard.length = 0
  await api.database.query(`update service_state set wanted_hash = 'y' where service_id = $1`, [applicationId])
  await api.database.query(`select pg_notify('slipway_status', 'end')`)
  await until(() => heard.includes('end'), { what: 'the notice after' })
  assert.deepEqual(heard, ['end'], 'computing a fingerprint is no change')
  heard.length = 0
  await call('PUT', `/application/${applicationId}`, { cpu: 700 })
  await until(() => heard.includes(environmentId), { what: 'a notice of a configuration that is out of date now' })
  stop()
})

test('a stream of a revoked token ends, and no environment of another organization is visible', async () => {
  const { environmentId, projectId } = await newService()
  const made = (await call('POST', `/organization/${organizationId}/apiToken`, { name: 'watch', scopes: ['Read'] }))
    .body
  const events = await hearEvents(`${url}/environment/${environmentId}/statuses/stream`, made.token)
  const socket = await hearSocket(`${url}/deployment/status?project=${projectId}`, made.token)
  await until(() => events.all.length + socket.all.length === 2, { what: 'both to begin' })
  assert.equal((await call('DELETE', `/organization/${organizationId}/apiToken/${made.id}`)).status, 204)
  await until(() => events.code !== 0 && socket.code === 1008, { what: 'both to end', timeoutMs: 3000 })

  const other = await api.newOrganization()
  const addresses = [`/deployment/status?project=${projectId}`, `/service/status?environment=${environmentId}`]
  const strange = await hearEvents(`${url}/environment/${environmentId}/statuses/stream`, other.token)
  assert.equal(strange.status, 404)
  for (const address of [...addresses, `/deployment/logs?environment=${environmentId}`])
    await assert.rejects(hearSocket(url + address, other.token), /404/, address)
  const elsewhere = await newService()
  const mixed = `${url}/deployment/status?project=${elsewhere.projectId}&environment=${environmentId}`
  await assert.rejects(hearSocket(mixed, token), /404/)
})

test('a role that sees one mode only gets frames of its environments only, and connects again when that changes', async () => {
  const { projectId, environmentId } = await newService()
  const hidden = await call('POST', `/project/${projectId}/environment`, { name: 'live', mode: 'PRODUCTION' })
  const roles = `/organization/${organizationId}/customRole`
  const role = (await call('POST', roles, { name: 'part' })).body
  const permissions = (production: string) =>
    ['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION'].map((environment_type) => ({
      environment_type,
      permission: environment_type === 'PRODUCTION' ? production : 'VIEWER',
    }))
  const set = async (production: string) => {
    const { cluster_permissions, project_permissions } = (await call('GET', `${roles}/${role.id}`)).body
    const projects = project_permissions.map((each: Json) =>
      each.project_id === projectId ? { ...each, permissions: permissions(production) } : each,
    )
    return call('PUT', `${roles}/${role.id}`, { name: 'part', cluster_permissions, project_permissions: projects })
  }
  assert.equal((await set('NO_ACCESS')).status, 200)
  const made = await call('POST', `/organization/${organizationId}/apiToken`, { name: 'part', role_id: role.id })
  const socket = await hearSocket(`${url}/deployment/status?project=${projectId}`, made.body.token)
  const running = await hearSocket(`${url}/service/status?project=${projectId}`, made.body.token)
  const all = await hearSocket(`${url}/deployment/status?project=${projectId}`, token)
  await until(() => [socket, running, all].every((each) => each.all.length > 0), { what: 'all to begin' })
  const ids = (list: Json[]) => list.map(({ id }) => id)
  assert.deepEqual(ids(socket.all[0].results), [environmentId])
  assert.deepEqual(ids(running.all[0].environments), [environmentId])
  assert.deepEqual(ids(all.all[0].results), [environmentId, hidden.body.id])
  assert.equal((await set('VIEWER')).status, 200)
  await until(() => socket.code === 1008 && running.code === 1008, { what: 'both to end', timeoutMs: 3000 })
  assert.equal(all.code, 0)
  all.close()
})

test('a reader who takes nothing is not waited for, costs one frame, and gets the newest when it reads on', async () => {
  const { environmentId, applicationId, projectId } = await newService()
  const query = `project=${projectId}&environment=${environmentId}`
  const slow = await hearSocket(`${url}/deployment/status?${query}`, token)
  const other = await hearSocket(`${url}/deployment/status?${query}`, token)
  await until(() => slow.all.length + other.all.length === 2, { what: 'both to begin' })
  slow.socket.pause()
  // Each frame is a megabyte: what the kernel takes is soon full.
  const big = 'x'.repeat(1024 * 1024)
  const stateOf = (frame: Json): string => frame.stages.at(-1).applications[0].running_state
  for (let n = 0; n < 30; n += 1) {
    await note(api, applicationId, `${n} ${big}`)
    await lastThat(other, 'the other to go on', (frame) => stateOf(frame).startsWith(`${n} `))
    other.all.splice(0)
  }
  const sockets = [...(api.app.websocketServer.clients as Set<{ bufferedAmount: number }>)]
  const buffered = sockets.reduce((sum, each) => sum + each.bufferedAmount, 0)
  assert.ok(buffered < 3 * 1024 * 1024, `${buffered} bytes wait`)
  await note(api, applicationId, 'the end')
  slow.socket.resume()
  await lastThat(slow, 'the newest', (frame) => stateOf(frame) === 'the end')
  assert.ok(slow.all.length < 30, `${slow.all.length} frames came`)
  slow.close()
  other.close()
})

test('a lost connection for notifications is reopened, and changes in between are sent', async () => {
  const { environmentId, applicationId } = await newService()
  const watcher = await hearEvents(`${url}/environment/${environmentId}/statuses/stream`, token)
  await until(() => watcher.all.length, { what: 'it to begin' })
  const ended = await api.database.query(
    `select pg_terminate_backend(pid) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen %'`,
  )
  assert.ok(ended.length > 0)
  await note(api, applicationId, 'MEANWHILE')
  await lastThat(
    watcher,
    'the change meanwhile',
    (frame) => frame.applications[0].running_state === 'MEANWHILE',
    10_000,
  )
  await note(api, applicationId, 'AFTERWARDS')
  await lastThat(watcher, 'the change after', (frame) => frame.applications[0].running_state === 'AFTERWARDS')
  watcher.close()
})

test('an older execution is sent once, with its result; a missing one is not', async () => {
  const { environmentId, applicationId, projectId } = await newService()
  for (const commit of ['a'.repeat(40), 'b'.repeat(40)]) {
    await call('POST', `/application/${applicationId}/deploy`, { git_commit_id: commit })
    await until(async () => (await call('GET', `/environment/${environmentId}/status`)).body.state === 'DEPLOYED', {
      what: 'the deployment',
    })
  }
  const query = `project=${projectId}&environment=${environmentId}`
  const past = await hearSocket(`${url}/deployment/status?${query}&version=${environmentId}-1`, token)
  const [frame] = await until(() => past.all.length && past.all, { what: 'the first execution' })
  assert.equal(frame.environment.last_deployment_id, `${environmentId}-1`)
  const [{ stage, applications }] = frame.stages
  assert.deepEqual([stage.status, applications[0].state], ['DONE', 'DEPLOYED'])
  assert.equal(applications[0].execution_id, `${environmentId}-1`)
  const none = await hearSocket(`${url}/deployment/status?${query}&version=${environmentId}-9`, token)
  await until(() => none.code === 1011, { what: 'the end' })
  past.close()
})

test('streams of an environment that is deleted end', async () => {
  const { environmentId, applicationId, projectId } = await newService()
  const events = await hearEvents(`${url}/environment/${environmentId}/statuses/stream`, token)
  const socket = await hearSocket(`${url}/deployment/status?project=${projectId}&environment=${environmentId}`, token)
  await call('POST', `/application/${applicationId}/deploy`)
  await lastThat(events, 'the deployment', (frame) => idOf(frame) === 'DEPLOYED')
  assert.equal((await call('DELETE', `/environment/${environmentId}`)).status, 204)
  await until(() => events.code !== 0 && socket.code !== 0, { what: 'both to end' })
  assert.equal(socket.code, 1000)
})

test('nothing is read when the last watcher has gone', async () => {
  const { environmentId, applicationId } = await newService()
  const watcher = await hearEvents(`${url}/environment/${environmentId}/statuses/stream`, token)
  await until(() => watcher.all.length, { what: 'it to begin' })
  watcher.close()
  const heard: string[] = []
  const stop = await api.database.listen('slipway_status', (id) => heard.push(id))
  const count = counting(api, 'environmentStatuses')
  await until(
    async () => {
      count.reads = 0
      heard.length = 0
      await note(api, applicationId, `UNSEEN ${performance.now()}`)
      await until(() => heard.includes(environmentId), { what: 'the notice' })
      await api.database.query('select 1')
      return count.reads === 0
    },
    { what: 'changes that nobody reads' },
  )
  stop()
})
