/** Tokens of programs. Their text is shown once. */
import { Checkbox, TextInput } from '@mantine/core'
import { useState } from 'react'
import { answerOf, client } from '../../api/client.ts'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { Time } from '../../ui/time.tsx'
import { FormDialog, NewButton, Once, Remove } from './dialog.tsx'
import { type Props, pathOf, Rows, useOrganizationList } from './list.tsx'

const scopes = ['Read', 'Deploy', 'Write', 'Admin'] as const

const NewToken = ({ organizationId, onClose, onMade }: Props & { onClose(): void; onMade(token: string): void }) => {
  const [name, setName] = useState('')
  const [held, setHeld] = useState<string[]>(['Read'])
  return (
    <FormDialog
      title="New API token"
      button="Create"
      isReady={name !== '' && held.length > 0}
      onClose={onClose}
      changed="tokens"
      act={async () => {
        const made = await answerOf(
          client.POST('/organization/{organizationId}/apiToken', {
            ...pathOf(organizationId),
            body: { name, scopes: held as ['Read'] },
          }),
        )
        onMade(made.token)
        onClose()
      }}
    >
      <TextInput
        label="Name"
        required
        data-autofocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <Checkbox.Group label="Scopes" value={held} onChange={setHeld}>
        <div className="row wraps" style={{ marginTop: 6 }}>
          {scopes.map((scope) => (
            <Checkbox key={scope} value={scope} label={scope} />
          ))}
        </div>
      </Checkbox.Group>
    </FormDialog>
  )
}

export const Tokens = ({ organizationId }: Props) => {
  const may = useMay()
  const [isMaking, setMaking] = useState(false)
  const [made, setMade] = useState<string | null>(null)
  const tokens = useOrganizationList('tokens', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/apiToken', pathOf(organizationId))),
  )
  return (
    <div className="stack">
      {may('administer') ? <NewButton onClick={() => setMaking(true)}>New token</NewButton> : null}
      {made === null ? null : <Once label="The new token" value={made} />}
      <Rows
        of={tokens}
        empty={<Empty title="No tokens" />}
        columns={[
          {
            title: 'Name',
            show: ({ name, prefix }) => (
              <>
                <span className="strong">{name}</span> <code className="dim">{prefix}…</code>
              </>
            ),
          },
          {
            title: 'May',
            show: ({ scopes: held, role_name: role }) => (
              <span className="dim">{[...new Set([role, ...held])].filter(Boolean).join(', ')}</span>
            ),
          },
          {
            title: 'Last used',
            isTight: true,
            isOptional: true,
            show: ({ last_used_at }) => <Time at={last_used_at} />,
          },
          { title: 'Ends', isTight: true, isOptional: true, show: ({ expires_at }) => <Time at={expires_at} /> },
          {
            title: 'Actions',
            isTight: true,
            show: ({ id, name }) =>
              may('administer') ? (
                <Remove
                  name={name}
                  what="Revoke"
                  changed="tokens"
                  consequence="It works no longer, and neither does any token that was created with it."
                  act={() =>
                    answerOf(
                      client.DELETE('/organization/{organizationId}/apiToken/{apiTokenId}', {
                        params: { path: { organizationId, apiTokenId: id } },
                      }),
                    )
                  }
                />
              ) : null,
          },
        ]}
      />
      {isMaking ? <NewToken organizationId={organizationId} onClose={() => setMaking(false)} onMade={setMade} /> : null}
    </div>
  )
}
