import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applicationBody, type Call, type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { audience, startIdentityProvider } from '../../../test/support/peers/identity-provider.ts'
import { until, within } from '../../../test/support/until.ts'
import { builtInRoles, modes } from '../../api/auth/permissions.ts'

const provider = await startIdentityProvider()
const api = await startApi({
  settings: { oidc: { issuer: provider.issuer, audience: [audience], adminEmails: [] } },
})
const { call, organizationId } = api
const base = `/organization/${organizationId}`

/** Sends requests as a signed-in user. */
const as = async (person: string): Promise<Call> => {
  const authorization = `Bearer ${await provider.tokenOf(person)}`
  return (method, path, body, headers) => api.as(null)(method, path, body, { authorization, ...headers })
}

const invite = async (person: string, role: object): Promise<Json> => {
  const answer = await call('POST', `${base}/inviteMember`, { email: `${person}@example.com`, ...role })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}

const join = async (person: string, role: object): Promise<{ call: Call; id: string }> => {
  const invitation = await invite(person, role)
  const asPerson = await as(person)
  const accepted = await asPerson('POST', `${base}/inviteMember/${invitation.id}`)
  assert.equal(accepted.status, 201, JSON.stringify(accepted.body))
  return { call: asPerson, id: (await asPerson('GET', '/account')).body.id }
}

const giveRole = (userId: string, roleId: string) => call('PUT', `${base}/member`, { user_id: userId, role_id: roleId })

const leave = (userId: string) => call('DELETE', `${base}/member`, { user_id: userId })

const grant = (mode: string, level: string) =>
  modes.map((each) => ({ environment_type: each, permission: each === mode ? level : 'NO_ACCESS' }))

/** A custom role with the lowest level everywhere except for the given ones. */
const newRole = async (name: string, projects: Record<string, object>, cluster = 'VIEWER'): Promise<Json> => {
  const made = await call('POST', `${base}/customRole`, { name })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  return editRole(made.body, projects, cluster)
}

const editRole = async (role: Json, projects: Record<string, object>, cluster: string): Promise<Json> => {
  const { body, status } = await call('GET', `${base}/customRole/${role.id}`)
  assert.equal(status, 200)
  const project_permissions = body.project_permissions.map(({ project_id, is_admin, permissions }: Json) => ({
    project_id,
    is_admin,
    permissions,
    ...projects[project_id],
  }))
  const cluster_permissions = body.cluster_permissions.map(({ cluster_id }: Json) => ({
    cluster_id,
    permission: cluster,
  }))
  const edited = await call('PUT', `${base}/customRole/${role.id}`, {
    name: role.name,
    cluster_permissions,
    project_permissions,
  })
  assert.equal(edited.status, 200, JSON.stringify(edited.body))
  return edited.body
}

const namesIn = (answer: { body: Json }): string[] => answer.body.results.map(({ name }: Json) => name)

test('an invitation makes a member only of the account whose verified address it names', async () => {
  const invitation = await invite('alice', { role: 'DEVELOPER' })
  assert.deepEqual(
    [invitation.role, invitation.role_name, invitation.invitation_status, invitation.organization_name],
    ['DEVELOPER', 'devops', 'PENDING', 'Slipway'],
  )
  assert.match(invitation.invitation_link, new RegExp(`^http://127.0.0.1:.*${invitation.id}`))
  const path = `${base}/inviteMember/${invitation.id}`
  const again = await call('POST', `${base}/inviteMember`, { email: 'ALICE@example.com' })
  assert.deepEqual([again.status, again.body.code], [409, 'name_taken'])
  assert.match(again.body.message, /address is already invited/)
  const [alice, bob] = [await as('alice'), await as('bob')]
  assert.equal((await bob('POST', path)).status, 404)
  assert.equal((await alice('GET', base)).status, 404)
  assert.equal((await alice('GET', path)).body.inviter, invitation.inviter)
  assert.equal((await alice('POST', path)).status, 201)
  assert.equal((await alice('GET', '/organization')).body.id, organizationId)
  assert.equal((await alice('POST', path)).status, 404)
  assert.deepEqual((await call('GET', `${base}/inviteMember`)).body.results, [])
  const { body } = await call('GET', `${base}/member`)
  assert.deepEqual(
    body.results.map(({ email, role_name }: Json) => [email, role_name]),
    [['alice@example.com', 'devops']],
  )
  assert.equal((await call('POST', `${base}/inviteMember`, { email: 'alice@example.com' })).body.code, 'already_member')
  assert.equal((await leave(body.results[0].id)).status, 204)
})

