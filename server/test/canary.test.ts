/**
 * A canary is written through every field for a secret, and then searched for: in every response, in every line of the
 * log, in every row of the database, and in the bytes of every file, including the database's own. No field is listed
 * by name: the fields are read from the schemas of the operations.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Operation } from '../src/api/operations/operation.ts'
import { rotateKeys } from '../src/programs/key-rotation.ts'
import { operations } from '../src/resources/index.ts'
import type { Values } from './cases/case.ts'
import { type Answer, type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { createFakeEngines } from './support/docker/fake-engines.ts'
import { openFakeKubernetes } from './support/peers/kubernetes.ts'
import { addressOf, caseOf, newScene, paramsOf, valuesFor } from './support/scene.ts'
import { tapLog } from './support/tap-log.ts'
import { until } from './support/until.ts'

const api = await startApi({ engines: createFakeEngines(), openKubernetes: openFakeKubernetes })

const logged = tapLog(api.parts.log)

const canary = `Canary${randomBytes(9).toString('hex')}`
const visible = `Visible${randomBytes(9).toString('hex')}`

/** The text as it is, as hexadecimal, and as base64 wherever it begins in a group of three. */
const formsOf = (text: string): string[] => {
  const base64 = [0, 1, 2].map((skip) =>
    Buffer.from('x'.repeat(skip) + text)
      .toString('base64')
      .slice(skip === 0 ? 0 : 4, -4),
  )
  return [text, Buffer.from(text).toString('hex'), ...base64]
}

/** Values that must not be found anywhere: the canary, and values that were shown once. */
const hidden: string[] = [canary]
const shows = (text: string): boolean => hidden.flatMap(formsOf).some((form) => text.includes(form))

const isSecret = (schema: Json): boolean => schema['x-secret'] === true

/** Paths of the fields marked as secrets: `config.password`, `jobs.0.token`. */
const secretsIn = (schema: Json, path: string[] = []): string[][] => {
  if (schema === undefined || schema === null || typeof schema !== 'object') return []
  if (isSecret(schema)) return [path]
  const variants = (schema.anyOf ?? schema.allOf ?? schema.oneOf ?? []) as Json[]
  return [
    ...variants.flatMap((each) => secretsIn(each, path)),
    ...Object.entries<Json>(schema.properties ?? {}).flatMap(([name, inner]) => secretsIn(inner, [...path, name])),
    ...(schema.items === undefined ? [] : secretsIn(schema.items, [...path, '0'])),
  ]
}

const withValue = (body: Json, [name, ...below]: string[], value: string): Json => {
  if (name === undefined) return value
  if (name === '0') return [withValue(Array.isArray(body) ? body[0] : undefined, below, value)]
  return { ...(body ?? {}), [name]: withValue(body?.[name], below, value) }
}

/** The smallest value that a schema allows. */
const smallest = (schema: Json): Json => {
  if (schema.const !== undefined) return schema.const
  if (schema.enum !== undefined) return schema.enum[0]
  if (schema.anyOf !== undefined) return smallest(schema.anyOf[0])
  if (schema.type === 'object') return smallestWith(schema, [], undefined)[0]
  if (schema.type === 'array') return []
  if (schema.type === 'integer' || schema.type === 'number') return schema.minimum ?? 1
  if (schema.type === 'boolean') return true
  return schema.format === 'uri' ? 'https://example.com' : 'a'.repeat(schema.minLength ?? 1)
}

/** The smallest values that have `value` at a path, one for each variant of the schema that has the path. */
const smallestWith = (schema: Json, path: string[], value: unknown): Json[] => {
  const [name, ...below] = path
  if (schema?.anyOf !== undefined) return schema.anyOf.flatMap((each: Json) => smallestWith(each, path, value))
  if (schema?.items !== undefined && name === '0') return smallestWith(schema.items, below, value).map((each) => [each])
  if (schema?.properties === undefined) return path.length === 0 ? [value] : []
  const required = (schema.required ?? []) as string[]
  const others = Object.fromEntries(
    required.filter((each) => each !== name).map((each) => [each, smallest(schema.properties[each])]),
  )
  if (name === undefined) return [others]
  if (schema.properties[name] === undefined) return []
  return smallestWith(schema.properties[name], below, value).map((inner) => ({ ...others, [name]: inner }))
}

