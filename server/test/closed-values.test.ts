/**
 * Each value of a closed list has the effect of its field: these tests iterate over the values of the schemas, so that
 * a new value is in its test from the start (cases/effects.ts).
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { overlapIn } from '../src/facets/settings/settings.ts'
import { routesOf } from '../src/resources/service/hosts.ts'
import { completePorts, workloadPorts } from '../src/resources/service/parts.ts'
import { terraformBody } from './cases/terraform.ts'
import { applicationBody, type Json, newPlace, startApi } from './support/api.ts'
import { closedValues } from './support/closed-values.ts'
import { newScene } from './support/scene.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const base = `/organization/${organizationId}`

const post = async (path: string, body: object, status = 201): Promise<Json> => {
  const answer = await call('POST', path, body)
  assert.equal(answer.status, status, `${path} ${JSON.stringify(body)}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

test('each cloud provider needs its own credentials, and a cluster refuses those of another', async () => {
  const vendors = closedValues('createCluster', '/cloud_provider')
  assert.deepEqual(closedValues('createCluster', '/cloud_provider_credentials/cloud_provider'), vendors)
  const aws = await post(`${base}/aws/credentials`, { name: 'keys', access_key_id: 'AKIA', secret_access_key: 'x' })
  const credentials = { id: aws.id, name: aws.name }
  for (const vendor of vendors) {
    const body = { name: vendor, region: 'r', cloud_provider: vendor, kubernetes: 'SELF_MANAGED', features: [] }
    const made = await post(`${base}/cluster`, body, vendor === 'ON_PREMISE' ? 201 : 400)
    if (vendor === 'ON_PREMISE') assert.equal(made.cloud_provider, vendor)
    else assert.match(made.message, /credentials of its provider/)
    const info = { cloud_provider: vendor, credentials, region: 'r' }
    const isOwn = vendor === 'AWS'
    const named = await post(
      `${base}/cluster`,
      { ...body, name: `${vendor} on AWS`, cloud_provider: 'AWS', cloud_provider_credentials: info },
      isOwn ? 201 : 400,
    )
    if (isOwn) assert.deepEqual(named.cloud_provider_credentials, info)
    else assert.equal(named.details[0].field, '/cloud_provider_credentials/cloud_provider')
  }
})

test('each kind of Kubernetes is stored; a managed one needs credentials', async () => {
  for (const kubernetes of closedValues('createCluster', '/kubernetes')) {
    const body = { name: kubernetes, region: 'r', cloud_provider: 'ON_PREMISE', kubernetes, features: [] }
    const made = await post(`${base}/cluster`, body, kubernetes === 'MANAGED' ? 400 : 201)
    if (kubernetes !== 'MANAGED') assert.equal(made.kubernetes, kubernetes)
  }
})

test('each mode is set by a rule or by name, and a role with access to one mode sees only its environments', async () => {
  const { projectId } = await newPlace(api)
  const modes = closedValues('createEnvironment', '/mode')
  assert.deepEqual(closedValues('createDeploymentRule', '/mode'), modes)
  assert.deepEqual(
    closedValues('createOrganizationCustomRole', '/project_permissions/*/permissions/*/environment_type'),
    modes,
  )
  const made = new Map<string, string[]>(modes.map((mode) => [mode, []]))
  const rule = {
    ...{ timezone: 'UTC', start_time: '1970-01-01T08:00:00Z', stop_time: '1970-01-01T19:00:00Z', weekdays: ['MONDAY'] },
    ...{ cluster_id: api.clusterId, auto_stop: false },
  }
  for (const mode of modes) {
    await post(`/project/${projectId}/deploymentRule`, { ...rule, name: mode, mode, wildcard: `${mode}-*` })
    for (const body of [{ name: `${mode}-ruled` }, { name: `named ${mode}`, mode }]) {
      const environment = await post(`/project/${projectId}/environment`, body)
      assert.equal(environment.mode, mode)
      made.get(mode)!.push(environment.id)
    }
  }
  for (const mode of modes) {
    const role = await post(`${base}/customRole`, { name: `sees ${mode}` })
    const { cluster_permissions, project_permissions } = (await call('GET', `${base}/customRole/${role.id}`)).body
    const permissions = modes.map((environment_type) => ({
      environment_type,
      permission: environment_type === mode ? 'VIEWER' : 'NO_ACCESS',
    }))
    const body = {
      name: role.name,
      cluster_permissions,
      project_permissions: project_permissions.map((each: Json) =>
        each.project_id === projectId ? { ...each, permissions } : each,
      ),
    }
    assert.equal((await call('PUT', `${base}/customRole/${role.id}`, body)).status, 200)
    const { token } = await post(`${base}/apiToken`, { name: `sees ${mode}`, role_id: role.id })
    const { results } = (await api.as(token)('GET', `/project/${projectId}/environment`)).body
    const seen = results.filter(({ name }: Json) => modes.some((each) => name.includes(each)))
    assert.deepEqual(seen.map(({ id }: Json) => id).sort(), made.get(mode)!.toSorted(), mode)
  }
})

test('each scope accepts variables, aliases, overrides and imports of its place, and lists them', async () => {
  const scene = newScene(api)
  const { projectId, environmentId } = await newPlace(api)
  const values: Record<string, string> = { projectId, environmentId }
  const placeOf = (scope: string): Promise<string> => scene.need(values, `${scope.toLowerCase()}Id`)
  const scopes = closedValues('createVariable', '/variable_scope')
  const wide = await post('/variable', {
    ...{ key: 'WIDE', value: 'w', is_secret: false },
    ...{ variable_scope: 'PROJECT', variable_parent_id: await placeOf('PROJECT') },
  })
  for (const [id, field] of [
    ['createVariableAlias', '/alias_scope'],
    ['createVariableOverride', '/override_scope'],
    ['importEnvironmentVariables', '/vars/*/scope'],
    ['importEnvironmentVariables', '/dotenv/scope'],
  ] as const)
    assert.deepEqual(closedValues(id, field), scopes, `${id} ${field}`)
  assert.deepEqual(closedValues('listVariables', '?scope'), [...scopes, 'BUILT_IN'])
  const types = closedValues('importEnvironmentVariables', '?service_type')
  for (const scope of scopes) {
    const parent = await placeOf(scope)
    const key = `OF_${scope}`
    const at = { variable_scope: scope, variable_parent_id: parent }
    const made = await post('/variable', { key, value: '1', is_secret: false, ...at })
    assert.equal(made.scope, scope)
    const alias = { key: `ALIAS_${scope}`, alias_scope: scope, alias_parent_id: parent }
    assert.equal((await post(`/variable/${wide.id}/alias`, alias)).scope, scope)
    const override = { value: scope, override_scope: scope, override_parent_id: parent }
    const own = await post(`/variable/${wide.id}/override`, override, scope === 'PROJECT' ? 400 : 201)
    if (scope !== 'PROJECT') assert.deepEqual([own.scope, own.value], [scope, scope])
    const type = types.includes(scope) ? scope : 'APPLICATION'
    const path = `/variable/import?service_id=${await placeOf(type)}&service_type=${type}`
    await post(path, { overwrite: true, vars: [{ name: `IN_${scope}`, value: '1', scope, is_secret: false }] })
    await post(path, { overwrite: true, dotenv: { text: `ENV_${scope}=1`, scope } })
    const { results } = (await call('GET', `/variable?parent_id=${parent}&scope=${scope}`)).body
    const found = results.filter((row: Json) => row.scope === scope).map((row: Json) => row.key)
    for (const name of [key, `ALIAS_${scope}`, `IN_${scope}`, `ENV_${scope}`]) assert.ok(found.includes(name), name)
  }
})