test('an address that the issuer has not verified opens no invitation', async () => {
  const { id } = await invite('mallory', {})
  assert.equal((await (await as('mallory'))('POST', `${base}/inviteMember/${id}`)).status, 404)
  assert.equal((await call('DELETE', `${base}/inviteMember/${id}`)).status, 204)
  assert.equal((await call('DELETE', `${base}/inviteMember/${id}`)).status, 404)
})

test('an invitation that has run out is shown as such, refused, and makes room for the next', async () => {
  const { id } = await invite('bob', {})
  await api.database.query(`update invitation set expires_at = clock_timestamp() - interval '1 second' where id = $1`, [
    id,
  ])
  assert.equal((await call('GET', `${base}/inviteMember/${id}`)).body.invitation_status, 'EXPIRED')
  assert.equal((await (await as('bob'))('POST', `${base}/inviteMember/${id}`)).status, 400)
  const again = await invite('bob', {})
  assert.equal((await call('DELETE', `${base}/inviteMember/${again.id}`)).status, 204)
})

test('no member gives, or takes from, another one more rights than their own', async () => {
  const owner = await join('carol', { role: 'OWNER' })
  const admin = await join('alice', { role: 'ADMIN' })
  const devops = await join('bob', { role_id: builtInRoles.devops })
  const put = (by: Call, user_id: string, role_id: string) => by('PUT', `${base}/member`, { user_id, role_id })
  assert.equal((await put(devops.call, devops.id, builtInRoles.admin)).status, 403)
  assert.equal((await put(admin.call, devops.id, builtInRoles.owner)).status, 403)
  assert.equal((await put(owner.call, devops.id, builtInRoles.owner)).status, 400)
  assert.equal((await put(admin.call, owner.id, builtInRoles.viewer)).body.code, 'owner_stays')
  assert.equal((await admin.call('DELETE', `${base}/member`, { user_id: owner.id })).body.code, 'owner_stays')
  assert.equal((await admin.call('POST', `${base}/transferOwnership`, { user_id: admin.id })).status, 403)
  assert.equal((await call('POST', `${base}/inviteMember`, { email: 'x@y.z', role: 'OWNER' })).body.code, 'owner_taken')
  const make = (by: Call, body: object) => by('POST', `${base}/apiToken`, body)
  assert.equal((await make(devops.call, { name: 'wide', scopes: ['Admin'] })).status, 403)
  assert.equal((await make(devops.call, { name: 'wide', role_id: builtInRoles.admin })).status, 403)
  assert.equal((await make(admin.call, { name: 'wide', scopes: ['Admin'] })).status, 403)
  const usual = await make(admin.call, { name: 'usual' })
  assert.deepEqual([usual.status, usual.body.role_name, usual.body.role_id], [201, 'admin', builtInRoles.admin])
  assert.equal((await api.as(usual.body.token)('DELETE', base)).status, 403)

  assert.equal((await call('GET', base)).body.owner, owner.id)
  assert.equal((await owner.call('POST', `${base}/transferOwnership`, { user_id: admin.id })).status, 204)
  assert.equal((await call('GET', base)).body.owner, admin.id)
  const roles = (await call('GET', `${base}/member`)).body.results.map(({ id, role }: Json) => [id, role])
  assert.deepEqual(Object.fromEntries(roles), { [owner.id]: 'ADMIN', [admin.id]: 'OWNER', [devops.id]: 'DEVELOPER' })
  await leave(owner.id)
  await leave(devops.id)
})

test('a member that is removed, and every token that it made, is refused within a second', async () => {
  const { call: erin, id } = await join('erin', { role: 'DEVELOPER' })
  const made = (await erin('POST', `${base}/apiToken`, { name: 'of erin' })).body.token
  const further = (await api.as(made)('POST', `${base}/apiToken`, { name: 'of the token' })).body.token
  for (const token of [made, further]) assert.equal((await api.as(token)('GET', `${base}/project`)).status, 200)
  assert.equal((await erin('GET', `${base}/project`)).status, 200)
  assert.equal((await leave(id)).status, 204)
  assert.equal((await erin('GET', `${base}/project`)).status, 404)
  for (const token of [made, further])
    await within(
      1000,
      async () => (await api.as(token)('GET', `${base}/project`)).status === 401,
      'the token to be refused',
    )
  assert.equal((await leave(id)).status, 404)
})

