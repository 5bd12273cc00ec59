/** The people of an organization, and who is invited. */
import { Select, TextInput } from '@mantine/core'
import { useState } from 'react'
import { answerOf, client } from '../../api/client.ts'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { Time } from '../../ui/time.tsx'
import { tell } from '../../ui/toasts.tsx'
import { FormDialog, NewButton } from './dialog.tsx'
import { type Props, pathOf, Rows, useOrganizationList } from './list.tsx'
import { useRoles } from './roles.tsx'

const Invite = ({ organizationId, onClose }: Props & { onClose(): void }) => {
  const roles = useRoles(organizationId)
  const [email, setEmail] = useState('')
  const [roleId, setRoleId] = useState<string | null>(null)
  return (
    <FormDialog
      title="Invite a person"
      button="Invite"
      isReady={email !== '' && roleId !== null}
      onClose={onClose}
      changed="invitations"
      act={async () => {
        await answerOf(
          client.POST('/organization/{organizationId}/inviteMember', {
            ...pathOf(organizationId),
            body: { email, role_id: roleId },
          }),
        )
        tell(`${email} is invited. Send them the link in the list.`)
        onClose()
      }}
    >
      <TextInput
        label="Email address"
        type="email"
        required
        data-autofocus
        value={email}
        onChange={(event) => setEmail(event.currentTarget.value)}
      />
      <Select
        label="Role"
        required
        data={(roles.data ?? []).map(({ id, name }) => ({ value: id, label: name }))}
        value={roleId}
        onChange={setRoleId}
      />
    </FormDialog>
  )
}

export const Members = ({ organizationId }: Props) => {
  const may = useMay()
  const [isInviting, setInviting] = useState(false)
  const members = useOrganizationList('members', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/member', pathOf(organizationId))),
  )
  const invitations = useOrganizationList('invitations', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/inviteMember', pathOf(organizationId))),
  )
  return (
    <div className="stack">
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
          { title: 'Person', show: ({ name, email }) => <span className="strong">{name || email}</span> },
          { title: 'Email', isOptional: true, show: ({ email }) => <span className="dim">{email}</span> },
          { title: 'Role', isTight: true, show: ({ role_name }) => role_name },
          { title: 'Last active', isTight: true, show: ({ last_activity_at }) => <Time at={last_activity_at} /> },
        ]}
      />
      {(invitations.data ?? []).length === 0 ? null : (
        <>
          <h2>Invitations</h2>
          <Rows
            of={invitations}
            empty={null}
            columns={[
              { title: 'Email', show: ({ email }) => email },
              { title: 'Role', isTight: true, show: ({ role_name }) => role_name },
              { title: 'State', isTight: true, show: ({ invitation_status }) => invitation_status.toLowerCase() },
            ]}
          />
        </>
      )}
      {isInviting ? <Invite organizationId={organizationId} onClose={() => setInviting(false)} /> : null}
    </div>
  )
}