/** The formats in which secrets have to be sent: some fields accept only a document. */
const wrapped = (text: string): string[] => [
  text,
  JSON.stringify({ type: 'service_account', project_id: 'p', client_email: 'a@b.c', private_key: text }),
  `apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:6443\nusers:\n- name: u\n  user:\n    token: ${text}\ncontexts:\n- name: x\n  context:\n    cluster: c\n    user: u\ncurrent-context: x\n`,
]

/** The bodies of a case, also with the other members of its enums, for fields that belong to some of them only. */
const variantsOf = (schema: Json, body: Json): Json[] => {
  const enums = Object.entries<Json>(schema.properties ?? {}).filter(([, inner]) => Array.isArray(inner.enum))
  const others = enums.flatMap(([name, inner]) => (inner.enum as string[]).map((value) => ({ ...body, [name]: value })))
  return [body, ...others]
}

const send = async (operation: Operation, values: Values, body: unknown): Promise<Answer> => {
  const answer = await api.call(
    operation.method,
    addressOf(operation.path, values, caseOf(operation).query?.(values)),
    body,
    {
      'idempotency-key': `canary-${randomBytes(6).toString('hex')}`,
    },
  )
  const shown = JSON.stringify(answer.body)
  if (answer.status >= 300 || !/"(token|signing_secret)":/.test(shown))
    assert.ok(!shows(shown), `${operation.id} answers a secret: ${shown}`)
  return answer
}

const places = new Map<string, Set<string>>()
const remember = (values: Values): void => {
  for (const [name, id] of Object.entries(values)) places.set(name, (places.get(name) ?? new Set()).add(id))
}

/** Writes the canary at one path of one operation, in any body that is accepted; false if none is. */
const plant = async (operation: Operation, path: string[]): Promise<boolean> => {
  const plan = caseOf(operation)
  const scene = newScene(api)
  const values = await valuesFor(operation, scene)
  remember(values)
  const body = (plan.body?.(values, scene) ?? {}) as Json
  const bodiesWith = (value: string): Json[] => [
    ...variantsOf(operation.body as Json, body).map((variant) => withValue(variant, path, value)),
    ...smallestWith(operation.body as Json, path, value).map((least) => ({ ...body, ...least, ...namesOf(body) })),
  ]
  const given = plan.withSecret?.(path.join('.'), canary)
  for (const value of wrapped(canary))
    for (const sent of given === undefined ? bodiesWith(value) : [{ ...body, ...given }]) {
      const answer = await send(operation, values, sent)
      if (answer.status >= 300) continue
      const { id } = answer.body as Json
      const made = operations.find(
        ({ method, path: item }) => method === 'GET' && item.startsWith(`${operation.path}/{`),
      )
      if (typeof id === 'string' && made?.owner.param != null) remember({ ...values, [made.owner.param]: id })
      return true
    }
  return false
}

const namesOf = (body: Json): Json => ('name' in body ? { name: body.name } : {})

const writes = operations.filter(({ body }) => body !== undefined)
const secretFields = writes.flatMap((operation) =>
  secretsIn(operation.body as Json).map((path) => ({ operation, path })),
)

test('the canary is taken by every field marked as a secret', async () => {
  assert.ok(secretFields.length >= 4, 'nearly nothing is marked as a secret')
  const refused: string[] = []
  for (const { operation, path } of secretFields) {
    const field = `${operation.id} ${path.join('.')}`
    if (caseOf(operation).refused === undefined && !(await plant(operation, path))) refused.push(field)
  }
  assert.deepEqual(refused, [])
})

/** Fields whose names look like secrets, but that are not. */
const open: Record<string, string> = {
  'metrics_parameters.configuration.alerting.spec_config_secret':
    'the name of a secret in the cluster; part 2.2 answers it',
}

const textFieldsIn = (schema: Json, path: string[] = []): string[][] => {
  if (schema === undefined || schema === null || typeof schema !== 'object' || isSecret(schema)) return []
  if (schema.type === 'string' && schema.enum === undefined && schema['x-ref'] === undefined) return [path]
  return [
    ...((schema.anyOf ?? []) as Json[]).flatMap((each) => textFieldsIn(each, path)),
    ...Object.entries<Json>(schema.properties ?? {}).flatMap(([name, inner]) => textFieldsIn(inner, [...path, name])),
    ...(schema.items === undefined ? [] : textFieldsIn(schema.items, path)),
  ]
}

test('every field that is called like a secret is marked as one', () => {
  const named = /(password|passwd|secret|secret_key|private_key|kubeconfig|_credentials|(^|_)token)$/i
  const unmarked = writes.flatMap(({ id, body }) =>
    textFieldsIn(body as Json)
      .filter((path) => named.test(path.at(-1) ?? ''))
      .filter((path) => open[path.join('.')] === undefined)
      .map((path) => `${id} ${path.join('.')}`),
  )
  assert.deepEqual(unmarked, [])
})

