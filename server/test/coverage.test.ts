/** What holds for every operation, whatever it does: who may call it, on whose things, and what it answers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Compile } from 'typebox/schema'
import { describe } from '../src/api/openapi.ts'
import type { Operation, Scope } from '../src/api/operation.ts'
import { newId } from '../src/lib/ids.ts'
import { operations } from '../src/resources/index.ts'
import { type Answer, applicationBody, type Json, newApplication, newPlace, startApi } from './api.ts'
import { until } from './until.ts'

const api = await startApi()
const other = await api.newOrganization()
const scopes: Scope[] = ['Read', 'Deploy', 'Write']
const tokens = new Map<Scope, string>()
for (const scope of scopes) tokens.set(scope, await api.newToken([scope]))

type Values = Record<string, string>

const post = async (path: string, body: object): Promise<Json> => {
  const answer = await api.call('POST', path, body)
  assert.ok(answer.status < 300, `${path}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

const finalState = /^(READY|DEPLOYED|RESTARTED|STOPPED|CANCELED|.*_ERROR)$/

const settled = (environmentId: string) =>
  until(async () => finalState.test((await api.call('GET', `/environment/${environmentId}/status`)).body.state), {
    timeoutMs: 10_000,
    what: 'the environment to come to rest',
  })

let count = 0

/** One of everything, fresh for each operation, so that none sees what another did. */
const newValues = async (): Promise<Values> => {
  count += 1
  const { projectId, environmentId } = await newPlace(api)
  const application = await newApplication(api, environmentId)
  const organization = `/organization/${api.organizationId}`
  return {
    organizationId: api.organizationId,
    clusterId: api.clusterId,
    projectId,
    environmentId,
    applicationId: application.id,
    serviceId: application.id,
    service: application.id,
    gitTokenId: (await post(`${organization}/gitToken`, { name: `git ${count}`, type: 'GITHUB', token: 'x' })).id,
    apiTokenId: (await post(`${organization}/apiToken`, { name: `api ${count}` })).id,
  }
}

const deployed = async (values: Values): Promise<void> => {
  const { deployment_request_id } = await post(`/application/${values.applicationId}/deploy`, {})
  values.deploymentRequestId = deployment_request_id
  await settled(values.environmentId!)
}

/** Under way until it is canceled. */
const deploying = async (values: Values): Promise<void> => {
  api.source.image = 'fake/never-ready'
  const { deployment_request_id } = await post(`/application/${values.applicationId}/deploy`, {})
  values.deploymentRequestId = deployment_request_id
}

const parentOf = (path: string): string => path.split('/')[1]!

const withVariable =
  (family: 'environmentVariable' | 'secret') =>
  async (values: Values, { path, id }: Operation): Promise<void> => {
    // An override stands at a narrower place than what it overrides.
    const owner = /Override$/.test(id) && parentOf(path) !== 'project' ? 'project' : parentOf(path)
    const made = await post(`/${owner}/${values[`${owner}Id`]}/${family}`, { key: `KEY_${count}`, value: 'v' })
    values[`${family}Id`] = made.id
  }

const withGenericVariable = async (values: Values): Promise<void> => {
  const body = { key: `KEY_${count}`, value: 'v', is_secret: false }
  const place = { variable_scope: 'PROJECT', variable_parent_id: values.projectId }
  values.variableId = (await post('/variable', { ...body, ...place })).id
}

const webhookBody = { target_url: 'http://127.0.0.1:9/hook', events: ['DEPLOYMENT_STARTED'] }

const withWebhook = async (values: Values): Promise<void> => {
  values.webhookId = (await post(`/organization/${api.organizationId}/webhook`, webhookBody)).id
}