test('a role that is given or changed applies to the next request, for members and for tokens', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const { call: dave, id } = await join('dave', { role: 'VIEWER' })
  assert.equal((await dave('PUT', `/project/${projectId}`, { description: 'x' })).status, 403)
  assert.equal((await giveRole(id, builtInRoles.devops)).status, 200)
  assert.equal((await dave('PUT', `/project/${projectId}`, { description: 'x' })).status, 200)
  const made = (await dave('POST', `${base}/apiToken`, { name: 'of dave', scopes: ['Write'] })).body.token
  assert.equal((await giveRole(id, builtInRoles.viewer)).status, 200)
  await until(async () => (await api.as(made)('GET', base)).status === 401, {
    timeoutMs: 1000,
    what: 'a token with more rights than its maker has left to be refused',
  })

  const role = await newRole('deployer', {
    [projectId]: { is_admin: false, permissions: grant('DEVELOPMENT', 'VIEWER') },
  })
  const token = (await call('POST', `${base}/apiToken`, { name: 'deploys', role_id: role.id })).body
  assert.deepEqual([token.role_name, token.role_id, token.scopes], ['deployer', role.id, []])
  const { body: application } = await call('POST', `/environment/${environmentId}/application`, applicationBody())
  const deploy = () => api.as(token.token)('POST', `/application/${application.id}/deploy`)
  assert.equal((await deploy()).status, 403)
  const deployer = { [projectId]: { is_admin: false, permissions: grant('DEVELOPMENT', 'DEPLOYER') } }
  await editRole(role, deployer, 'VIEWER')
  assert.equal((await deploy()).status, 403)
  await editRole(role, deployer, 'ENV_CREATOR')
  assert.equal((await deploy()).status, 202)
  assert.equal((await call('DELETE', `${base}/customRole/${role.id}`)).body.code, 'role_in_use')
  await call('DELETE', `${base}/apiToken/${token.id}`)
  assert.equal((await call('DELETE', `${base}/customRole/${role.id}`)).status, 204)
  await leave(id)
})

test('objects made with a token that a member loses are lost with it, though the new role would allow them', async () => {
  const { call: erin, id } = await join('erin', { role: 'ADMIN' })
  const lost = (await erin('POST', `${base}/apiToken`, { name: 'as an admin' })).body.token
  const below = (await api.as(lost)('POST', `${base}/apiToken`, { name: 'below it', scopes: ['Read'] })).body.token
  const kept = (await erin('POST', `${base}/apiToken`, { name: 'as little', scopes: ['Read'] })).body.token
  assert.equal((await giveRole(id, builtInRoles.devops)).status, 200)
  for (const token of [lost, below])
    await until(async () => (await api.as(token)('GET', base)).status === 401, {
      timeoutMs: 1000,
      what: 'the token to be refused',
    })
  assert.equal((await api.as(kept)('GET', base)).status, 200)
  const [event] = (await call('GET', `${base}/events?targetId=${id}&eventType=UPDATE`)).body.events
  assert.equal(JSON.parse(event.change).tokens_revoked, 2)
  await leave(id)
})