/** True if a body makes variables, with the field that marks them as secrets. */
const secretBodies = (operation: Operation, values: Values, count: number): Json[] => {
  const { path, method } = operation
  const body = (caseOf(operation).body?.(values, { ...newScene(api), count }) ?? {}) as Json
  if (path.endsWith('/import'))
    return [
      {
        ...body,
        vars: body.vars.map((each: Json) => ({ ...each, name: `CANARY_${count}`, value: canary, is_secret: true })),
      },
    ]
  if (path === '/variable') return [{ ...body, key: `CANARY_${count}`, value: canary, is_secret: true }]
  if (!/\/secret(\/|$)/.test(path)) return []
  if (path.endsWith('/alias')) return []
  const secret = { ...body, value: canary }
  const file = { ...secret, key: `FILE_${count}`, mount_path: `/run/canary-${count}` }
  return method === 'POST' && path.endsWith('/secret') ? [secret, file] : [secret]
}

test('the canary is taken by secret variables of every scope, as values, files, overrides, imports and edits', async () => {
  let taken = 0
  for (const operation of writes) {
    const plan = caseOf(operation)
    const isOfSecrets = /\/secret(\/|$)|^\/variable$|\/import$|environmentVariable\/import/.test(operation.path)
    if (!isOfSecrets || plan.refused !== undefined) continue
    const scene = newScene(api)
    const values = await valuesFor(operation, scene)
    remember(values)
    for (const body of secretBodies(operation, values, scene.count)) {
      const answer = await send(operation, values, body)
      assert.ok(answer.status < 300, `${operation.id}: ${JSON.stringify(answer.body)}`)
      taken += 1
    }
  }
  assert.ok(taken >= 12, `only ${taken} secret variables were made`)
})

test('a deployment that uses the secrets, what is shown once, and a plain value that may be seen', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  remember({ projectId, environmentId, applicationId: id, serviceId: id })
  for (const owner of [`project/${projectId}`, `environment/${environmentId}`, `application/${id}`]) {
    const key = `CANARY_${owner.split('/')[0]}`.toUpperCase()
    assert.equal((await api.call('POST', `/${owner}/secret`, { key, value: canary })).status, 201)
  }
  const file = { key: 'CANARY_FILE', value: canary, mount_path: '/run/secret' }
  assert.equal((await api.call('POST', `/application/${id}/secret`, file)).status, 201)
  const built = { key: 'JOINED', value: 'user:{{CANARY_PROJECT}}@host' }
  assert.equal((await api.call('POST', `/application/${id}/environmentVariable`, built)).status, 201)
  const plain = { key: 'PLAIN', value: visible }
  assert.equal((await api.call('POST', `/application/${id}/environmentVariable`, plain)).status, 201)
  for (const action of ['deploy', 'restart-service', 'redeploy']) {
    const begun = await api.call('POST', `/application/${id}/${action}`)
    assert.equal(begun.status, 202, JSON.stringify(begun.body))
    remember({ deploymentRequestId: begun.body.deployment_request_id, deploymentId: begun.body.deployment_request_id })
    const rest = /^(DEPLOYED|RESTARTED|.*_ERROR)$/
    await until(async () => rest.test((await api.call('GET', `/application/${id}/status`)).body.deployment_state), {
      what: 'the deployment to end',
      timeoutMs: 20_000,
    })
  }
  // Both are shown once, when they are made.
  const organization = `/organization/${api.organizationId}`
  const token = await api.call('POST', `${organization}/apiToken`, { name: 'shown once' })
  const webhook = { target_url: 'http://127.0.0.1:9/hook', events: ['DEPLOYMENT_STARTED'] }
  const hook = await api.call('POST', `${organization}/webhook`, webhook)
  hidden.push(token.body.token, hook.body.signing_secret)
  remember({ webhookId: hook.body.id })
  const used = await api.as(token.body.token)('GET', organization)
  assert.equal(used.status, 200)
})

/** Every address of an operation over all the rows that are known. */
const addressesOf = (operation: Operation): Values[] => {
  const query = operation.owner.inQuery === true && operation.owner.param !== null ? [operation.owner.param] : []
  return [...paramsOf(operation.path), ...query].reduce<Values[]>(
    (all, param) =>
      all.flatMap((values) =>
        [...(places.get(param) ?? ['none'])].slice(-40).map((id) => ({ ...values, [param]: id })),
      ),
    [{}],
  )
}