const withDelivery = async (values: Values): Promise<void> => {
  await withWebhook(values)
  const [outbox, delivery] = [newId(), newId()]
  await api.database.query(
    `insert into outbox (id, organization_id, webhook_id, ordering_key, event_type, body)
     values ($1, $2, $3, $3, 'DEPLOYMENT_STARTED', '{}')`,
    [outbox, api.organizationId, values.webhookId],
  )
  await api.database.query(
    `insert into delivery (id, outbox_id, webhook_id, attempt, event_type, target_url, request, response_status, duration_ms)
     values ($1, $2, $3, 1, 'DEPLOYMENT_STARTED', 'http://127.0.0.1:9/hook', '{}', 200, 1)`,
    [delivery, outbox, values.webhookId],
  )
  values.webhookEventId = delivery
}

interface Case {
  before?(values: Values, operation: Operation): Promise<void>
  body?(values: Values): unknown
  query?(values: Values): Record<string, string>
  /** The status that this set-up gets although it is allowed; its body is an error. */
  refused?: number
}

const alias: Case['body'] = () => ({ key: `ALIAS_${count}` })
const vars = [{ name: 'IMPORTED', value: '1', scope: 'APPLICATION', is_secret: false }]

const cases: Record<string, Case> = {
  editOrganization: { body: () => ({ description: 'ours' }) },
  createOrganizationApiToken: { body: () => ({ name: `made ${count}`, scopes: ['Read'] }) },
  createCluster: { body: () => ({ name: 'a', region: 'eu', cloud_provider: 'AWS' }), refused: 400 },
  editCluster: { body: () => ({ description: 'this machine' }) },
  deleteCluster: { refused: 409 },
  createGitToken: { body: () => ({ name: `made ${count}`, type: 'GITLAB', token: 'x' }) },
  editGitToken: { body: () => ({ description: 'changed' }) },
  createProject: { body: () => ({ name: `made ${count}` }) },
  editProject: { body: () => ({ description: 'changed' }) },
  createEnvironment: { body: () => ({ name: `made ${count}`, mode: 'STAGING' }) },
  editEnvironment: { body: () => ({ mode: 'PRODUCTION' }) },
  redeployEnvironment: { before: deployed },
  cancelEnvironmentDeployment: { before: deploying },
  cancelDeploymentRequest: { before: deploying },
  getDeploymentStatusByDeploymentRequestId: {
    before: deployed,
    query: ({ deploymentRequestId }) => ({ deploymentRequestId: deploymentRequestId! }),
  },
  deployAllServices: { body: ({ applicationId }) => ({ applications: [{ application_id: applicationId }] }) },
  rebootServices: { before: deployed, body: ({ applicationId }) => ({ application_ids: [applicationId] }) },
  stopSelectedServices: { body: ({ applicationId }) => ({ application_ids: [applicationId] }) },
  deleteSelectedServices: { body: ({ applicationId }) => ({ application_ids: [applicationId] }) },
  createApplication: { body: () => applicationBody(`made ${count}`) },
  editApplication: { body: () => ({ cpu: 600 }) },
  redeployApplication: { before: deployed },
  rebootApplication: { before: deployed },
  getEnvironmentStatuses: { before: deployed },
  getEnvironmentStatusesWithStages: { before: deployed },
  listEnvironmentDeploymentHistory: { before: deployed },
  listEnvironmentDeploymentHistoryV2: { before: deployed },
  listApplicationDeploymentHistory: { before: deployed },
  listApplicationDeploymentHistoryV2: { before: deployed },
  listDeploymentRequestByServiceId: { before: deploying },
  listDeploymentRequestByEnvironmentId: { before: deploying },
  listEnvironmentLogs: { before: deployed },
  listEnvironmentLog: { before: deployed },
  listApplicationLog: { before: deployed },
  getApplicationStatus: { before: deployed },
  getApplication: { before: deployed },
  importEnvironmentVariable: { body: () => ({ vars }) },
  importEnvironmentVariables: {
    body: () => ({ vars }),
    query: ({ applicationId }) => ({ service_id: applicationId!, service_type: 'APPLICATION' }),
  },
  listVariables: { query: ({ projectId }) => ({ parent_id: projectId!, scope: 'PROJECT' }) },
  createVariable: {
    body: ({ projectId }) => ({
      key: 'MADE',
      value: '1',
      is_secret: false,
      variable_scope: 'PROJECT',
      variable_parent_id: projectId,
    }),
  },
  editVariable: { before: withGenericVariable, body: () => ({ key: `KEY_${count}`, value: 'w' }) },
  deleteVariable: { before: withGenericVariable },
  createVariableAlias: {
    before: withGenericVariable,
    body: ({ applicationId }) => ({ key: 'ALIAS', alias_scope: 'APPLICATION', alias_parent_id: applicationId }),
  },
  createVariableOverride: {
    before: withGenericVariable,
    body: ({ applicationId }) => ({ value: 'w', override_scope: 'APPLICATION', override_parent_id: applicationId }),
  },
  getOrganizationWebhook: { before: withWebhook },
  editOrganizationWebhook: { before: withWebhook, body: () => ({ enabled: false }) },
  deleteOrganizationWebhook: { before: withWebhook },
  createOrganizationWebhook: { body: () => webhookBody },
  listWebhookEvent: { before: withDelivery },
  resendWebhookEvent: { before: withDelivery, refused: 409 },
  handleServiceLogs: { query: ({ applicationId }) => ({ service: applicationId! }), refused: 400 },
}

