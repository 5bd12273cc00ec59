/** Databases that a module makes, on the fake runtime: the tool is a script of the test. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { databaseBody } from '../../../test/cases/database.ts'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { loadEffectiveVariables } from '../../../test/support/effective-variables.ts'
import { until } from '../../../test/support/until.ts'
import type { DatabaseModule } from '../../clusters/database-modules.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Task } from '../../runtimes/runtime.ts'
import { judgeTold } from './managed-database.ts'

const folder = mkdtempSync(join(tmpdir(), 'slipway-database-module-'))
writeFileSync(join(folder, 'main.tf'), '# a module\n')
after(() => rmSync(folder, { recursive: true }))

const module: DatabaseModule = {
  engine: 'terraform',
  image: 'fake/serve:1',
  source: folder,
  inputs: { all: '', stopped: '/stopped', fixed: { value: 7 } },
  outputs: { host: 'address', port: 'port', login: 'user', password: 'word', database: 'name' },
  versions: ['15.4', '16.2', '17.1'],
  instanceTypes: ['small', 'large'],
  timeoutMinutes: 10,
}
const modules: Record<string, Record<string, DatabaseModule>> = { AWS: { POSTGRESQL: module, REDIS: module } }
const api = await startApi({ settings: { databaseModules: modules } })
const { call, database, organizationId, clusterId } = api

const secret = 'the-secret-access-key'
const keys = (
  await call('POST', `/organization/${organizationId}/aws/credentials`, {
    ...{ name: 'keys', type: 'AWS_STATIC', access_key_id: 'AKIA-TEST', secret_access_key: secret },
  })
).body
// Changes the engine of this machine to a cluster at this provider.
await database.query('update node set spec = spec || $2 where id = $1', [
  clusterId,
  JSON.stringify({
    ...{ cloud_provider: 'AWS', region: 'eu-west-3' },
    cloud_provider_credentials: { credentials: { id: keys.id }, region: 'eu-west-3' },
  }),
])

const left = (state: object): string => `write /slipway-output/state.json ${JSON.stringify(state)}`
const told = (values: Record<string, string>, isOpen = false): string => {
  const entries = Object.entries(values).map(([name, value]) => [
    name,
    { value, sensitive: name === 'word' && !isOpen },
  ])
  return `write /slipway-output/slipway-output.json ${JSON.stringify(Object.fromEntries(entries))}`
}
const password = 'p@ss/wörd'
const values = { address: 'db.example.com', port: '6432', user: 'owner', word: password, name: 'shop' }

type Script = (verb: string, task: Task) => string[]
const usual: Script = (verb) =>
  verb === 'plan' ? ['Plan: 1 to add.'] : verb === 'apply' ? [left({ serial: 1 }), told(values)] : [left({ serial: 2 })]

/** By id of the database. */
const scripts = new Map<string, Script>()
const tasks = new Map<string, Task[]>()
const began = new Map<string, number>()
const { run } = api.runtime
api.runtime.run = (task, onLine, signal, once) => {
  const { serviceId: id } = task
  tasks.set(id, [...(tasks.get(id) ?? []), task])
  const counted = once && {
    marked: once.marked,
    async mark() {
      await once.mark()
      began.set(id, 1 + (began.get(id) ?? 0))
    },
  }
  // The fake program prints its arguments; those of the real one are in the request.
  const lines = (scripts.get(id) ?? usual)(task.arguments![0]!, task)
  return run({ ...task, entrypoint: null, arguments: lines }, onLine, signal, counted)
}
const lastTask = (id: string): Task => tasks.get(id)!.at(-1)!
const inputsOf = (task: Task): Json =>
  JSON.parse(task.files.reveal().find(({ path }) => path.endsWith('variables.tfvars.json'))!.content)

const managedBody = (name = 'data', more: Json = {}): Json =>
  databaseBody(name, { mode: 'MANAGED', version: '16.2', instance_type: 'small', ...more })

