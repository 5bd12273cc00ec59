/** Clusters that a module makes, from their first plan to their end, on the fake runtime: the tool is a script of the test. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { type Json, startApi } from '../../../../test/support/api.ts'
import { closedValues } from '../../../../test/support/closed-values.ts'
import { createFakeEngines } from '../../../../test/support/docker/fake-engines.ts'
import { failure, kubeconfigOf, startCluster } from '../../../../test/support/peers/kubernetes.ts'
import { until } from '../../../../test/support/until.ts'
import type { ClusterModule, ModuleProvider } from '../../../clusters/modules.ts'
import type { Task } from '../../../runtimes/runtime.ts'
import { clusterStates } from '../schema.ts'
import { startManagedClusters } from './worker.ts'

const folder = mkdtempSync(join(tmpdir(), 'slipway-module-'))
writeFileSync(join(folder, 'main.tf'), '# a module\n')
const kubernetes = await startCluster()
after(async () => {
  rmSync(folder, { recursive: true })
  await kubernetes.close()
})

const module: ClusterModule = {
  engine: 'terraform',
  image: 'fake/serve:1',
  source: folder,
  inputs: { cluster: '', stopped: '/stopped', version: '/kubernetes_version', fixed: { value: 7 } },
  outputs: { kubeconfig: 'kubeconfig' },
  versions: ['1.30', '1.31'],
  timeoutMinutes: 10,
}
const modules: Partial<Record<ModuleProvider, ClusterModule>> = { AWS: module, SCW: module }
const times = { alone: true, graceMs: 5000, connectMs: 1 }
const api = await startApi({
  engines: createFakeEngines(),
  settings: { clusterModules: modules },
  managed: times,
})
const { call, database, organizationId } = api
const base = `/organization/${organizationId}`

/** The output and result of the tool in a test; it succeeds unless its image does otherwise. */
type Script = (verb: string, task: Task) => string[]
const told = (outputs: object): string => `write /slipway-output/slipway-output.json ${JSON.stringify(outputs)}`
const left = (state: object): string => `write /slipway-output/state.json ${JSON.stringify(state)}`
const login = () => ({
  kubeconfig: { value: JSON.stringify(kubeconfigOf(kubernetes.port, kubernetes.token)), sensitive: true },
})
const usual: Script = (verb) =>
  verb === 'plan'
    ? ['Plan: 1 to add.']
    : verb === 'apply'
      ? [left({ serial: 1, made: true }), told(login())]
      : [left({ serial: 2 })]

/** By id of the cluster. */
const scripts = new Map<string, Script>()
const tasks = new Map<string, Task[]>()
const began = new Map<string, number>()
const { run } = api.runtime
api.runtime.run = (task, onLine, signal, once) => {
  const verb = task.arguments?.[0] ?? ''
  const { serviceId: id } = task
  tasks.set(id, [...(tasks.get(id) ?? []), task])
  const counted = once && {
    marked: once.marked,
    async mark() {
      await once.mark()
      began.set(id, 1 + (began.get(id) ?? 0))
    },
  }
  return run({ ...task, arguments: (scripts.get(id) ?? usual)(verb, task) }, onLine, signal, counted)
}

// Every state that a cluster goes through, however briefly.
await database.query('create table seen (id bigserial, cluster uuid, status text)')
await database.query(`create function see() returns trigger language plpgsql as $$
  begin insert into seen (cluster, status) values (new.id, new.status); return null; end $$`)
await database.query(
  'create trigger see after insert or update of status on managed_cluster for each row execute function see()',
)
const seenOf = async (id: string): Promise<string[]> => {
  const rows = await database.query<{ status: string }>('select status from seen where cluster = $1 order by id', [id])
  return rows.map(({ status }) => status).filter((status, index, all) => status !== all[index - 1])
}