/** The families of variables repeat by owner: their cases follow from the path. */
const familyCase = ({ method, path, id }: Operation): Case | undefined => {
  const [, family, item, more] = /^\/\w+\/\{\w+\}\/(environmentVariable|secret)(\/\{\w+\})?(\/\w+)?$/.exec(path) ?? []
  if (family === undefined) return undefined
  if (item === undefined) return method === 'GET' ? {} : { body: () => ({ key: `MADE_${count}`, value: '1' }) }
  const before = withVariable(family as 'secret')
  if (more === '/alias') return { before, body: alias }
  // Nothing is narrower than what a project sees of its own.
  if (more === '/override')
    return { before, body: () => ({ value: 'w' }), ...(id.includes('Project') ? { refused: 400 } : {}) }
  return method === 'PUT' ? { before, body: () => ({ key: `KEY_${count}`, value: 'w' }) } : { before }
}

/** A read or action without a body needs no case; whatever takes one does. */
const caseOf = (operation: Operation): Case => {
  const found = cases[operation.id] ?? familyCase(operation)
  if (found !== undefined) return found
  assert.ok(operation.body === undefined || operation.bodyOptional, `${operation.id} has no case in coverage.test.ts`)
  return {}
}

/** Design, trust 5.4, told by paths and not by what operations say of themselves. */
const admitted = ({ method, path }: Operation): Scope[] => {
  if (path.includes('/apiToken') || (method === 'PUT' && path === '/organization/{organizationId}')) return []
  if (method === 'DELETE' || path.endsWith('/service/delete')) return []
  if (method === 'GET')
    return /environmentVariable|\/secret|\/variable|gitToken|\/webhook/.test(path) ? ['Read', 'Write'] : scopes
  const isAction = /\/(deploy|redeploy|stop|restart-service|cancelDeployment)$/.test(path)
  return isAction ? ['Deploy'] : ['Write']
}

const address = (path: string, values: Values, query: Record<string, string>): string => {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    assert.ok(values[name] !== undefined, `no value for {${name}}`)
    return values[name]!
  })
  const search = new URLSearchParams(query).toString()
  return search === '' ? filled : `${filled}?${search}`
}

const isErrorBody = (answer: Answer, status: number): void => {
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8')
  for (const field of ['error', 'message', 'detail', 'code', 'request_id'])
    assert.equal(typeof answer.body[field], 'string', field)
  assert.equal(answer.body.status, status)
  assert.ok(status !== 400 || !/exist/i.test(answer.body.message), answer.body.message)
}