const statusOf = async (id: string): Promise<Json> => (await call('GET', `/database/${id}/status`)).body
const ends = (id: string, state: string): Promise<Json> =>
  until(
    async () => {
      const now = await statusOf(id)
      if (now.state !== state && /_ERROR$/.test(now.state)) return now
      return now.state === state ? now : null
    },
    { what: state, timeoutMs: 30_000 },
  ).then((now) => {
    assert.equal(now.state, state, now.error?.message)
    return now
  })
const post = async (path: string, body: Json = undefined, status = 202): Promise<Json> => {
  const answer = await call('POST', path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}
const logOf = async (id: string): Promise<string> => {
  const rows = await database.query<{ lines: { text: string }[] }>(
    'select lines from deployment_log where service_id = $1 order by id',
    [id],
  )
  return rows.flatMap(({ lines }) => lines.map(({ text }) => text)).join('\n')
}
const create = async (more: Json = {}, environmentId?: string): Promise<Json> =>
  post(
    `/environment/${environmentId ?? (await newPlace(api)).environmentId}/database`,
    managedBody(undefined, more),
    201,
  )
const deploy = async (id: string, state = 'DEPLOYED', body: Json = undefined): Promise<Json> => {
  await post(`/database/${id}/deploy`, body)
  return ends(id, state)
}
const isGone = (id: string) =>
  until(async () => (await call('GET', `/database/${id}`)).status === 404, { what: 'its end', timeoutMs: 30_000 })

test('without a module for its type and its provider MANAGED is refused with what the operator is to name', async () => {
  const { environmentId } = await newPlace(api)
  const path = `/environment/${environmentId}/database`
  const { status, body } = await call('POST', path, managedBody('x', { type: 'MYSQL', version: '8.0' }))
  assert.deepEqual([status, body.details[0].field], [400, '/mode'])
  assert.match(body.message, /Terraform module for MYSQL on clusters of AWS.*SLIPWAY_DATABASE_MODULES/)
  const { results } = (await call('GET', `/environment/${environmentId}/databaseConfiguration`)).body
  const managed = results.map(({ database_type: type, version }: Json) => [
    type,
    version.filter((one: Json) => one.supported_mode === 'MANAGED').map(({ name }: Json) => name),
  ])
  assert.deepEqual(managed, [
    ['POSTGRESQL', module.versions],
    ['MYSQL', []],
    ['MONGODB', []],
    ['REDIS', module.versions],
  ])
  const made = await create({}, environmentId)
  const { POSTGRESQL } = modules.AWS!
  delete modules.AWS!.POSTGRESQL
  try {
    for (const [method, at] of [
      ['PUT', ''],
      ['POST', '/deploy'],
      ['POST', '/deploy?dry_run=true'],
    ] as const) {
      const answer = await call(
        method,
        `/database/${made.id}${at}`,
        method === 'PUT' ? { description: 'x' } : undefined,
      )
      assert.match(JSON.stringify(answer.body), /SLIPWAY_DATABASE_MODULES/, at)
    }
  } finally {
    modules.AWS!.POSTGRESQL = POSTGRESQL!
  }
})

test('what the module does not make is refused, and what it does not read is named', async () => {
  const { environmentId } = await newPlace(api)
  const path = `/environment/${environmentId}/database`
  for (const [more, field] of [
    [{ version: '16' }, '/version'],
    [{ instance_type: 'huge' }, '/instance_type'],
    [{ instance_type: '${"evil"}' }, '/instance_type'],
  ] as const) {
    const { status, body } = await call('POST', path, managedBody('x', more))
    assert.deepEqual([status, body.details?.[0]?.field], [400, field], JSON.stringify(body))
  }
  const { inputs } = module
  modules.AWS!.POSTGRESQL = { ...module, inputs: { version: '/version' } }
  const answer = await call('POST', path, managedBody('named', { storage: 30, disk_type: 'gp3' }))
  modules.AWS!.POSTGRESQL = { ...module, inputs }
  assert.equal(answer.status, 201)
  const named = answer.headers.get('slipway-not-applied') ?? ''
  for (const field of ['/instance_type', '/storage', '/disk_type'])
    assert.ok(named.includes(field), `${field}: ${named}`)
  assert.ok(!named.includes('/version'))
})

test('a database is planned, made, connected to other services, changed, stopped, started and destroyed by its module', async () => {
  const { environmentId } = await newPlace(api)
  const made = await create({ storage: 20, disk_type: 'gp3' }, environmentId)
  const { id } = made
  const path = `/database/${id}`
  const { id: app } = await newApplication(api, environmentId)
  assert.deepEqual([made.mode, made.host, made.instance_type, made.disk_type], ['MANAGED', '', 'small', 'gp3'])
  assert.equal((await call('GET', `${path}/masterCredentials`)).body.code, 'not_deployed')
  const plan = (await post(`${path}/deploy?dry_run=true`, undefined, 200)).stages[0].services[0]
  assert.deepEqual([plan.effect, plan.changes.image.to], ['RUN', 'module AWS POSTGRESQL'])

  await post(`${path}/deploy`, { action: 'PLAN' })
  await until(async () => (await logOf(id)).includes('Plan: 1 to add.'), { what: 'the plan in the log' })
  await until(async () => (await statusOf(id)).deployment_requests_count === 0, { what: 'the end of the plan' })
  await deploy(id)
  const task = lastTask(id)
  assert.deepEqual(task.arguments, ['apply', 'terraform', '.', 'here'])
  const { all, stopped, fixed } = inputsOf(task)
  assert.deepEqual(
    [all.id, all.instance_type, all.storage, all.region, stopped, fixed],
    [id, 'small', 20, 'eu-west-3', false, 7],
  )
  assert.equal(task.env.reveal().AWS_SECRET_ACCESS_KEY, secret)
  assert.notEqual(task.environmentId, environmentId, 'it has a network of its own')

  const { env, secretValues } = await loadEffectiveVariables(database, api.parts.sealer, app)
  const url = `postgresql://owner:${encodeURIComponent(password)}@db.example.com:6432/shop`
  const prefix = `QOVERY_POSTGRESQL_Z${id.slice(0, 8).toUpperCase()}`
  const facts = { HOST: values.address, PORT: '6432', LOGIN: 'owner', PASSWORD: password, DATABASE_URL: url }
  for (const [name, value] of Object.entries({ ...facts, DATABASE_URL_INTERNAL: url, HOST_INTERNAL: values.address }))
    assert.equal(env[`${prefix}_${name}`], value, name)
  assert.ok(secretValues.includes(password) && secretValues.includes(url))
  const container = (await call('POST', `/environment/${environmentId}/database`, databaseBody('beside'))).body
  const both = (await loadEffectiveVariables(database, api.parts.sealer, app)).env
  const namesOf = (one: string) =>
    Object.keys(both)
      .filter((key) => key.includes(`_Z${one.slice(0, 8).toUpperCase()}_`))
      .map((key) => key.split(/_Z[0-9A-F]{8}_/)[1])
      .sort()
  assert.deepEqual(namesOf(id), namesOf(container.id), 'the same variables as in the mode CONTAINER')
  const told = (await call('GET', `${path}/masterCredentials`)).body
  assert.deepEqual(told, { host: values.address, port: 6432, login: 'owner', password })
  assert.equal((await call('GET', path)).body.host, values.address)

  await call('PUT', path, { instance_type: 'large', version: '17.1' })
  assert.equal((await statusOf(id)).service_deployment_status, 'OUT_OF_DATE')
  const next = (await post(`${path}/deploy?dry_run=true`, undefined, 200)).stages[0].services[0]
  assert.deepEqual(
    next.changes.configuration.map(({ field, to }: Json) => [field, to]),
    [
      ['/instance_type', 'large'],
      ['/version', '17.1'],
    ],
  )
  await deploy(id)
  assert.deepEqual([inputsOf(lastTask(id)).all.instance_type, inputsOf(lastTask(id)).all.version], ['large', '17.1'])
  assert.match(JSON.stringify((await call('PUT', path, { version: '16.2' })).body), /must not be older/)
  assert.deepEqual((await call('GET', `${path}/version`)).body.results, [{ name: '17.1' }])

  await post(`${path}/stop`)
  await ends(id, 'STOPPED')
  assert.deepEqual([lastTask(id).arguments![0], inputsOf(lastTask(id)).stopped], ['apply', true])
  await deploy(id)
  assert.equal(inputsOf(lastTask(id)).stopped, false)
  assert.equal((await call('DELETE', path)).status, 204)
  await isGone(id)
  assert.equal(lastTask(id).arguments![0], 'destroy')
  for (const table of ['task_state where id', 'service_output where service_id'])
    assert.deepEqual(await database.query(`select 1 from ${table} = $1`, [id]), [], table)
  const rows = await database.query<{ text: string }>(
    `select r::text as text from release r union all select line ->> 'text' from deployment_log,
       jsonb_array_elements(lines) line`,
  )
  // The fake program prints the files it writes.
  const kept = rows.filter(({ text }) => !text.startsWith('write '))
  for (const { text } of kept) assert.ok(!text.includes(secret) && !text.includes(password), text)
})

test('a module that cannot stop a database leaves it as it is, and says so', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await create({}, environmentId)
  const { id: app } = await newApplication(api, environmentId)
  await deploy(id)
  modules.AWS!.POSTGRESQL = { ...module, inputs: { all: '/version' } }
  try {
    const refused = await call('POST', `/database/${id}/stop`)
    assert.deepEqual([refused.status, refused.body.code], [400, 'not_stoppable'])
    assert.match(refused.body.message, /no input for `\/stopped`/)
    await post(`/application/${app}/deploy`)
    await until(async () => (await call('GET', `/application/${app}/status`)).body.deployment_state === 'DEPLOYED', {
      what: 'the application',
    })
    const before = tasks.get(id)!.length
    const plan = await post(`/environment/${environmentId}/stop?dry_run=true`, undefined, 200)
    const effects = plan.stages.flatMap(({ services }: Json) => services.map(({ effect }: Json) => effect))
    assert.deepEqual(effects.sort(), ['REFUSED', 'STOP'])
    await call('POST', `/environment/${environmentId}/stop`)
    await until(async () => (await call('GET', `/application/${app}/status`)).body.deployment_state === 'STOPPED', {
      what: 'the stop of the other',
    })
    assert.deepEqual([(await statusOf(id)).state, tasks.get(id)!.length], ['DEPLOYED', before])
  } finally {
    modules.AWS!.POSTGRESQL = module
  }
})