let made = 0
const post = async (path: string, body: Json, status = 201): Promise<Json> => {
  const answer = await call('POST', path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}
const secret = 'the-secret-access-key'
const newCredentials = () => {
  made += 1
  return post(`${base}/aws/credentials`, {
    name: `keys ${made}`,
    type: 'AWS_STATIC',
    access_key_id: 'AKIA-TEST',
    secret_access_key: secret,
  })
}
const newCluster = async (more: Json = {}) => {
  made += 1
  const { id: keys } = await newCredentials()
  const body = {
    ...{ name: `cloud ${made}`, region: 'eu-west-3', cloud_provider: 'AWS' },
    cloud_provider_credentials: { credentials: { id: keys }, region: 'eu-west-3' },
    ...more,
  }
  const { id } = await post(`${base}/cluster`, body)
  const path = `${base}/cluster/${id}`
  const status = async (): Promise<Json> => (await call('GET', `${path}/status`)).body
  const ended = (state: string): Promise<Json> =>
    until(
      async () => {
        const now = await status()
        return now.status === state ? now : null
      },
      { timeoutMs: 30_000, what: `${state} of a cluster` },
    )
  const log = async (): Promise<string> => {
    const { results } = (await call('GET', `${path}/logs`)).body
    return results.map(({ step, message }: Json) => `${step} ${message.safe_message}`).join('\n')
  }
  return { id: id as string, path, status, ended, log }
}
type Made = Awaited<ReturnType<typeof newCluster>>

const deploy = async ({ path, ended }: Made, end = 'DEPLOYED'): Promise<Json> => {
  await post(`${path}/deploy`, undefined)
  return ended(end)
}
/** The state of the tool is orphaned: a test ends together with its cluster. */
const forget = async ({ path, id }: Made): Promise<void> => {
  await until(async () => (await call('DELETE', `${path}?deleteMode=DELETE_QOVERY_CONFIG`)).status === 204, {
    what: 'the end of it',
  })
  scripts.delete(id)
}
const inputsOf = (task: Task): Json =>
  JSON.parse(task.files.reveal().find(({ path }) => path.endsWith('variables.tfvars.json'))!.content)

const reached = new Set<string>()
const reach = async ({ id }: Made): Promise<void> => {
  for (const state of await seenOf(id)) reached.add(state)
}

test('a cluster is planned, made, upgraded, stopped, started again and destroyed by the module of its provider', async () => {
  const cluster = await newCluster()
  const { id, path, ended, status, log } = cluster
  assert.deepEqual([(await status()).status, (await status()).is_deployed], ['READY', false])
  assert.match((await call('POST', `/cluster/${id}/upgrade`)).body.message, /deploy it first/)
  assert.match((await call('POST', `${path}/stop`)).body.message, /never been deployed/)

  const planned = await call('POST', `${path}/deploy?dry_run=true`)
  assert.deepEqual([planned.status, planned.body.status], [201, 'QUEUED'])
  await ended('READY')
  await until(async () => /Plan: 1 to add/.test(await log()), { what: 'the plan in the log' })
  assert.deepEqual(
    [(await call('GET', path)).body.deployment_status, (await status()).is_deployed],
    ['NEVER_DEPLOYED', false],
  )

  await deploy(cluster)
  const first = await status()
  assert.deepEqual([first.is_deployed, first.next_k8s_available_version], [true, null])
  assert.ok(Date.parse(first.last_deployment_date) > 0 && first.last_execution_id.length === 36)
  const record = (await call('GET', path)).body
  assert.deepEqual(
    [record.status, record.deployment_status, record.version],
    ['DEPLOYED', 'UP_TO_DATE', kubernetes.version],
  )
  assert.equal((await call('GET', `${path}/kubeconfig`)).body, login().kubeconfig.value)
  const put = await call('PUT', `${path}/kubeconfig`, 'apiVersion: v1\nclusters: []\nusers: []\n', {
    'content-type': 'application/x-yaml',
  })
  assert.equal(put.status, 400)

  const applied = tasks.get(id)!.at(-1)!
  assert.deepEqual(applied.entrypoint, ['/bin/sh', '/slipway-input/module.sh'])
  assert.deepEqual(applied.arguments, ['apply', 'terraform', '.', 'here'])
  const { env, files } = applied
  assert.deepEqual(
    [env.reveal().AWS_ACCESS_KEY_ID, env.reveal().AWS_SECRET_ACCESS_KEY, env.reveal().AWS_REGION],
    ['AKIA-TEST', secret, 'eu-west-3'],
  )
  assert.ok(!JSON.stringify(files.reveal()).includes(secret))
  assert.ok(files.reveal().some((file) => file.path === '/module/main.tf' && file.content === '# a module\n'))
  const inputs = inputsOf(applied)
  assert.deepEqual(
    [inputs.fixed, inputs.stopped, inputs.version, inputs.cluster.region],
    [7, false, '1.31', 'eu-west-3'],
  )

  const { id: other } = await newCredentials()
  const info = { cloud_provider: 'AWS', credentials: { id: other }, region: 'eu-west-3' }
  await post(`${path}/cloudProviderInfo`, info)
  assert.equal((await status()).status, 'DEPLOYED', 'another login at the provider leaves the cluster what it is')

  await call('PUT', path, { max_running_nodes: 4 })
  assert.equal((await call('GET', path)).body.deployment_status, 'OUT_OF_DATE')
  modules.AWS = { ...module, versions: ['1.30', '1.31', '1.32'] }
  assert.equal((await status()).next_k8s_available_version, '1.32')
  assert.equal((await call('POST', `/cluster/${id}/upgrade`)).body.status, 'DEPLOYMENT_QUEUED')
  await until(
    async () => (await status()).next_k8s_available_version === null && (await status()).status === 'DEPLOYED',
    {
      what: 'the upgrade',
      timeoutMs: 30_000,
    },
  )
  modules.AWS = module
  const upgraded = inputsOf(tasks.get(id)!.at(-1)!)
  assert.deepEqual([upgraded.version, upgraded.cluster.max_running_nodes], ['1.32', 4])
  assert.equal((await call('GET', path)).body.deployment_status, 'UP_TO_DATE')

  const stopping = await call('POST', `${path}/stop`)
  assert.deepEqual([stopping.status, stopping.body.status], [202, 'STOP_QUEUED'])
  await ended('STOPPED')
  assert.equal(inputsOf(tasks.get(id)!.at(-1)!).stopped, true)
  assert.equal((await post(`${path}/deploy`, undefined)).status, 'RESTART_QUEUED')
  await ended('DEPLOYED')

  assert.equal((await call('DELETE', path)).status, 204)
  await until(async () => (await call('GET', `${path}/status`)).status === 404, { what: 'its end', timeoutMs: 30_000 })
  assert.equal(tasks.get(id)!.at(-1)!.arguments![0], 'destroy')
  assert.deepEqual(await seenOf(id), [
    ...['QUEUED', 'BUILDING', 'DRY_RUN', 'READY', 'DEPLOYMENT_QUEUED', 'BUILDING', 'DEPLOYING', 'DEPLOYED'],
    ...['DEPLOYMENT_QUEUED', 'BUILDING', 'DEPLOYING', 'DEPLOYED', 'STOP_QUEUED', 'STOPPING', 'STOPPED'],
    ...['RESTART_QUEUED', 'BUILDING', 'RESTARTING', 'RESTARTED', 'DEPLOYED', 'DELETE_QUEUED', 'DELETING', 'DELETED'],
  ])
  await reach(cluster)
  const events = await database.query<{ event_type: string }>(
    'select event_type from event where target_id = $1 order by created_at, id',
    [id],
  )
  for (const word of ['TRIGGER_DEPLOY', 'DEPLOYED', 'TRIGGER_STOP', 'STOPPED', 'TRIGGER_DELETE', 'DELETED', 'DELETE'])
    assert.ok(
      events.some(({ event_type: type }) => type === word),
      word,
    )
})

test('whatever fails ends in its own state with the reason, and can be tried again', async () => {
  const cluster = await newCluster()
  const { id, path, ended, status } = cluster
  const failWith = (image: string, lines: string[] = []) => {
    modules.AWS = { ...module, image }
    scripts.set(id, () => [left({ serial: 1 }), ...lines])
  }
  failWith('fake/refuse:1')
  assert.match((await deploy(cluster, 'BUILD_ERROR')).error_message, /does not exist/)
  failWith('fake/crash:1', ['│ Error: no room in this region'])
  assert.match((await deploy(cluster, 'DEPLOYMENT_ERROR')).error_message, /no room in this region/)
  failWith('fake/crash:1', ['Error: InvalidClientTokenId: The security token included in the request is invalid.'])
  assert.match((await deploy(cluster, 'INVALID_CREDENTIALS')).error_message, /does not accept the credentials/)
  failWith('fake/serve:1', [told({ other: { value: 'x' } })])
  assert.match((await deploy(cluster, 'DEPLOYMENT_ERROR')).error_message, /no value for its output kubeconfig/)
  failWith('fake/serve:1', [told({ kubeconfig: { value: 'the plain kubeconfig' } })])
  assert.match((await deploy(cluster, 'DEPLOYMENT_ERROR')).error_message, /must mark its output kubeconfig/)
  assert.ok(!(await cluster.log()).includes('the plain kubeconfig'))
  scripts.delete(id)
  kubernetes.instead.set('/version', (_, response) => failure(response, 503, 'not yet'))
  assert.match((await deploy(cluster, 'DEPLOYMENT_ERROR')).error_message, /was made, but cannot be used/)
  kubernetes.instead.clear()
  await deploy(cluster)

  failWith('fake/crash:1')
  assert.equal((await call('POST', `${path}/stop`)).status, 202)
  await ended('STOP_ERROR')
  modules.AWS = module
  await call('POST', `${path}/stop`)
  await ended('STOPPED')
  failWith('fake/crash:1')
  await deploy(cluster, 'RESTART_ERROR')
  assert.equal((await call('DELETE', path)).status, 204)
  assert.match((await ended('DELETE_ERROR')).error_message, /ended|exited|failed/)
  assert.equal((await status()).is_deployed, true)
  assert.match((await call('DELETE', base)).body.message, /clusters at a cloud provider/)
  modules.AWS = module
  scripts.delete(id)
  assert.equal((await call('DELETE', path)).status, 204)
  await until(async () => (await call('GET', `${path}/status`)).status === 404, { what: 'its end', timeoutMs: 30_000 })
  await reach(cluster)
})

test('a stop cancels what is under way: what was made until then is known, and nothing else begins beside', async () => {
  const cluster = await newCluster()
  const { id, path, ended } = cluster
  modules.AWS = { ...module, image: 'fake/slow:600000' }
  await post(`${path}/deploy`, undefined)
  await until(() => began.get(id) === 1, { what: 'the program', timeoutMs: 30_000 })
  for (const busy of [
    await call('POST', `${path}/deploy`),
    await call('DELETE', path),
    await call('POST', `/cluster/${id}/upgrade`),
  ])
    assert.deepEqual([busy.status, busy.body.code], [409, 'cluster_busy'])
  const canceled = await call('POST', `${path}/stop`)
  assert.deepEqual([canceled.status, canceled.body.status], [202, 'CANCELING'])
  await ended('CANCELED')
  const [state] = await database.query<{ held: string | null; isKnown: boolean }>(
    'select held_by as held, sealed is not null as "isKnown" from task_state where id = $1',
    [id],
  )
  assert.deepEqual(state, { held: null, isKnown: true })
  modules.AWS = module
  await deploy(cluster)
  await reach(cluster)
  await forget(cluster)
})

test('a run whose server is gone is joined by the next one: its program begins once', async () => {
  const cluster = await newCluster()
  const { id, path, ended } = cluster
  modules.AWS = { ...module, image: 'fake/slow:3000' }
  await post(`${path}/deploy`, undefined)
  await until(() => began.get(id) === 1, { what: 'the program', timeoutMs: 30_000 })
  // As after a death: the lease is over, and later writes of the first server are ignored.
  await database.query(`update managed_cluster set lease_until = '-infinity', fence = fence + 1 where id = $1`, [id])
  const second = await startManagedClusters(api.parts, { ...times, alone: false })
  try {
    await ended('DEPLOYED')
    assert.equal(began.get(id), 1)
    const lines = (await cluster.log()).split('\n').filter((line) => line.includes('execution '))
    assert.equal(lines.length, 1, 'the output of the program is in the log once')
  } finally {
    await second.stop()
  }
  modules.AWS = module
  await forget(cluster)
})

test('a run that is lost locks its cluster until a person has looked', async () => {
  const cluster = await newCluster()
  const { id, path, ended, status } = cluster
  modules.AWS = { ...module, image: 'fake/slow:600000' }
  await post(`${path}/deploy`, undefined)
  await until(() => began.get(id) === 1, { what: 'the program', timeoutMs: 30_000 })
  const { taskId } = tasks.get(id)!.at(-1)!
  await api.runtime.endTask({ taskId, serviceId: id, environmentId: id }, AbortSignal.timeout(10_000))
  assert.match((await ended('DEPLOYMENT_ERROR')).error_message, /unknown what it did/)
  assert.match((await status()).cluster_lock.reason, /Check the resources/)
  modules.AWS = module
  assert.deepEqual((await call('POST', `${path}/deploy`)).body.code, 'cluster_locked')
  assert.equal((await call('DELETE', `/cluster/${id}/lock`)).status, 204)
  await deploy(cluster)
  await forget(cluster)
})

test('what a cluster needs before anything begins is asked for: a login, a way to stop, a newer version', async () => {
  const role = await post(`${base}/aws/credentials`, {
    name: 'a role',
    type: 'AWS_ROLE',
    role_arn: 'arn:aws:iam::1:role/r',
  })
  const cluster = await newCluster({
    cloud_provider_credentials: { credentials: { id: role.id }, region: 'eu-west-3' },
  })
  const refused = await call('POST', `${cluster.path}/deploy`)
  assert.deepEqual([refused.status, tasks.get(cluster.id)], [400, undefined])
  assert.match(refused.body.message, /must have an access key/)
  const other = await newCluster()
  await deploy(other)
  modules.AWS = { ...module, inputs: { cluster: '/region' }, versions: [] }
  assert.match((await call('POST', `${other.path}/stop`)).body.message, /no input for `\/stopped`/)
  assert.match((await call('POST', `/cluster/${other.id}/upgrade`)).body.message, /no `versions`/)
  delete modules.AWS
  assert.match((await call('POST', `${other.path}/deploy`)).body.message, /SLIPWAY_CLUSTER_MODULES/)
  assert.match((await call('DELETE', other.path)).body.message, /SLIPWAY_CLUSTER_MODULES/)
  modules.AWS = module
  await forget(other)
})

test('each way to delete a cluster takes it from its provider, or leaves it there', async () => {
  for (const mode of closedValues('deleteCluster', '?deleteMode')) {
    const cluster = await newCluster()
    await deploy(cluster)
    const before = tasks.get(cluster.id)!.length
    assert.equal((await call('DELETE', `${cluster.path}?deleteMode=${mode}`)).status, 204)
    await until(async () => (await call('GET', cluster.path)).status === 404, { what: mode, timeoutMs: 30_000 })
    const verbs = tasks
      .get(cluster.id)!
      .slice(before)
      .map((task) => task.arguments![0])
    assert.deepEqual(verbs, mode === 'DELETE_QOVERY_CONFIG' ? [] : ['destroy'], mode)
  }
})

test('every state of a cluster was reached', () => {
  const elsewhere = ['READY']
  assert.deepEqual(
    clusterStates.filter((state) => !reached.has(state) && !elsewhere.includes(state)),
    [],
  )
})
