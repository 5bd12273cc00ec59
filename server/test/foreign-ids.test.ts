/**
 * Ids in bodies and queries must be the caller's own. Every operation is sent the id of another organization's record
 * in every field that is an id by its schema or its name; each is refused for that field, or listed below with the
 * reason why it cannot be.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { TSchema } from 'typebox'
import { WebSocket } from 'ws'
import type { Operation } from '../src/api/operations/operation.ts'
import { newId } from '../src/lib/ids.ts'
import { operations } from '../src/resources/index.ts'
import type { Values } from './cases/case.ts'
import { type Answer, type Json, startApi, type TestApi } from './support/api.ts'
import { addressOf, caseOf, newScene, valuesFor } from './support/scene.ts'

const operator = await startApi()
const adminToken = await operator.newToken(['Admin'])
// The operator sees every organization: this is a tenant with all rights in its own.
const api: TestApi = { ...operator, call: operator.as(adminToken) }

const replaced = 'one that the service does not have is replaced by a new one'

/** Fields whose ids are not ids of our rows, or have no effect, by `operation in/pointer`, with the reason. */
const reasons: readonly (readonly [field: RegExp, reason: string])[] = [
  [/\/(values_override_)?git_commit_id$|\/commit_id$|\/(startId|gitCommitId)$/, 'a commit of the repository'],
  [/ body\/config\/|Credentials body\/|\/(aws_)?access_key_id$|\/hosted_zone_id$/, 'an id at a cloud provider'],
  [/\/endpoint\/project_id$/, 'an id at a cloud provider'],
  [/\/features\/\*\/id$/, 'a word of the catalogue of features'],
  [/\/(ports|storage)\/\*\/id$/, replaced],
  [/\/blueprint_id$/, 'kept as it was sent; there are no blueprints here that it could lead to'],
  [/ClusterOrphans body\/ids\/\*$/, 'an orphan, which has no row; those that the caller does not see are left out'],
  [/^deployTerraform body\/id$/, 'the service that the path names; the body is not asked'],
  [/^getOrganizationEvents query\//, 'a filter over the events of the own organization'],
  [/^getOrganizationEventTargets query\//, 'a filter over the events of the own organization'],
  [/^listServicesByOrganizationId query\//, 'a filter over the services of the own organization'],
]

const reasonFor = (name: string): string | undefined => reasons.find(([field]) => field.test(name))?.[1]

interface Field {
  operation: Operation
  place: 'body' | 'query'
  /** Names down to it; `*` stands for an item of a list. */
  path: string[]
  schema: Json
}

const nameOf = ({ operation, place, path }: Field): string => `${operation.id} ${place}/${path.join('/')}`

const isId = (path: readonly string[], schema: Json): boolean => {
  const name = path.findLast((part) => part !== '*') ?? ''
  const isText = schema.type === 'string' && schema.enum === undefined
  return isText && (schema.format === 'uuid' || schema['x-ref'] !== undefined || /(^|_)ids?(_|$)|Ids?$/.test(name))
}

const fieldsIn = (operation: Operation, place: Field['place'], schema: Json, path: string[] = []): Field[] => {
  if (schema === undefined || schema === null || schema.readOnly === true) return []
  const inner = [
    ...(schema.anyOf ?? []).map((one: Json) => [path, one]),
    ...Object.entries(schema.properties ?? {}).map(([name, one]) => [[...path, name], one]),
    ...(schema.items === undefined ? [] : [[[...path, '*'], schema.items]]),
  ] as [string[], Json][]
  const own = isId(path, schema) ? [{ operation, place, path, schema }] : []
  return [...own, ...inner.flatMap(([at, one]) => fieldsIn(operation, place, one, at))]
}

const allFields = operations.flatMap((operation) => [
  ...fieldsIn(operation, 'body', operation.body as TSchema),
  ...fieldsIn(operation, 'query', operation.query as TSchema),
])
const fields = [...new Map(allFields.map((field) => [nameOf(field), field])).values()]

/** Another organization with one of everything. */
const newStranger = async (): Promise<TestApi> => {
  const { id } = (await operator.call('POST', '/organization', { name: 'somebody else', plan: 'FREE' })).body
  const call = api.as(await api.newToken(['Admin'], id))
  const clusterId = (await call('GET', `/organization/${id}/cluster`)).body.results[0].id
  return { ...api, organizationId: id, clusterId, call }
}

const stranger = await newStranger()
const scene = newScene(stranger)
const theirs: Values = {}
const params = [
  'applicationId',
  'containerId',
  'databaseId',
  'jobId',
  'helmId',
  'terraformId',
  'gitTokenId',
  'customRoleId',
]
const more = ['containerRegistryId', 'helmRepositoryId', 'labelsGroupId', 'annotationsGroupId', 'secretManagerAccessId']
for (const param of [...params, ...more, 'deploymentRuleId', 'clusterId', 'backupStorageId', 'backupId'])
  await scene.need(theirs, param)
await caseOf(operations.find(({ id }) => id === 'deleteMember')!).before!(theirs, scene, operations[0]!)
const deployed = await scene.post(`/application/${theirs.applicationId}/deploy`, {})
theirs.deploymentId = deployed.deployment_request_id
theirs.executionId = deployed.execution_id
theirs.releaseId = newId()
await api.database.query(
  `insert into release (id, organization_id, service_id, deployment_id, image, workload, sealed_env, hash)
   values ($1, $2, $3, $4, 'image', '{}', 'x', 'x')`,
  [theirs.releaseId, stranger.organizationId, theirs.applicationId, theirs.deploymentId],
)
const provider = await scene.post(`/organization/${stranger.organizationId}/onPremise/credentials`, { name: 'theirs' })
theirs.credentialsId = provider.id

/** By the words of a field's path, the last first: which id of the other organization belongs there. */
const kinds: readonly (readonly [words: RegExp, param: string])[] = [
  [/credentials\/id$/, 'credentialsId'],
  [/secret_manager_access/, 'secretManagerAccessId'],
  [/backup_id$/, 'backupId'],
  [/storage_id$/, 'backupStorageId'],
  [/labels_groups/, 'labelsGroupId'],
  [/annotations_groups/, 'annotationsGroupId'],
  [/git_?token_?id/i, 'gitTokenId'],
  [/registry_id/, 'containerRegistryId'],
  [/helm_repository/, 'helmRepositoryId'],
  [/deployment_rule_ids/, 'deploymentRuleId'],
  [/deploymentRequestId/, 'deploymentId'],
  [/execution_id/, 'executionId'],
  [/release_id/, 'releaseId'],
  [/role_id/, 'customRoleId'],
  [/user_id/, 'userId'],
  [/cluster/i, 'clusterId'],
  [/project/i, 'projectId'],
  [/environment/, 'environmentId'],
  [/container/, 'containerId'],
  [/database/, 'databaseId'],
  [/job/, 'jobId'],
  [/helm/, 'helmId'],
  [/terraform/, 'terraformId'],
  [/application|service|parent_id|ports|storage/, 'applicationId'],
]

const foreignIdFor = (field: Field): string => {
  const words = field.path.join('/')
  const param = kinds.find(([pattern]) => pattern.test(words))?.[1]
  return theirs[param ?? ''] ?? assert.fail(`what of theirs belongs into ${nameOf(field)}?`)
}

/** A copy of `value` with `id` at the path; what is missing on the way is made. */
const withAt = (value: Json, [name, ...rest]: readonly string[], id: string): Json => {
  if (name === undefined) return id
  if (name === '*') return [withAt(value?.[0], rest, id)]
  return { ...value, [name]: withAt(value?.[name], rest, id) }
}

const repository = { url: 'https://github.com/example/shop.git', branch: 'main' }
const infrastructure = { eks_anywhere_parameters: { yaml_file_path: 'a.yaml', git_repository: repository } }
const permissions = ['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION'].map((environment_type) => ({
  environment_type,
  permission: 'VIEWER',
}))

const image = { image_name: 'fake/task', tag: '1.0' }
const values_override = { file: { git: { paths: ['values.yaml'], git_repository: { ...repository, root_path: '/' } } } }

/** The other fields that must be sent so that this one is checked. */
const companions: readonly (readonly [field: RegExp, body: Json])[] = [
  [/body\/ports/, { ports: [{ name: 'web', internal_port: 80, service_name: 'web', external_port: 443 }] }],
  [/body\/storage/, { storage: [{ size: 4, mount_point: '/data' }] }],
  [/CustomRole body\/cluster/, { cluster_permissions: [{ permission: 'VIEWER' }] }],
  [/CustomRole body\/project/, { project_permissions: [{ permissions }] }],
  [/Cluster body\/infrastructure/, { infrastructure_charts_parameters: infrastructure }],
  [/^(edit|create)(Application|ArgoCdApp) body\/git/, { git_repository: repository }],
  [/^editTerraform body\/terr/, { terraform_files_source: { git_repository: { ...repository, root_path: '/' } } }],
  [/Job body\/source\/image/, { source: { image } }],
  [/Job body\/source\/docker/, { source: { docker: { git_repository: repository } } }],
  [/Helm body\/values_override/, { values_override }],
  [/^editHelm body\/source\/git/, { source: { git_repository: repository } }],
]

const besides = (field: Field): Json => companions.find(([pattern]) => pattern.test(nameOf(field)))?.[1] ?? {}

/** True if the response is about this field, and not about another mistake in the request. */
const isAbout = ({ path }: Field, { details, message }: Json): boolean => {
  const pointer = `/${path.join('/').replaceAll('*', '0')}`
  const at: string = details?.[0]?.field ?? `/${String(message).split(':')[0]!.replaceAll('.', '/')}`
  if (/is required|must be null|must list (all|each)/.test(message)) return false
  return [at.endsWith(pointer), pointer.startsWith(at), at.startsWith(pointer)].includes(true)
}

/** The status with which a websocket is refused. */
const handshake = (address: string): Promise<Pick<Answer, 'status' | 'body'>> =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(api.url.replace('http', 'ws') + address, ['v1', `auth.bearer.${adminToken}`])
    socket.once('open', () => resolve({ status: 101, body: {} }))
    socket.once('unexpected-response', (_request, answer) => {
      answer.resume()
      resolve({ status: answer.statusCode!, body: {} })
    })
    socket.once('error', reject)
  })

const send = async (field: Field): Promise<Pick<Answer, 'status' | 'body'>> => {
  const { operation, place, path } = field
  const own = newScene(api)
  const values = await valuesFor(operation, own)
  const plan = caseOf(operation)
  const id = foreignIdFor(field)
  const query = { ...plan.query?.(values), ...(place === 'query' ? { [path[0]!]: id } : {}) }
  const sent = { ...(plan.body?.(values, own) as object | undefined), ...besides(field) }
  const body = place === 'body' ? withAt(sent, path, id) : operation.body === undefined ? undefined : sent
  const address = addressOf(operation.path, values, query)
  const answer =
    operation.produces === 'websocket' ? await handshake(address) : await api.call(operation.method, address, body)
  await plan.after?.(values, own)
  return answer
}

for (const field of fields.filter((one) => reasonFor(nameOf(one)) === undefined))
  test(`${nameOf(field)}: another organization's id is refused`, async () => {
    const { status, body } = await send(field)
    assert.ok(status === 404 || (status === 400 && isAbout(field, body)), `${status} ${JSON.stringify(body)}`)
  })

for (const field of fields.filter((one) => reasonFor(nameOf(one)) === replaced))
  test(`${nameOf(field)}: another organization's id is not kept`, async () => {
    const { status, body } = await send(field)
    assert.ok(status < 300, JSON.stringify(body))
    const [item] = body[field.path[0]!]
    assert.match(item.id, /^[0-9a-f-]{36}$/)
    assert.ok(!Object.values(theirs).includes(item.id))
  })

test('every reason is about an existing field', () => {
  const names = fields.map(nameOf)
  for (const [field] of reasons)
    assert.ok(
      names.some((name) => field.test(name)),
      String(field),
    )
})