const description = describe(operations) as Json

const resolved = (schema: Json): Json => {
  if (Array.isArray(schema)) return schema.map(resolved)
  if (schema === undefined || schema === null || typeof schema !== 'object') return schema
  if (typeof schema.$ref === 'string') return resolved(description.components.schemas[schema.$ref.split('/').at(-1)])
  return Object.fromEntries(Object.entries(schema).map(([name, inner]) => [name, resolved(inner)]))
}

const publishedSchema = ({ path, method, status }: Operation): Json =>
  resolved(description.paths[path][method.toLowerCase()].responses[status].content?.['application/json']?.schema)

const checkSuccess = (operation: Operation, answer: Answer): void => {
  assert.equal(answer.status, operation.status, `${operation.id}: ${JSON.stringify(answer.body)}`)
  const schema = publishedSchema(operation)
  if (schema === undefined) {
    assert.equal(answer.body, '')
    return
  }
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8')
  const validator = Compile(schema)
  const [, errors] = validator.Errors(answer.body) as unknown as [boolean, Json[]]
  assert.ok(
    validator.Check(answer.body),
    `${operation.id}: ${JSON.stringify(errors)} in ${JSON.stringify(answer.body)}`,
  )
}

const wrongIds = (operation: Operation, values: Values): [string, string][] => {
  const { kind, param } = operation.owner
  if (param === null) return []
  // An id of something else of ours: the environment's, or the project's where an environment is asked for.
  const sibling = kind === 'environment' ? values.projectId! : values.environmentId!
  return [
    ['an unknown id', newId()],
    ['an id of another kind', sibling],
    ['a malformed id', 'not-an-id'],
    ['hostile text', "' or 1=1 --%00/../.."],
  ]
}

const streams = new Set(['text/event-stream'])

for (const operation of operations) {
  const plan = caseOf(operation)
  test(`${operation.id}: 401 without a token, 403 without its scope, 404 on what is not there or not ours, then its answer`, async () => {
    const values = await newValues()
    await plan.before?.(values, operation)
    const query = plan.query?.(values) ?? {}
    const body = plan.body?.(values)
    const path = address(operation.path, values, query)
    const { method, owner } = operation

    isErrorBody(await api.as(null)(method, path, body), 401)
    isErrorBody(await api.as(`slip_${'0'.repeat(49)}`)(method, path, body), 401)

    const allowed = admitted(operation)
    for (const scope of scopes)
      if (!allowed.includes(scope)) isErrorBody(await api.as(tokens.get(scope)!)(method, path, body), 403)

    if (owner.param !== null) isErrorBody(await api.as(other.token)(method, path, body), 404)
    for (const [what, id] of wrongIds(operation, values)) {
      const param = owner.param!
      const wrong = address(
        operation.path,
        { ...values, [param]: encodeURIComponent(id) },
        owner.inQuery === true ? { ...query, [param]: id } : query,
      )
      const answer = await api.call(method, wrong, body)
      assert.equal(answer.status, 404, `${operation.id} with ${what}: ${JSON.stringify(answer.body)}`)
    }

    if (streams.has(operation.produces ?? '')) return
    const caller = allowed[0] === undefined ? api.call : api.as(tokens.get(allowed[0])!)
    const answer = await caller(method, path, body)
    if (plan.refused !== undefined) isErrorBody(answer, plan.refused)
    else checkSuccess(operation, answer)
    if (plan.before === deploying) {
      api.source.image = 'fake/serve'
      await api.call('POST', `/environment/${values.environmentId}/cancelDeployment`)
      await settled(values.environmentId!)
    }
  })
}

test('every case belongs to an operation', () => {
  const known = new Set(operations.map(({ id }) => id))
  assert.deepEqual(
    Object.keys(cases).filter((id) => !known.has(id)),
    [],
  )
})