test('each filter word of the audit log finds the matching events, and only those', async () => {
  const columns = {
    eventType: 'event_type',
    targetType: 'target_type',
    origin: 'origin',
    subTargetType: 'sub_target_type',
  }
  const [row] = await api.database.query<{ id: string }>('select id from event where organization_id = $1 limit 1', [
    organizationId,
  ])
  for (const [word, column] of Object.entries(columns)) {
    const listed = closedValues('getOrganizationEvents', `?${word}`)
    if (word !== 'subTargetType') assert.deepEqual(closedValues('getOrganizationEventTargets', `?${word}`), listed)
    for (const value of listed) {
      await api.database.query(`update event set ${column} = $2 where id = $1`, [row!.id, value])
      const { body, status } = await call('GET', `${base}/events?pageSize=100&${word}=${value}`)
      assert.equal(status, 200, value)
      assert.ok(
        body.events.some(({ id }: Json) => id === row!.id),
        `${word}=${value}`,
      )
      assert.ok(
        body.events.every((one: Json) => one[column] === value),
        `${word}=${value}`,
      )
    }
  }
})

test('each level of targets lists those of its kind', async () => {
  const { projectId, environmentId } = await newPlace(api)
  await post(`/environment/${environmentId}/application`, applicationBody('seen'))
  const ids: Record<string, string> = { PROJECT: projectId, ENVIRONMENT: environmentId }
  const levels = closedValues('getOrganizationEventTargets', '?targetLevelToFetch')
  for (const level of levels) {
    const path = `${base}/targets?targetLevelToFetch=${level}&projectId=${projectId}`
    const found = (await call('GET', path)).body.targets.map(({ id }: Json) => id)
    for (const other of levels) assert.equal(found.includes(ids[other]), other === level, `${level} ${other}`)
  }
})

test('each architecture is that of the machine or refused, wherever one can be requested', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const { architecture } = (await api.runtime.capacity())!
  const values = closedValues('createApplication', '/cpu_architecture')
  assert.ok(values.includes(architecture) && values.length > 1)
  for (const [id, kind] of [
    ['createApplication', 'application'],
    ['createContainer', 'container'],
    ['createJob', 'job'],
  ] as const) {
    assert.deepEqual(closedValues(id, '/cpu_architecture'), values)
    const scene = newScene(api)
    const made = await scene.need({ projectId, environmentId }, `${kind}Id`)
    for (const value of values) {
      const answer = await call('PUT', `/${kind}/${made}`, { cpu_architecture: value })
      const field = value === architecture ? undefined : '/cpu_architecture'
      assert.deepEqual([answer.status, answer.body.details?.[0]?.field], [field ? 400 : 200, field], `${kind} ${value}`)
    }
  }
  await post(`/environment/${environmentId}/application`, applicationBody('plain', { cpu_architecture: architecture }))
})