test('whatever fails is said, and what was made stays known until it is destroyed', async () => {
  const { id } = await create()
  const path = `/database/${id}`
  const errorOf = async (): Promise<string> => (await statusOf(id)).error.message
  const failWith = async (script: Script, image = 'fake/serve:1'): Promise<string> => {
    scripts.set(id, script)
    modules.AWS!.POSTGRESQL = { ...module, image }
    await deploy(id, 'DEPLOYMENT_ERROR')
    return errorOf()
  }
  assert.match(
    await failWith(() => [left({ serial: 1 }), '│ Error: no room here'], 'fake/crash:1'),
    /tool has failed: no room here/,
  )
  assert.match(
    await failWith(() => ['Error: InvalidClientTokenId: x'], 'fake/crash:1'),
    /does not accept the credentials/,
  )
  assert.match(await failWith(() => [told({ address: 'db.example.com' })]), /no value for the password/)
  assert.match(
    await failWith(() => [told({ ...values, address: '169.254.169.254' })]),
    /host .* cannot be used: it is a link-local address/,
  )
  assert.match(
    await failWith(() => [told({ ...values, word: 'the plain password' }, true), 'word = "the plain password"']),
    /must mark its output word/,
  )
  assert.ok(!(await logOf(id)).includes('the plain password'))
  scripts.set(id, (verb) => (verb === 'destroy' ? ['Error: it is still used'] : usual(verb, {} as Task)))
  modules.AWS!.POSTGRESQL = module
  await deploy(id)

  scripts.set(id, () => [told({ ...values, word: 'another plain one' }, true), 'word = "another plain one"'])
  await post(`${path}/stop`)
  await ends(id, 'STOP_ERROR')
  assert.match(await errorOf(), /must mark its output word/, 'whatever it was run for')
  assert.ok(!(await logOf(id)).includes('another plain one'))
  scripts.set(id, (verb) => (verb === 'destroy' ? ['Error: it is still used'] : usual(verb, {} as Task)))

  modules.AWS!.POSTGRESQL = { ...module, image: 'fake/crash:1' }
  assert.equal((await call('DELETE', path)).status, 204)
  await ends(id, 'DELETE_ERROR')
  assert.match(await errorOf(), /it is still used/)
  const kept = await database.query('select 1 from task_state where id = $1 and sealed is not null', [id])
  assert.equal(kept.length, 1, 'the state is kept')
  modules.AWS!.POSTGRESQL = module
  scripts.delete(id)
  assert.equal((await call('DELETE', path)).status, 204)
  await isGone(id)
})

