/**
 * Parts 2 and 8 of the specification as a table: every enum, bound, default and required field of requests. A value at
 * the bound is accepted, one past it is refused with a 400 that names the field, and a missing field gets its default.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { describe } from '../src/api/operations/openapi.ts'
import type { Operation } from '../src/api/operations/operation.ts'
import { operations } from '../src/resources/index.ts'
import type { Values } from './cases/case.ts'
import { type Answer, type Json, startApi } from './support/api.ts'
import { addressOf, caseOf, newScene, valuesFor } from './support/scene.ts'

const api = await startApi()
const document = describe(operations) as Json

const operationOf = (id: string): Operation =>
  operations.find((each) => each.id === id) ?? assert.fail(`there is no operation ${id}`)

interface Bound {
  /** Dots select members of objects, `0` the first item of an array. */
  field: string
  /** Accepted values. */
  good?: readonly unknown[]
  /** Refused values; the error names the field. */
  bad?: readonly unknown[]
  /** The value in the response when the field is missing. */
  default?: unknown
  required?: true
}

const text = (length: number): string => 'x'.repeat(length)
const oneOf = (field: string, ...good: string[]): Bound => ({
  field,
  good,
  bad: ['OTHER', good[0]!.toLowerCase(), '', 5, null],
})
const whole = (field: string, low: number, high: number): Bound => ({
  field,
  good: [low, low + 1, high - 1, high],
  bad: [low - 1, high + 1, low + 0.5, `0${low}`, `${high + 1}`],
})
const integer = (field: string, good: number): Bound => ({ field, good: [good], bad: [good + 0.5, `0${good}`, -1] })
const flag = (field: string): Bound => ({ field, good: [true, false], bad: ['True', 1] })
const required = (...fields: string[]): Bound[] => fields.map((field) => ({ field, required: true }))

const modes = ['DEVELOPMENT', 'PREVIEW', 'PRODUCTION', 'STAGING']
const vendors = ['AWS', 'SCW', 'GCP', 'DO', 'AZURE', 'OVH', 'CIVO', 'HETZNER', 'ORACLE', 'IBM', 'ON_PREMISE']
const registries = ['ECR', 'SCALEWAY_CR', 'DOCKER_HUB', 'GITHUB_CR', 'GITHUB_ENTERPRISE_CR', 'GITLAB_CR', 'PUBLIC_ECR']
const moreRegistries = ['DOCR', 'GENERIC_CR', 'GCP_ARTIFACT_REGISTRY', 'AZURE_CR']
const id = '00000000-0000-4000-8000-000000000000'

const variable: Bound[] = [
  ...required('key'),
  { field: 'key', bad: ['', 5] },
  { field: 'description', good: [text(255), '', null], bad: [text(256), 5] },
  { field: 'enable_interpolation_in_file', good: [true, false, null], bad: ['True'] },
]