test('each protocol of a port is either routed by name or published as a port', () => {
  const protocols = closedValues('createApplication', '/ports/*/protocol')
  assert.deepEqual(closedValues('createContainer', '/ports/*/protocol'), protocols)
  for (const protocol of protocols) {
    const ports = completePorts([{ internal_port: 80, publicly_accessible: true, protocol, external_port: 9000 }], [])
    const routed = routesOf('x', ports).map((route) => route.protocol)
    const isWeb = protocol === 'HTTP' || protocol === 'GRPC'
    assert.deepEqual([...new Set(routed)], isWeb ? [protocol] : [], protocol)
    const [port] = workloadPorts(ports)
    assert.deepEqual([port!.protocol, port!.externalPort], [protocol, isWeb ? undefined : 9000])
  }
})

test('each action of a terraform service appears in the status', async () => {
  const said: Record<string, string> = {
    PLAN: 'TERRAFORM_PLAN_ONLY',
    FORCE_UNLOCK: 'TERRAFORM_FORCE_UNLOCK_STATE',
    MIGRATE_STATE: 'TERRAFORM_MIGRATE_STATE',
  }
  const actions = closedValues('deployTerraform', '/action')
  assert.deepEqual(closedValues('deployAllServices', '/terraforms/*/action'), actions)
  for (const action of actions) {
    const alone = await newPlace(api)
    const { id } = await post(`/environment/${alone.environmentId}/terraform`, terraformBody(`alone ${action}`))
    const asked = await post(`/terraform/${id}/deploy`, { action }, 202)
    assert.equal(asked.status_details.sub_action, said[action])
    const among = await newPlace(api)
    const other = await post(`/environment/${among.environmentId}/terraform`, terraformBody(`among ${action}`))
    await post(`/environment/${among.environmentId}/service/deploy`, { terraforms: [{ id: other.id, action }] }, 202)
    const { terraforms } = (await call('GET', `/environment/${among.environmentId}/statuses`)).body
    assert.equal(terraforms[0].status_details.sub_action, said[action])
  }
})

test('each policy of a cron job is stored, and reaches its scheduler unless it is the default', async () => {
  const setting = 'cronjob.concurrency_policy'
  const id = await newScene(api).need({ environmentId: (await newPlace(api)).environmentId }, 'jobId')
  for (const policy of closedValues('editJobAdvancedSettings', `/${setting}`)) {
    const answer = await call('PUT', `/job/${id}/advancedSettings`, { [setting]: policy })
    assert.equal(answer.body[setting], policy, JSON.stringify(answer.body))
    const [row] = await api.database.query<{ spec: object }>('select spec from node where id = $1', [id])
    assert.deepEqual(overlapIn(row!.spec), policy === 'Forbid' ? {} : { overlap: policy })
  }
})

test('each source of a Dockerfile fragment requires its fields, and is stored with them', async () => {
  const { environmentId } = await newPlace(api)
  for (const type of closedValues('createTerraform', '/dockerfile_fragment/type')) {
    const whole = type === 'file' ? { type, path: 'tools/fragment' } : { type, content: 'RUN true' }
    const path = `/environment/${environmentId}/terraform`
    await post(path, { ...terraformBody(`without ${type}`), dockerfile_fragment: { type } }, 400)
    const made = await post(path, { ...terraformBody(`with ${type}`), dockerfile_fragment: whole })
    assert.deepEqual(made.dockerfile_fragment, whole)
  }
})

test('each scope of a token is exactly what the token may do', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const may: Record<string, string> = { Read: 'r', Deploy: 'rd', Write: 'rw', Admin: 'rdwa' }
  const words: [string, string, object][] = closedValues('createOrganizationApiToken', '/scopes').map((scope) => [
    `${scope} of a list`,
    may[scope]!,
    { scopes: [scope] },
  ])
  const single = closedValues('createOrganizationApiToken', '/scope')
  for (const scope of single) words.push([scope, 'rdwa', { scope }])
  for (const [name, wanted, body] of words) {
    const { token } = await post(`${base}/apiToken`, { name, ...body })
    const as = api.as(token)
    const answers = [
      ['r', (await as('GET', `/project/${projectId}`)).status],
      ['d', (await as('POST', `/environment/${environmentId}/stop?dry_run=true`)).status],
      ['w', (await as('PUT', `/project/${projectId}`, { description: name })).status],
      ['a', (await as('POST', `${base}/apiToken`, { name: `by ${name}`, scopes: ['Admin'] })).status],
    ] as const
    const granted = answers.filter(([, status]) => status !== 403).map(([letter]) => letter)
    assert.equal(granted.join(''), wanted, `${name}: ${JSON.stringify(answers)}`)
  }
})