test('a cancel asks the tool to end and keeps what it left; a run of a server that is gone is joined', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await create({}, environmentId)
  scripts.set(id, () => [left({ serial: 7 })])
  modules.AWS!.POSTGRESQL = { ...module, image: 'fake/slow:600000' }
  await post(`/database/${id}/deploy`)
  await until(() => began.get(id) === 1, { what: 'the tool', timeoutMs: 30_000 })
  await post(`/environment/${environmentId}/cancelDeployment`)
  await ends(id, 'CANCELED')
  const stateOf = async () =>
    (await database.query<Json>('select held_by as held, serial::int from task_state where id = $1', [id]))[0]
  assert.deepEqual(await stateOf(), { held: null, serial: 7 })

  scripts.delete(id)
  modules.AWS!.POSTGRESQL = { ...module, image: 'fake/slow:3000' }
  await post(`/database/${id}/deploy`)
  await until(() => began.get(id) === 2, { what: 'the tool', timeoutMs: 30_000 })
  // As after a death: the lease is over, and later writes of the first server are ignored.
  await database.query(
    `update deployment set lease_until = '-infinity', fence = fence + 1 where environment_id = $1 and finished_at is null`,
    [environmentId],
  )
  const second = api.another()
  await second.start()
  try {
    await ends(id, 'DEPLOYED')
    assert.equal(began.get(id), 2, 'the program began once')
  } finally {
    await second.stop()
    modules.AWS!.POSTGRESQL = module
  }
})

