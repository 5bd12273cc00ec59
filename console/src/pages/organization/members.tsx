/** The members of an organization, and its invitations. */
import { Select } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath, type Schemas } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Copied, NewButton, Remove } from '../../ui/dialog.tsx'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { namesOf, RecordForm } from '../../ui/record-form.tsx'
import { Rows } from '../../ui/rows.tsx'
import { Time } from '../../ui/time.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import { type Props, useOrganizationList } from './list.ts'
import { useRoles } from './roles.tsx'

type Invitation = Schemas['InviteMember']

const RoleOf = ({ organizationId, userId, roleId, name }: Props & { userId: string; roleId: string; name: string }) => {
  const roles = useRoles(organizationId)
  const changing = useMutation({
    mutationFn: (next: string) =>
      answerOf(
        client.PUT('/organization/{organizationId}/member', {
          ...inPath({ organizationId }),
          body: { user_id: userId, role_id: next },
        }),
      ),
    onSuccess: () => tell(`The role of ${name} was changed. It counts from the next request.`),
    onError: tellProblem,
    onSettled: () => void read.refresh('members'),
  })
  return (
    <Select
      aria-label={`Role of ${name}`}
      size="xs"
      className="role-choice"
      // Ownership is transferred, not shared.
      data={namesOf(roles.data?.filter((each) => each.name.toLowerCase() !== 'owner'))}
      value={roleId}
      disabled={changing.isPending}
      onChange={(next) => next !== null && next !== roleId && changing.mutate(next)}
    />
  )
}

const HandOver = ({ organizationId, userId, name }: Props & { userId: string; name: string }) => (
  <Remove
    name={`to ${name}`}
    what="Hand over"
    changed={['members', 'session']}
    consequence={`${name} becomes the owner of the organization, and the owner of now an administrator.`}
    act={() =>
      answerOf(
        client.POST('/organization/{organizationId}/transferOwnership', {
          ...inPath({ organizationId }),
          body: { user_id: userId },
        }),
      )
    }
  />
)

const Invitations = ({ organizationId }: Props) => {
  const may = useMay()
  const invitations = useOrganizationList('invitations', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/inviteMember', inPath({ organizationId }))),
  )
  if ((invitations.data ?? []).length === 0) return null
  return (
    <section className="stack">
      <h2>Invitations</h2>
      <Rows
        of={invitations}
        empty={null}
        columns={[
          {
            title: 'Email',
            show: ({ email, inviter, role_name }: Invitation) => (
              <div style={{ minWidth: 130 }}>
                {email}{' '}
                <p className="dim small wrap">
                  {role_name}, invited by {inviter}
                </p>
              </div>
            ),
          },
          {
            title: 'State',
            look: 'tight',
            show: ({ invitation_status: state }: Invitation) => (
              <span className={state === 'EXPIRED' ? 'chip warn' : 'chip'}>{state.toLowerCase()}</span>
            ),
          },
          {
            title: 'Link',
            look: 'optional',
            show: ({ invitation_link: link, email }: Invitation) => <Copied label={`Link for ${email}`} value={link} />,
          },
          {
            title: 'Actions',
            look: 'tight',
            show: ({ id, email }: Invitation) =>
              may('members') ? (
                <Remove
                  name={email}
                  what="Revoke"
                  changed={['invitations']}
                  consequence="The link works no longer."
                  act={() =>
                    answerOf(
                      client.DELETE(
                        '/organization/{organizationId}/inviteMember/{inviteId}',
                        inPath({ organizationId, inviteId: id }),
                      ),
                    )
                  }
                />
              ) : null,
          },
        ]}
      />
    </section>
  )
}

export const Members = ({ organizationId }: Props) => {
  const may = useMay()
  const [isInviting, setInviting] = useState(false)
  const { data: session } = useQuery(read.session())
  const isOwner = session?.memberships.some(
    (each) => each.organization_id === organizationId && each.role?.name === 'owner',
  )
  const roles = useRoles(organizationId, may('members'))
  const members = useOrganizationList('members', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/member', inPath({ organizationId }))),
  )
  return (
    <div className="stack wide">
      {may('members') ? <NewButton onClick={() => setInviting(true)}>Invite</NewButton> : null}
      <Rows
        of={members}
        empty={
          <Empty title="No members">
            <p>
              People become members when they sign in with an OIDC provider and accept an invitation. Until then, tokens
              are used.
            </p>
          </Empty>
        }
        columns={[
          {
            title: 'Person',
            show: ({ name, email }) => (
              <div style={{ minWidth: 110 }}>
                <span className="strong">{name || email}</span>
                <p className="dim small wrap">{email}</p>
              </div>
            ),
          },
          {
            title: 'Role',
            look: 'tight',
            show: ({ id, name, email, role, role_id, role_name }) =>
              may('members') && role !== 'OWNER' ? (
                <RoleOf organizationId={organizationId} userId={id} roleId={role_id} name={name || email} />
              ) : (
                role_name
              ),
          },
          {
            title: 'Last active',
            look: 'tight optional',
            show: ({ last_activity_at }) => <Time at={last_activity_at} />,
          },
          {
            title: 'Actions',
            look: 'tight',
            show: ({ id, name, email, role }) =>
              may('members') && role !== 'OWNER' ? (
                <span className="row wraps">
                  {isOwner === true ? (
                    <HandOver organizationId={organizationId} userId={id} name={name || email} />
                  ) : null}
                  <Remove
                    name={name || email}
                    what="Remove"
                    changed={['members']}
                    consequence="The person loses access with the next request; the tokens it created are revoked."
                    act={() =>
                      answerOf(
                        client.DELETE('/organization/{organizationId}/member', {
                          ...inPath({ organizationId }),
                          body: { user_id: id },
                        }),
                      )
                    }
                  />
                </span>
              ) : null,
          },
        ]}
      />
      {may('members') ? <Invitations organizationId={organizationId} /> : null}
      {isInviting ? (
        <RecordForm
          title="Invite a person"
          button="Invite"
          changed={['invitations']}
          onClose={() => setInviting(false)}
          fields={[
            { at: '/email', label: 'Email address', isRequired: true },
            {
              at: '/role_id',
              label: 'Role',
              kind: 'choice',
              isRequired: true,
              options: namesOf(roles.data),
            },
          ]}
          save={async (body) => {
            await answerOf(
              client.POST('/organization/{organizationId}/inviteMember', {
                ...inPath({ organizationId }),
                body: body as { email: string },
              }),
            )
            tell(`${String(body.email)} is invited. Send them the link in the list.`)
          }}
        />
      ) : null}
    </div>
  )
}