test('rows that a custom role has no access to are in no list, and are a 404', async () => {
  const [seen, hidden] = [await newPlace(api), await newPlace(api)]
  const production = await call('POST', `/project/${seen.projectId}/environment`, { name: 'prod', mode: 'PRODUCTION' })
  for (const { id, name } of [
    { id: seen.environmentId, name: 'open' },
    { id: hidden.environmentId, name: 'secret' },
    { id: production.body.id, name: 'secret' },
  ])
    await newApplication(api, id, { name })
  const role = await newRole('narrow', {
    [seen.projectId]: { is_admin: false, permissions: grant('DEVELOPMENT', 'MANAGER') },
  })
  const { call: bob, id } = await join('bob', { role_id: role.id })
  const [project] = namesIn({ body: { results: [(await call('GET', `/project/${seen.projectId}`)).body] } })
  assert.deepEqual(namesIn(await bob('GET', `${base}/project`)), [project])
  const environments = await bob('GET', `/project/${seen.projectId}/environment`)
  assert.deepEqual(
    environments.body.results.map((each: Json) => each.id),
    [seen.environmentId],
  )
  const etag = environments.headers.get('etag')!
  const again = await bob('GET', `/project/${seen.projectId}/environment`, undefined, { 'if-none-match': etag })
  assert.equal(again.status, 304)
  for (const path of [
    `/project/${hidden.projectId}`,
    `/environment/${hidden.environmentId}`,
    `/environment/${production.body.id}`,
    `/environment/${production.body.id}/status`,
    `/variable?parent_id=${production.body.id}&scope=ENVIRONMENT`,
  ])
    assert.equal((await bob('GET', path)).status, 404, path)
  assert.deepEqual(namesIn(await bob('GET', `${base}/cluster`)), ['local'])
  const create = (body: object) => bob('POST', `/project/${seen.projectId}/environment`, body)
  assert.equal((await create({ name: 'more', mode: 'DEVELOPMENT' })).status, 403)
  await editRole(role, {}, 'ENV_CREATOR')
  assert.equal((await create({ name: 'more', mode: 'DEVELOPMENT' })).status, 201)
  assert.equal((await create({ name: 'evil', mode: 'PRODUCTION' })).status, 404)
  assert.equal((await bob('PUT', `/environment/${seen.environmentId}`, { mode: 'PRODUCTION' })).status, 404)
  await editRole(role, {}, 'ADMIN')
  const targetsFor = async (by: Call) =>
    (await by('GET', `${base}/cluster/${api.clusterId}/routingTable`)).body.results.map((each: Json) => each.target)
  assert.deepEqual([...new Set(await targetsFor(bob))], ['open:3000'])
  assert.ok((await targetsFor(call)).includes('secret:3000'))
  const variable = (parent: string, scope: string) =>
    bob('POST', '/variable', {
      key: 'A',
      value: 'b',
      is_secret: false,
      variable_scope: scope,
      variable_parent_id: parent,
    })
  assert.equal((await variable(seen.environmentId, 'ENVIRONMENT')).status, 201)
  assert.equal((await variable(seen.projectId, 'PROJECT')).status, 403)
  assert.equal((await variable(hidden.environmentId, 'ENVIRONMENT')).status, 404)
  // Roles name the projects that this one does not see.
  const people = ['member', 'inviteMember', 'customRole', `customRole/${role.id}`, 'availableRole']
  for (const path of ['apiToken', 'webhook', 'events', 'targets', ...people])
    assert.equal((await bob('GET', `${base}/${path}`)).status, 403, path)
  await leave(id)
})

test('previews are not made for a role that may not make them', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const { id: ruleId } = (await call('GET', `/environment/${environmentId}/deploymentRule`)).body
  const all = (preview: string) => [
    ...grant('DEVELOPMENT', 'MANAGER').filter(({ environment_type: mode }) => mode !== 'PREVIEW'),
    { environment_type: 'PREVIEW', permission: preview },
  ]
  const role = await newRole('no previews', { [projectId]: { is_admin: false, permissions: all('NO_ACCESS') } })
  const { call: bob, id } = await join('bob', { role_id: role.id })
  const put = (body: object) => bob('PUT', `/environment/${environmentId}/deploymentRule/${ruleId}`, body)
  assert.equal((await put({ auto_stop: false })).status, 200)
  const refused = await put({ auto_preview: true })
  assert.deepEqual([refused.status, refused.body.code], [403, 'forbidden'])
  assert.match(refused.body.message, /auto_preview/)
  await call('PUT', `/environment/${environmentId}/deploymentRule/${ruleId}`, { auto_preview: true })
  assert.equal((await put({ auto_preview: true, timezone: 'Europe/Paris' })).status, 200)
  const clone = (await call('POST', `/environment/${environmentId}/clone`, { name: 'a clone' })).body
  assert.equal((await call('GET', `/environment/${clone.id}/deploymentRule`)).body.auto_preview, false)
  await put({ auto_preview: false })
  await editRole(role, { [projectId]: { is_admin: false, permissions: all('MANAGER') } }, 'VIEWER')
  assert.equal((await put({ auto_preview: true })).body.auto_preview, true)
  await leave(id)
})

test('a place that a role does not see is a 404 also for a token whose scopes allow less than the role', async () => {
  const [seen, hidden] = [await newPlace(api), await newPlace(api)]
  const role = await newRole('reader', {
    [seen.projectId]: { is_admin: false, permissions: grant('DEVELOPMENT', 'MANAGER') },
  })
  const made = await call('POST', `${base}/apiToken`, { name: 'reads', role_id: role.id, scopes: ['Read'] })
  const reader = api.as(made.body.token)
  const edit = (environmentId: string) => reader('PUT', `/environment/${environmentId}`, { name: 'other' })
  assert.equal((await edit(seen.environmentId)).status, 403)
  assert.equal((await edit(hidden.environmentId)).status, 404)
  assert.equal((await reader('DELETE', `/project/${hidden.projectId}`)).status, 404)
})