/** By the operation that takes them. */
const table: Record<string, Bound[]> = {
  createProject: [...required('name'), { field: 'name', good: ['a', text(255)], bad: ['', ' ', 5, null] }],
  createEnvironment: [
    ...required('name'),
    oneOf('mode', ...modes),
    { field: 'cluster_id', good: [api.clusterId], bad: ['x', id] },
  ],
  editEnvironment: [oneOf('mode', ...modes)],
  cloneEnvironment: [
    ...required('name'),
    oneOf('mode', ...modes),
    flag('apply_deployment_rule'),
    { field: 'cluster_id', good: [api.clusterId], bad: ['x', id] },
    { field: 'project_id', bad: ['x', id] },
  ],
  createCluster: [
    ...required('name', 'region', 'cloud_provider'),
    oneOf('cloud_provider', ...vendors),
    oneOf('kubernetes', 'MANAGED', 'SELF_MANAGED', 'PARTIALLY_MANAGED'),
    whole('disk_iops', 3000, 16_000),
    whole('disk_throughput', 125, 1000),
    integer('disk_size', 50),
    integer('min_running_nodes', 1),
    integer('max_running_nodes', 3),
    { field: 'min_running_nodes', default: 1 },
    { field: 'max_running_nodes', default: 1 },
    { field: 'disk_size', default: 40 },
    { field: 'kubernetes', default: 'MANAGED' },
    flag('production'),
    { field: 'description', good: ['a cluster'], bad: [5] },
    { field: 'instance_type', good: ['t3.large'], bad: [5] },
    { field: 'ssh_keys', good: [['ssh-ed25519 AAAA']], bad: ['ssh', [5]] },
    { field: 'features', good: [[{ id: 'STATIC_IP', value: 'x' }]], bad: ['STATIC_IP', [5]] },
    flag('keda.enabled'),
    flag('metrics_parameters.enabled'),
    integer('infrastructure_charts_parameters.nginx_parameters.replica_count', 2),
    { field: 'infrastructure_charts_parameters.cert_manager_parameters.kubernetes_namespace', good: ['ns'], bad: [5] },
    {
      field: 'infrastructure_charts_parameters.metal_lb_parameters.ip_address_pools',
      good: [['10.0.0.0/24']],
      bad: ['10.0.0.0/24', [5]],
    },
    { field: 'labels_groups', bad: ['x', [{ id: 'x' }]] },
  ],
  createDatabase: [
    ...required('name', 'type', 'version', 'mode'),
    oneOf('type', 'MONGODB', 'MYSQL', 'POSTGRESQL', 'REDIS'),
    oneOf('mode', 'CONTAINER', 'MANAGED'),
    oneOf('accessibility', 'PRIVATE', 'PUBLIC'),
    integer('cpu', 500),
    integer('memory', 512),
    integer('storage', 20),
    { field: 'description', good: ['a database'], bad: [5] },
    { field: 'annotations_groups', bad: ['x', [{ id: 'x' }]] },
    { field: 'labels_groups', bad: ['x', [{ id: 'x' }]] },
  ],
  createApplication: [
    ...required('name', 'git_repository', 'git_repository.url'),
    oneOf('build_mode', 'DOCKER'),
    integer('cpu', 500),
    integer('memory', 512),
    integer('min_running_instances', 1),
    // -1 means as many as there is room for.
    { field: 'max_running_instances', good: [1], bad: [1.5, '01', -2] },
    whole('ports.0.internal_port', 1, 65_535),
    { field: 'ports.0.protocol', good: ['HTTP'], bad: ['OTHER', 5, null] },
    flag('ports.0.publicly_accessible'),
  ],
  createContainerRegistry: [...required('name', 'kind'), oneOf('kind', ...registries, ...moreRegistries)],
  createGitToken: [
    ...required('name', 'type'),
    oneOf('type', 'BITBUCKET', 'GITHUB', 'GITLAB'),
    { field: 'expired_at', bad: ['soon', 5] },
  ],
  createOrganizationWebhook: [
    ...required('target_url', 'events'),
    {
      field: 'events',
      good: ['STARTED', 'SUCCEEDED', 'FAILED'].map((word) => [`DEPLOYMENT_${word}`]),
      bad: [['OTHER'], 'DEPLOYMENT_STARTED', [5]],
    },
    { field: 'target_url', bad: ['not an address', 5] },
    { field: 'enabled', good: [true, false], bad: ['True'], default: true },
  ],
  createOrganizationApiToken: [
    ...required('name'),
    { field: 'scopes', good: ['Admin', 'Read', 'Deploy', 'Write'].map((scope) => [scope]), bad: [['Owner'], 'Read'] },
  ],
  createJobEnvironmentVariableAlias: variable,
  editProjectSecret: variable,
}

const queries: Record<string, Bound[]> = {
  listContainerDeploymentHistoryV2: [{ ...whole('pageSize', 1, 100), default: 20, bad: [0, 101, 'x', '1.5'] }],
  listHelmDeploymentHistory: [{ ...whole('pageSize', 1, 100), default: 20, bad: [0, 101, 'x'] }],
  redeployJob: [{ field: 'forceEvent', good: ['START', 'STOP', 'DELETE', 'CRON'], bad: ['OTHER', 'start'] }],
  listApplicationLog: [{ ...whole('tail', 0, 1000), bad: [-1, 'x'] }],
}

/** Places with numbers in them are arrays. */
const put = (into: Json, [name, ...below]: string[], value: unknown): Json => {
  const inner = below.length === 0 ? value : put(into?.[name!] ?? (/^\d+$/.test(below[0]!) ? [] : {}), below, value)
  if (Array.isArray(into)) return into.with(Number(name), inner)
  if (/^\d+$/.test(name!)) return [inner]
  return { ...into, [name!]: inner }
}

