import assert from 'node:assert/strict'
import { test } from 'node:test'
import { operations } from '../../resources/index.ts'
import {
  builtInRole,
  builtInRoles,
  covers,
  decide,
  type Grants,
  type Place,
  type ProjectLevel,
  type Role,
  sees,
} from './permissions.ts'

const operation = (id: string) => operations.find((each) => each.id === id) ?? assert.fail(`no operation ${id}`)
const role = (name: keyof typeof builtInRoles): Role => builtInRole(builtInRoles[name])!
const nowhere: Place = { projectId: null, mode: null, clusterId: null }

const all = ['owner', 'admin', 'devops', 'billing', 'viewer'] as const

// Which built-in roles may: o owner, a admin, d devops, b billing, v viewer.
const matrix: Record<string, string> = {
  getOrganization: 'oadbv',
  editOrganization: 'oa',
  deleteOrganization: 'o',
  postOrganizationTransferOwnership: 'o',
  getOrganizationMembers: 'oadv',
  postInviteMember: 'oa',
  editOrganizationMemberRole: 'oa',
  deleteMember: 'oa',
  listOrganizationAvailableRoles: 'oadv',
  createOrganizationCustomRole: 'oa',
  listOrganizationApiTokens: 'oadv',
  createOrganizationApiToken: 'oad',
  deleteOrganizationApiToken: 'oad',
  getOrganizationEvents: 'oadv',
  createOrganizationWebhook: 'oad',
  deleteOrganizationWebhook: 'oad',
  listOrganizationCluster: 'oadbv',
  getOrganizationCluster: 'oadbv',
  editCluster: 'oad',
  createGitToken: 'oad',
  listOrganizationGitTokens: 'oadv',
  createContainerRegistry: 'oad',
  createProject: 'oad',
  listProject: 'oadv',
  deleteProject: 'oad',
  createEnvironment: 'oad',
  deployApplication: 'oad',
  getApplicationStatus: 'oadv',
  deleteApplication: 'oad',
  createVariable: 'oad',
  listVariables: 'oadv',
  getDatabaseMasterCredentials: 'oad',
}

for (const [id, may] of Object.entries(matrix))
  test(`${id} is for ${may} of the built-in roles`, () => {
    const found = all.filter((name) => decide(role(name), operation(id), nowhere) === 'allowed')
    assert.equal(found.map((name) => name[0]).join(''), may)
  })

test('a person without an organization may manage their account, create an organization and accept an invitation, no more', () => {
  const open = operations.filter((each) => decide(null, each, nowhere) !== 'hidden').map(({ id }) => id)
  assert.deepEqual(open.sort(), [
    'createOrganization',
    'createUserSignUp',
    'editAccountInformation',
    'getAccountInformation',
    'getMemberInvitation',
    'getUserSignUp',
    'listOrganization',
    'postAcceptInviteMember',
  ])
})

const custom = (clusters: Grants['clusters'], projects: Grants['projects']): Role => ({
  id: 'c',
  name: 'custom',
  grants: { clusters, projects },
})
const inDevelopment: Place = { projectId: 'p', mode: 'DEVELOPMENT', clusterId: 'k' }

// What each level may do in an environment whose cluster allows it deployments, and the answer otherwise.
const levels: [ProjectLevel, Record<string, string>][] = [
  ['NO_ACCESS', { getEnvironment: 'hidden', deployApplication: 'hidden', editApplication: 'hidden' }],
  ['VIEWER', { getEnvironment: 'allowed', deployApplication: 'forbidden', editApplication: 'forbidden' }],
  ['DEPLOYER', { getEnvironment: 'allowed', stopApplication: 'allowed', editApplication: 'forbidden' }],
  // Code reads every secret of its service.
  ['DEPLOYER', { deployApplication: 'allowed', deployApplicationSource: 'forbidden' }],
  ['MANAGER', { deployApplication: 'allowed', editApplication: 'allowed', deleteApplication: 'allowed' }],
]

for (const [level, expected] of levels)
  test(`in a mode where it is ${level}, a custom role ${JSON.stringify(expected)}`, () => {
    const holder = custom({ k: 'ENV_CREATOR' }, { p: { isAdmin: false, modes: { DEVELOPMENT: level } } })
    for (const [id, decision] of Object.entries(expected))
      assert.equal(decide(holder, operation(id), inDevelopment), decision, id)
    assert.equal(decide(holder, operation('getEnvironment'), { ...inDevelopment, mode: 'PRODUCTION' }), 'hidden')
    assert.equal(decide(holder, operation('getEnvironment'), { ...inDevelopment, projectId: 'other' }), 'hidden')
  })