test('who uses a secret manager is listed without what belongs to a project that a role does not see', async () => {
  const [seen, hidden] = [await newPlace(api), await newPlace(api)]
  const role = await newRole('looks', {
    [seen.projectId]: { is_admin: false, permissions: grant('DEVELOPMENT', 'VIEWER') },
  })
  const authentication = { mode: 'AUTOMATICALLY_CONFIGURED' }
  const access = { name: 'vault', endpoint: { mode: 'AWS_SECRET_MANAGER', region: 'eu-west-3' }, authentication }
  const ours = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' }
  const cluster = await call('POST', `${base}/cluster`, { name: 'vaults', ...ours, secret_manager_accesses: [access] })
  const secret_manager_access_id = cluster.body.secret_manager_accesses[0].id
  for (const { projectId } of [seen, hidden]) {
    const place = { variable_scope: 'PROJECT', variable_parent_id: projectId }
    const body = { key: `OF_${projectId.slice(-4)}`, value: 'x', is_secret: false, secret_manager_access_id, ...place }
    assert.equal((await call('POST', '/variable', body)).status, 201)
  }
  const { token } = (await call('POST', `${base}/apiToken`, { name: 'looks', role_id: role.id })).body
  const path = `/secretManagerAccess/${secret_manager_access_id}/associatedServices`
  const listed = (await api.as(token)('GET', path)).body.results
  assert.deepEqual(
    listed.map((each: Json) => each.project_id),
    [seen.projectId],
  )
  assert.equal((await call('GET', path)).body.results.length, 2)
})

test('an edit of a custom role names every cluster, every project and all four modes', async () => {
  const { projectId } = await newPlace(api)
  const { body: role } = await call('POST', `${base}/customRole`, { name: 'partial' })
  const edit = (body: object) => call('PUT', `${base}/customRole/${role.id}`, { name: 'partial', ...body })
  const fieldOf = async (body: object) => (await edit(body)).body.details?.[0].field
  assert.equal(await fieldOf({ cluster_permissions: [] }), '/cluster_permissions')
  const all = role.project_permissions.map(({ project_id, permissions }: Json) => ({ project_id, permissions }))
  assert.equal(await fieldOf({ project_permissions: all.slice(1) }), '/project_permissions')
  const three = [{ project_id: projectId, permissions: grant('STAGING', 'VIEWER').slice(1) }]
  assert.equal(await fieldOf({ project_permissions: three }), '/project_permissions/0/permissions')
  assert.equal(
    await fieldOf({ project_permissions: [{ project_id: organizationId, is_admin: true }] }),
    '/project_permissions/0',
  )
  assert.equal((await edit({ project_permissions: all })).status, 200)
  for (const name of ['Owner', 'viewer', 'DevOps'])
    assert.equal((await call('POST', `${base}/customRole`, { name })).status, 400, name)
})

test('a token with a role and scopes has no more than either', async () => {
  const body = { name: 'both', role_id: builtInRoles.devops, scopes: ['Read'] }
  const { token } = (await call('POST', `${base}/apiToken`, body)).body
  assert.equal((await api.as(token)('GET', `${base}/project`)).status, 200)
  assert.equal((await api.as(token)('POST', `${base}/project`, { name: 'no' })).status, 403)
})

test('a member of several organizations finds the rows of each, and has in each the role of that one', async () => {
  const { call: erin, id } = await join('erin', { role: 'VIEWER' })
  const own = (await erin('POST', '/organization', { name: 'Of Erin', plan: 'FREE' })).body
  assert.deepEqual(
    (await erin('GET', '/organization')).body.results.map((each: Json) => each.id),
    [organizationId, own.id],
  )
  const project = await erin('POST', `/organization/${own.id}/project`, { name: 'own' })
  const environment = await erin('POST', `/project/${project.body.id}/environment`, { name: 'dev' })
  assert.equal(environment.status, 201)
  const variable = { key: 'A', value: 'b', is_secret: false, variable_scope: 'ENVIRONMENT' }
  assert.equal((await erin('POST', '/variable', { ...variable, variable_parent_id: environment.body.id })).status, 201)
  const { environmentId } = await newPlace(api)
  assert.equal((await erin('GET', `/environment/${environmentId}`)).status, 200)
  assert.equal((await erin('POST', '/variable', { ...variable, variable_parent_id: environmentId })).status, 403)
  assert.equal((await erin('DELETE', `/environment/${environmentId}`)).status, 403)
  assert.equal((await leave(id)).status, 204)
  assert.equal((await erin('GET', `/environment/${environmentId}`)).status, 404)
  assert.equal((await erin('GET', `/environment/${environment.body.id}`)).status, 200)
})