test('a run that is lost keeps the state locked until a person has looked', async () => {
  const { id } = await create()
  modules.AWS!.POSTGRESQL = { ...module, image: 'fake/slow:600000' }
  await post(`/database/${id}/deploy`)
  await until(() => began.get(id) === 1, { what: 'the tool', timeoutMs: 30_000 })
  const { taskId } = lastTask(id)
  await api.runtime.endTask({ taskId, serviceId: id, environmentId: id }, AbortSignal.timeout(10_000))
  await ends(id, 'DEPLOYMENT_ERROR')
  assert.match((await statusOf(id)).error.message, /unknown what the run did/)
  modules.AWS!.POSTGRESQL = module
  await deploy(id, 'DEPLOYMENT_ERROR')
  assert.match((await statusOf(id)).error.message, /locked .*FORCE_UNLOCK/)
  await post(`/database/${id}/deploy`, { action: 'FORCE_UNLOCK' })
  await until(async () => (await logOf(id)).includes('The state has been unlocked.'), { what: 'the unlocking' })
  await until(async () => (await statusOf(id)).deployment_requests_count === 0, { what: 'its end' })
  await deploy(id)
  const { id: plain } = (
    await call('POST', `/environment/${(await newPlace(api)).environmentId}/database`, databaseBody('c'))
  ).body
  assert.equal((await call('POST', `/database/${plain}/deploy`, { action: 'FORCE_UNLOCK' })).body.code, 'event_missing')
})