test('no answer of any read holds the canary', async () => {
  remember({ organizationId: api.organizationId, clusterId: api.clusterId })
  const shown: string[] = []
  const answered = new Set<string>()
  let sawVisible = false
  for (const operation of operations.filter(({ method, produces }) => method === 'GET' && produces === undefined)) {
    if (paramsOf(operation.path).some((param) => !places.has(param)))
      remember(await valuesFor(operation, newScene(api)))
    for (const values of addressesOf(operation).slice(-120)) {
      const query = caseOf(operation).query?.(values) ?? {}
      const { status, body } = await api.call('GET', addressOf(operation.path, values, query))
      const text = typeof body === 'string' ? body : JSON.stringify(body)
      if (status === 200) answered.add(operation.id)
      if (text.includes(visible)) sawVisible = true
      if (shows(text)) shown.push(`${operation.id}: ${text.slice(0, 300)}`)
    }
  }
  assert.deepEqual(shown, [])
  assert.ok(sawVisible, 'what may be seen was not found: the search is blind')
  assert.ok(answered.size > operations.length / 5, `only ${answered.size} reads were answered`)
})

test('no row of any table holds the canary', async () => {
  const tables = await api.database.query<{ name: string }>(
    `select table_name as name from information_schema.tables where table_schema = 'public'`,
  )
  let sawVisible = false
  for (const { name } of tables) {
    const rows = await api.database.query<{ row: string }>(`select t::text as row from "${name}" t`)
    for (const { row } of rows) {
      if (row.includes(visible)) sawVisible = true
      assert.ok(!shows(row), `${name}: ${row.slice(0, 500)}`)
    }
  }
  assert.ok(sawVisible, 'what may be seen was not found: the search is blind')
})

test('no line of the log holds the canary', () => {
  api.parts.log.error({ err: new Error(visible) }, 'the log is listened to')
  assert.ok(logged().includes(visible), 'the log is not listened to')
  const line = logged().split('\n').find(shows)
  assert.equal(line, undefined)
})

const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))

/** Files are made and deleted while the database works. */
const bytesOf = (file: string): Buffer => {
  try {
    return statSync(file).size > 2 ** 30 ? Buffer.alloc(0) : readFileSync(file)
  } catch {
    return Buffer.alloc(0)
  }
}

test('no file of the data directory holds the canary: tables, indexes, the write-ahead log, mirrors', async () => {
  await api.database.query('checkpoint')
  const [row] = await api.database.query<{ folder: string; base: string }>(
    `select current_setting('data_directory') as folder, 'base/' || oid as base
     from pg_database where datname = current_database()`,
  )
  const [tables, walLog] = [join(row!.folder, row!.base), join(row!.folder, 'pg_wal')]
  const holdsVisible = (folder: string): boolean => filesBelow(folder).some((file) => bytesOf(file).includes(visible))
  assert.ok(holdsVisible(tables), 'what may be seen was not found: the search is blind')
  // Again, because a checkpoint removes the log of earlier changes.
  const { projectId } = await newPlace(api)
  await api.call('POST', `/project/${projectId}/environmentVariable`, { key: 'PLAIN', value: visible })
  await until(() => holdsVisible(walLog), { what: 'what may be seen, in the write-ahead log' })
  const forms = hidden.flatMap(formsOf)
  for (const file of [tables, walLog, api.parts.settings.dataDir].flatMap(filesBelow)) {
    const bytes = bytesOf(file)
    assert.ok(!forms.some((form) => bytes.includes(form)), `${file} holds a secret`)
  }
})

test('whatever was sealed through any of these fields is sealed again by a rotation of the keys', async () => {
  const { database, parts } = api
  const before = await database.query<{ id: string }>('select id from data_key')
  const { broken, texts } = await rotateKeys(database, join(parts.settings.dataDir, 'master'))
  assert.equal(broken, 0)
  assert.ok(texts.node! >= 4 && texts.variable! >= 10 && texts.release! >= 1, JSON.stringify(texts))
  const tables = await database.query<{ name: string }>(
    `select table_name as name from information_schema.tables where table_schema = 'public' and table_name <> 'data_key'`,
  )
  for (const { name } of tables)
    for (const { row } of await database.query<{ row: string }>(`select t::text as row from "${name}" t`))
      assert.ok(!before.some(({ id }) => row.includes(id)), `${name} still needs an old key: ${row.slice(0, 300)}`)
})