test('to deploy takes ENV_CREATOR on the cluster beside DEPLOYER in the mode', () => {
  const deployer = { p: { isAdmin: false, modes: { DEVELOPMENT: 'DEPLOYER' as const } } }
  assert.equal(decide(custom({}, deployer), operation('deployApplication'), inDevelopment), 'forbidden')
  assert.equal(decide(custom({ k: 'ADMIN' }, deployer), operation('deployApplication'), inDevelopment), 'allowed')
  const manager = { p: { isAdmin: false, modes: { DEVELOPMENT: 'MANAGER' as const } } }
  const send = operation('deployApplicationSource')
  assert.equal(decide(custom({}, manager), send, inDevelopment), 'forbidden')
  assert.equal(decide(custom({ k: 'ENV_CREATOR' }, manager), send, inDevelopment), 'allowed')
})

test('a project is visible to members that see one of its modes, and changed by its admins only', () => {
  const whole: Place = { projectId: 'p', mode: null, clusterId: null }
  const manager = custom({}, { p: { isAdmin: false, modes: { STAGING: 'MANAGER' } } })
  assert.equal(decide(manager, operation('getProject'), whole), 'allowed')
  assert.equal(decide(manager, operation('createEnvironment'), whole), 'allowed')
  for (const id of ['editProject', 'deleteProject', 'createDeploymentRule'])
    assert.equal(decide(manager, operation(id), whole), 'forbidden', id)
  const admin = custom({}, { p: { isAdmin: true, modes: {} } })
  for (const id of ['editProject', 'deleteProject', 'getProject', 'createDeploymentRule'])
    assert.equal(decide(admin, operation(id), whole), 'allowed', id)
  assert.equal(decide(custom({}, {}), operation('getProject'), whole), 'hidden')
})

test('a new environment is judged by its mode and its cluster once the body says them', () => {
  const manager = (cluster: 'VIEWER' | 'ENV_CREATOR') =>
    custom({ k: cluster }, { p: { isAdmin: false, modes: { DEVELOPMENT: 'MANAGER', PRODUCTION: 'VIEWER' } } })
  const create = operation('createEnvironment')
  assert.equal(decide(manager('ENV_CREATOR'), create, inDevelopment), 'allowed')
  assert.equal(decide(manager('ENV_CREATOR'), create, { ...inDevelopment, mode: 'PRODUCTION' }), 'forbidden')
  assert.equal(decide(manager('VIEWER'), create, inDevelopment), 'forbidden')
})

test('a custom role looks at every cluster, and changes those it administers', () => {
  const at = (clusterId: string | null): Place => ({ ...nowhere, clusterId })
  const holder = custom({ k: 'ADMIN', l: 'ENV_CREATOR' }, {})
  const decisions = (id: string) => ['k', 'l', 'new'].map((cluster) => decide(holder, operation(id), at(cluster)))
  assert.deepEqual(decisions('getOrganizationCluster'), ['allowed', 'allowed', 'allowed'])
  assert.deepEqual(decisions('editCluster'), ['allowed', 'forbidden', 'forbidden'])
  assert.deepEqual(decisions('getRoutingTable'), ['allowed', 'forbidden', 'forbidden'])
  assert.equal(decide(holder, operation('createCluster'), at(null)), 'forbidden')
})

test('no custom role touches tokens, webhooks, members, the audit log or the organization', () => {
  const mighty = custom({ k: 'ADMIN' }, { p: { isAdmin: true, modes: {} } })
  const kept = ['tokens', 'webhooks', 'audit', 'ownership']
  for (const each of operations) {
    const { area } = each
    const isChange = each.scope !== 'Read' && each.method !== 'GET'
    if (kept.includes(area) || (['members', 'settings', 'resources'].includes(area) && isChange))
      assert.equal(decide(mighty, each, nowhere), 'forbidden', each.id)
  }
  assert.equal(decide(mighty, operation('getOrganization'), nowhere), 'allowed')
  assert.equal(decide(mighty, operation('createProject'), nowhere), 'forbidden')
})

test('a role is given by those who have all its rights', () => {
  const pairs: [keyof typeof builtInRoles, keyof typeof builtInRoles, boolean][] = [
    ['owner', 'owner', true],
    ['admin', 'owner', false],
    ['admin', 'admin', true],
    ['devops', 'admin', false],
    ['devops', 'billing', false],
    ['devops', 'viewer', true],
    ['viewer', 'devops', false],
  ]
  for (const [holder, given, may] of pairs) assert.equal(covers(role(holder), role(given)), may, `${holder} ${given}`)
  assert.equal(covers(role('devops'), custom({}, {})), true)
  assert.equal(covers(custom({}, {}), role('viewer')), false)
})

test('what is not in a project is seen by every role', () => {
  assert.equal(sees({ clusters: {}, projects: {} }, { ...nowhere, clusterId: 'k' }), true)
  assert.equal(sees({ clusters: {}, projects: {} }, { ...nowhere, projectId: 'p' }), false)
})
