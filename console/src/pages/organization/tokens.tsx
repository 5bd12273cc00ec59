/** Tokens of programs. Their text is shown once. */
import { useState } from 'react'
import { answerOf, client, inPath, Problem } from '../../api/client.ts'
import { NewButton, Once, Remove } from '../../ui/dialog.tsx'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { namesOf, RecordForm } from '../../ui/record-form.tsx'
import { Rows } from '../../ui/rows.tsx'
import { Time } from '../../ui/time.tsx'
import { type Props, useOrganizationList } from './list.ts'
import { useRoles } from './roles.tsx'

const scopes = ['Read', 'Deploy', 'Write', 'Admin'].map((each) => ({ value: each, label: each }))
const dayMs = 86_400_000
const ends = [
  { value: '', label: 'Never' },
  { value: '7', label: 'In a week' },
  { value: '30', label: 'In 30 days' },
  { value: '365', label: 'In a year' },
]

export const Tokens = ({ organizationId }: Props) => {
  const may = useMay()
  const [isMaking, setMaking] = useState(false)
  const [made, setMade] = useState<string | null>(null)
  const roles = useRoles(organizationId, isMaking)
  const tokens = useOrganizationList('tokens', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/apiToken', inPath({ organizationId }))),
  )
  return (
    <div className="stack">
      {may('administer') ? <NewButton onClick={() => setMaking(true)}>New token</NewButton> : null}
      {made === null ? null : <Once label="The new token" value={made} />}
      <Rows
        of={tokens}
        empty={
          <Empty title="No tokens yet">
            <p>Programs, such as your CI, sign in with a token. It may only do what its scopes or its role allow.</p>
          </Empty>
        }
        columns={[
          {
            title: 'Name',
            show: ({ name, prefix, description }) => (
              <>
                <span className="strong">{name}</span> <code className="dim">{prefix}…</code>
                {description ? <p className="dim small wrap">{description}</p> : null}
              </>
            ),
          },
          {
            title: 'May',
            show: ({ scopes: held, role_name: role }) => (
              <span className="dim nowrap">{[...new Set([role, ...held])].filter(Boolean).join(', ')}</span>
            ),
          },
          {
            title: 'Last used',
            look: 'tight optional',
            show: ({ last_used_at, last_used_ip }) => (
              <>
                <Time at={last_used_at} />
                {last_used_ip === null ? null : <p className="dim small">{last_used_ip}</p>}
              </>
            ),
          },
          { title: 'Ends', look: 'tight optional', show: ({ expires_at }) => <Time at={expires_at} /> },
          {
            title: 'Actions',
            look: 'tight',
            show: ({ id, name }) =>
              may('administer') ? (
                <Remove
                  name={name}
                  what="Revoke"
                  changed={['tokens']}
                  consequence="It works no longer, and neither does any token that was created with it."
                  act={() =>
                    answerOf(
                      client.DELETE(
                        '/organization/{organizationId}/apiToken/{apiTokenId}',
                        inPath({ organizationId, apiTokenId: id }),
                      ),
                    )
                  }
                />
              ) : null,
          },
        ]}
      />
      {isMaking ? (
        <RecordForm
          title="New API token"
          button="Create"
          changed={['tokens']}
          onClose={() => setMaking(false)}
          fields={[
            { at: '/name', label: 'Name', isRequired: true },
            { at: '/scopes', label: 'Scopes', kind: 'many', options: scopes, initial: ['Read'] },
            {
              at: '/role_id',
              label: 'Role',
              kind: 'choice',
              hint: 'Narrows the scopes to what the role allows; without scopes, the role alone counts.',
              options: namesOf(roles.data),
            },
            { at: '/days', label: 'Ends', kind: 'choice', options: ends, initial: '' },
            { at: '/description', label: 'Description' },
          ]}
          save={async ({ days, ...body }) => {
            // Without either, a token would have all rights of its creator.
            if (body.scopes === undefined && body.role_id === undefined) {
              const message = 'Choose scopes, a role, or both.'
              throw new Problem(400, { message, details: [{ field: '/scopes', message }] })
            }
            const end =
              days === undefined ? {} : { expires_at: new Date(Date.now() + Number(days) * dayMs).toISOString() }
            const { token } = await answerOf(
              client.POST('/organization/{organizationId}/apiToken', {
                ...inPath({ organizationId }),
                body: { ...body, ...end } as { name: string },
              }),
            )
            setMade(token)
          }}
        />
      ) : null}
    </div>
  )
}