const without = (from: Json, [name, ...below]: string[]): Json => {
  if (below.length > 0) return { ...from, [name!]: without(from?.[name!] ?? {}, below) }
  const { [name!]: _, ...rest } = from
  return rest
}

const read = (from: Json, path: string[]): unknown => path.reduce((inner, name) => inner?.[name], from)

const pointer = (field: string): string => `/${field.replaceAll('.', '/')}`

let made = 0

interface Subject {
  operation: Operation
  values: Values
  send(body: Json): Promise<Answer>
  /** A valid body, with a unique name. */
  body(): Json
}

const subjectOf = async (operation: Operation): Promise<Subject> => {
  const scene = newScene(api)
  const values = await valuesFor(operation, scene)
  const plain = (caseOf(operation).body?.(values, scene) ?? {}) as Json
  const query = caseOf(operation).query?.(values) ?? {}
  return {
    operation,
    values,
    send: (body) => api.call(operation.method, addressOf(operation.path, values, query), body),
    body: () => {
      made += 1
      const named = 'name' in plain ? { ...plain, name: `bound ${made}` } : plain
      return 'key' in plain ? { ...named, key: `BOUND_${made}` } : named
    },
  }
}

/** Fields that are refused for their form, and not for the limits of this machine. */
const refused = ({ status, body }: Answer): string[] =>
  status === 400
    ? (body.details ?? [])
        .filter(({ message }: { message: string }) =>
          /^(must|is required|does not have the required format|is not valid|not found)/.test(message),
        )
        .map(({ field }: { field: string }) => field)
    : []

const checkGood = async (subject: Subject, { field, good = [] }: Bound): Promise<void> => {
  for (const value of good) {
    const answer = await subject.send(put(subject.body(), field.split('.'), value))
    const what = `${subject.operation.id} ${field} ${JSON.stringify(value)}: ${JSON.stringify(answer.body).slice(0, 300)}`
    assert.ok(answer.status < 500, what)
    assert.ok(!refused(answer).some((each) => each.startsWith(pointer(field))), what)
    const isPlain = typeof value !== 'object' && answer.status < 300 && field.split('.').length === 1
    if (isPlain && field in answer.body) assert.equal(answer.body[field], value, what)
  }
}

const checkBad = async (subject: Subject, { field, bad = [] }: Bound): Promise<void> => {
  for (const value of bad) {
    const answer = await subject.send(put(subject.body(), field.split('.'), value))
    const what = `${subject.operation.id} ${field} ${JSON.stringify(value)}: ${answer.status} ${JSON.stringify(answer.body).slice(0, 300)}`
    assert.equal(answer.status, 400, what)
    const fields = (answer.body.details ?? []).map((each: { field: string }) => each.field)
    assert.ok(
      fields.some((each: string) => each.startsWith(pointer(field)) || pointer(field).startsWith(`${each}/`)),
      what,
    )
  }
}

const checkRequired = async (subject: Subject, { field }: Bound): Promise<void> => {
  const answer = await subject.send(without(subject.body(), field.split('.')))
  assert.equal(answer.status, 400, `${subject.operation.id} without ${field}: ${JSON.stringify(answer.body)}`)
  assert.ok(refused(answer).includes(pointer(field)), `${subject.operation.id}: ${JSON.stringify(answer.body)}`)
}

const publishedSchema = (schema: Json): Json =>
  schema.$ref === undefined ? schema : document.components.schemas[schema.$ref.split('/').at(-1)]

const checkDefault = async (subject: Subject, bound: Bound): Promise<void> => {
  const { operation, send, body } = subject
  const path = bound.field.split('.')
  const { requestBody } = document.paths[operation.path][operation.method.toLowerCase()]
  const published = publishedSchema(requestBody.content['application/json'].schema)
  assert.equal(published.properties[path[0]!].default, bound.default, `${operation.id} ${bound.field}`)
  const answer = await send(without(body(), path))
  if (answer.status < 300) assert.equal(read(answer.body, path), bound.default)
}

for (const [operationId, bounds] of Object.entries(table))
  test(`${operationId} accepts what the specification allows, refuses everything else, and fills in defaults`, async () => {
    const subject = await subjectOf(operationOf(operationId))
    for (const bound of bounds) {
      await checkGood(subject, bound)
      await checkBad(subject, bound)
      if (bound.required === true) await checkRequired(subject, bound)
      if (bound.default !== undefined) await checkDefault(subject, bound)
    }
  })

