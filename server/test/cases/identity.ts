/** Cases of organizations, members, roles, accounts and the audit log. */
import { builtInRoles } from '../../src/api/auth/permissions.ts'
import { newId } from '../../src/lib/ids.ts'
import type { Case, Cases, Scene, Values } from './case.ts'
import { deployed } from './core.ts'

/** A person who has signed in and is a member. */
const member = async (values: Values, { api }: Scene): Promise<void> => {
  const id = newId()
  await api.database.query(
    `insert into account (id, issuer, subject, email, email_verified, name, nickname, picture)
     values ($1, 'https://issuer.example', $2, $2, true, 'Some Body', 'some', 'https://issuer.example/p.png')`,
    [id, `${id}@example.com`],
  )
  await api.database.query('insert into member (organization_id, account_id, role_id) values ($1, $2, $3)', [
    api.organizationId,
    id,
    builtInRoles.viewer,
  ])
  values.userId = id
}

const ofMember = (more: object = {}): Case => ({
  before: member,
  body: ({ userId }) => ({ user_id: userId, ...more }),
  scopes: [],
})

export const identityCases: Cases = {
  makers: {
    customRoleId: async (_, { api, post, count }) =>
      (await post(`/organization/${api.organizationId}/customRole`, { name: `role ${count}` })).id,
    inviteId: async (_, { api, post, count }) =>
      (await post(`/organization/${api.organizationId}/inviteMember`, { email: `invited${count}@example.com` })).id,
  },
  cases: {
    createOrganization: { body: (_, { count }) => ({ name: `made ${count}`, plan: 'FREE' }), scopes: [] },
    // Deleting an organization without deployed services would delete the tokens of this test.
    deleteOrganization: { before: deployed, refused: 409 },
    listOrganizationAvailableRoles: { scopes: [] },
    listOrganizationCustomRoles: { scopes: [] },
    getOrganizationCustomRole: { scopes: [] },
    createOrganizationCustomRole: {
      body: (_, { count }) => ({ name: `made ${count}`, description: 'for tests' }),
      scopes: [],
    },
    editOrganizationCustomRole: { body: () => ({ description: 'changed' }), scopes: [] },
    getOrganizationInvitedMembers: { scopes: [] },
    postInviteMember: {
      body: (_, { count }) => ({ email: `new${count}@example.com`, role_id: builtInRoles.devops }),
      scopes: [],
    },
    getMemberInvitation: { scopes: [] },
    postAcceptInviteMember: { scopes: [], refused: 403 },
    getOrganizationMembers: { before: member, scopes: [] },
    editOrganizationMemberRole: ofMember({ role_id: builtInRoles.devops }),
    deleteMember: ofMember(),
    postOrganizationTransferOwnership: ofMember(),
    editAccountInformation: { body: () => ({ communication_email: 'me@example.com' }), scopes: [], refused: 403 },
    editOrganizationBillingInfo: { body: () => ({ email: 'me@example.com' }) },
    createUserSignUp: {
      body: () => ({
        first_name: 'Some',
        last_name: 'Body',
        user_email: 'me@example.com',
        type_of_use: 'WORK',
        qovery_usage: '',
      }),
      scopes: ['Read', 'Deploy', 'Write'],
    },
    getOrganizationEvents: { scopes: [] },
    getOrganizationEventTargets: { scopes: [] },
  },
}