test('a clone of an environment has a database of its own, and deleting it destroys nothing of the other', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await create({ disk_type: 'gp2' }, environmentId)
  await deploy(id)
  const clone = (await call('POST', `/environment/${environmentId}/clone`, { name: `clone of ${environmentId}` })).body
  const [copy] = (await call('GET', `/environment/${clone.id}/database`)).body.results
  assert.deepEqual([copy.mode, copy.instance_type, copy.host], ['MANAGED', 'small', ''])
  await deploy(copy.id)
  const { all } = inputsOf(lastTask(copy.id))
  assert.deepEqual([all.id, all.disk_type], [copy.id, 'gp2'])
  assert.equal((await call('DELETE', `/environment/${clone.id}`)).status, 204)
  await isGone(copy.id)
  assert.deepEqual(
    [id, copy.id].map((each) => lastTask(each).arguments![0]),
    ['apply', 'destroy'],
  )
})

test('the outputs of a module are checked: an address of another machine, and text that is a variable', () => {
  const source = { from: 'module', provider: 'AWS', type: 'POSTGRESQL', fields: {} } as const
  const good = { host: 'db', password: 'x' }
  const judge = (more: Record<string, string>) => judgeTold(source, { ...good, ...more })
  const bad: [string, string[]][] = [
    ['host', ['a'.repeat(10_000_000), 'a b', 'a\nb', 'a/b', 'a:1', 'user@db', '-db', `${'a.'.repeat(127)}ab`]],
    [
      'host',
      ['127.0.0.1', '127.9.9.9', '::1', '[::1]', '0.0.0.0', '::', '::ffff:127.0.0.1', 'localhost', 'db.LOCALHOST.'],
    ],
    ['host', ['169.254.169.254', 'fe80::1%eth0', '100.100.100.200', 'fd00:ec2::254', 'metadata.google.internal']],
    ['host', ['2130706433', '127.1', '0x7f.1', '0x7f000001', '224.0.0.1', '64:ff9b::7f00:1']],
    ['port', ['0', '65536', '-1', '1e3', '5432\n', 'http', '']],
    ['login', ['a\u0000b', 'a\nb', 'x'.repeat(129), '\ud800']],
    ['password', ['', 'a\r\nb', 'x'.repeat(1025), 'a\u2028b']],
    ['database', ['a\u0085b', 'x'.repeat(129)]],
  ]
  for (const [output, all] of bad)
    for (const value of all)
      assert.throws(
        () => judge({ [output]: value }),
        (error) => error instanceof DeploymentError && error.code === 'module_output' && error.message.length < 300,
        `${output} ${JSON.stringify(value.slice(0, 40))}`,
      )
  for (const host of [
    'db',
    'db.eu-west-3.rds.amazonaws.com',
    '10.0.0.7',
    'fd12::7',
    '_srv.db.example.com',
    '172.17.0.1',
  ])
    assert.equal(judge({ host })[0]!.value, host)
  const url = (more: Record<string, string>) => judge(more).find(({ name }) => name === 'URL')!
  assert.deepEqual(url({ host: 'fd12::7', login: 'a@b', password: 'x/y' }), {
    ...{ name: 'URL', value: 'postgresql://a%40b:x%2Fy@[fd12::7]:5432/postgres', sensitive: true },
  })
})