for (const [operationId, bounds] of Object.entries(queries))
  test(`${operationId} takes the arguments of the specification and refuses others`, async () => {
    const operation = operationOf(operationId)
    const values = await valuesFor(operation, newScene(api))
    const ask = (query: Record<string, string>) => api.call(operation.method, addressOf(operation.path, values, query))
    for (const { field, good = [], bad = [], default: usual } of bounds) {
      for (const value of good) {
        const answer = await ask({ [field]: String(value) })
        assert.deepEqual(refused(answer), [], `${operationId} ${field}=${value}: ${JSON.stringify(answer.body)}`)
        if (field === 'pageSize') assert.equal(answer.body.page_size, value)
      }
      for (const value of bad) assert.equal((await ask({ [field]: String(value) })).status, 400, `${field}=${value}`)
      if (usual !== undefined) assert.equal((await ask({})).body.page_size, usual)
    }
  })

const isOfVariables = (path: string): boolean => /\/(environmentVariable|secret|variable)(\/|$)/.test(path)

test('a description of a variable, an alias or a secret has at most 255 characters, at every scope', async () => {
  const described = operations.filter(
    ({ path, body }) => isOfVariables(path) && (body?.properties as Json)?.description !== undefined,
  )
  assert.ok(described.length >= 6)
  for (const operation of described.filter((each) => caseOf(each).refused === undefined)) {
    const subject = await subjectOf(operation)
    const bound = { field: 'description', good: [text(255)], bad: [text(256)] }
    await checkBad(subject, bound)
    await checkGood(subject, bound)
  }
})

/** Creates whose names need not differ, with the reason. */
const sameNames: Record<string, string> = { createOrganization: 'only the operator makes organizations' }

const creates = operations.filter(({ id: operationId, method, path, status, body, answer, bodyOptional }) => {
  const named = (body as Json)?.properties?.name !== undefined && (answer as Json)?.properties?.name !== undefined
  return (
    method === 'POST' &&
    status < 202 &&
    named &&
    bodyOptional !== true &&
    !isOfVariables(path) &&
    operationId in sameNames === false
  )
})

test('names are unique in their parent whatever their case, and keep the case they were given', async () => {
  assert.ok(creates.length >= 6)
  for (const operation of creates.filter((each) => caseOf(each).refused === undefined)) {
    const { send, body } = await subjectOf(operation)
    const [first, again] = [body(), body()]
    const name = `Same-${made}`
    const answer = await send({ ...first, name })
    assert.equal(answer.status, operation.status, `${operation.id}: ${JSON.stringify(answer.body)}`)
    assert.equal(answer.body.name, name, operation.id)
    const clash = await send({ ...again, name: name.toUpperCase() })
    assert.equal(clash.status, 409, `${operation.id}: ${JSON.stringify(clash.body).slice(0, 300)}`)
  }
})

test('every record has the fields of the specification', async () => {
  const expected: Record<string, string[]> = {
    createEnvironment: ['id', 'created_at', 'name', 'organization', 'project', 'cloud_provider', 'mode', 'cluster_id'],
    createDatabase: ['id', 'created_at', 'name', 'type', 'mode', 'version', 'icon_uri', 'environment', 'accessibility'],
    createProject: ['id', 'name', 'created_at'],
    createGitToken: ['id', 'created_at', 'name', 'type', 'associated_services_count', 'git_api_url'],
    createContainerRegistry: ['id', 'created_at', 'name', 'kind', 'associated_services_count'],
    createProjectEnvironmentVariable: ['id', 'created_at', 'key', 'scope', 'variable_type', 'value'],
    createProjectSecret: ['id', 'created_at', 'key', 'scope', 'variable_type'],
  }
  for (const [operationId, fields] of Object.entries(expected)) {
    const { send, body } = await subjectOf(operationOf(operationId))
    const answer = await send(body())
    assert.ok(answer.status < 300, `${operationId}: ${JSON.stringify(answer.body)}`)
    for (const field of fields) assert.ok(field in answer.body, `${operationId}: ${field}`)
    assert.equal('value' in answer.body, fields.includes('value'), operationId)
  }
})
