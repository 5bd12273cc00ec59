/** Addresses that are told about deployments, and what was sent to them. */
import { Button, Checkbox, PasswordInput, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client } from '../../api/client.ts'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { Time } from '../../ui/time.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import { FormDialog, NewButton, Once, Remove } from './dialog.tsx'
import { type Props, pathOf, Rows, useOrganizationList } from './list.tsx'

const eventWords = {
  DEPLOYMENT_STARTED: 'started',
  DEPLOYMENT_SUCCESSFUL: 'succeeded',
  DEPLOYMENT_FAILURE: 'failed',
  DEPLOYMENT_CANCELLED: 'canceled',
}
const allEvents = Object.keys(eventWords) as (keyof typeof eventWords)[]

const NewWebhook = ({ organizationId, onClose, onMade }: Props & { onClose(): void; onMade(secret: string): void }) => {
  const [url, setUrl] = useState('')
  const [secret, setSecret] = useState('')
  const [events, setEvents] = useState<string[]>(allEvents)
  return (
    <FormDialog
      title="New webhook"
      button="Create"
      isReady={url !== '' && events.length > 0}
      onClose={onClose}
      changed="webhooks"
      act={async () => {
        const body = {
          kind: 'STANDARD' as const,
          target_url: url,
          enabled: true,
          events: events as ['DEPLOYMENT_STARTED'],
          ...(secret === '' ? {} : { target_secret: secret }),
        }
        const made = await answerOf(
          client.POST('/organization/{organizationId}/webhook', { ...pathOf(organizationId), body: body as never }),
        )
        onMade(made.signing_secret)
        onClose()
      }}
    >
      <TextInput
        label="Address"
        type="url"
        required
        data-autofocus
        placeholder="https://example.org/hook"
        value={url}
        onChange={(event) => setUrl(event.currentTarget.value)}
      />
      <PasswordInput
        label="Secret"
        description="Signs the deliveries. Without one the server makes it."
        value={secret}
        onChange={(event) => setSecret(event.currentTarget.value)}
        autoComplete="off"
        visibilityToggleButtonProps={{ 'aria-label': 'Show the secret' }}
      />
      <Checkbox.Group label="When a deployment has" value={events} onChange={setEvents}>
        <div className="row wraps" style={{ marginTop: 6 }}>
          {allEvents.map((event) => (
            <Checkbox key={event} value={event} label={eventWords[event]} />
          ))}
        </div>
      </Checkbox.Group>
    </FormDialog>
  )
}

const Deliveries = ({ organizationId, webhookId }: Props & { webhookId: string }) => {
  const queries = useQueryClient()
  const may = useMay()
  const path = { organizationId, webhookId }
  const deliveries = useQuery({
    queryKey: ['deliveries', webhookId],
    queryFn: async () =>
      (await answerOf(client.GET('/organization/{organizationId}/webhook/{webhookId}/event', { params: { path } })))
        .results,
  })
  const resending = useMutation({
    mutationFn: (webhookEventId: string) =>
      answerOf(
        client.POST('/organization/{organizationId}/webhook/{webhookId}/event/{webhookEventId}/resend', {
          params: { path: { ...path, webhookEventId } },
        }),
      ),
    onSuccess() {
      tell('It is being sent again.')
      void queries.invalidateQueries({ queryKey: ['deliveries', webhookId] })
    },
    onError: tellProblem,
  })
  return (
    <Rows
      of={deliveries}
      empty={<p className="dim">Nothing was sent yet.</p>}
      columns={[
        { title: 'Event', show: ({ matched_event }) => matched_event.toLowerCase().replaceAll('_', ' ') },
        { title: 'Answer', show: ({ target_response_status_code: code, error }) => error ?? String(code) },
        { title: 'Sent', isTight: true, show: ({ created_at }) => <Time at={created_at} /> },
        {
          title: 'Actions',
          isTight: true,
          show: ({ id }) =>
            may('administer') ? (
              <Button size="compact-sm" variant="default" onClick={() => resending.mutate(id)}>
                Send again
              </Button>
            ) : null,
        },
      ]}
    />
  )
}

export const Webhooks = ({ organizationId }: Props) => {
  const may = useMay()
  const [isMaking, setMaking] = useState(false)
  const [secret, setSecret] = useState<string | null>(null)
  const [opened, open] = useState<string | null>(null)
  const webhooks = useOrganizationList('webhooks', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/webhook', pathOf(organizationId))),
  )
  return (
    <div className="stack">
      {may('administer') ? <NewButton onClick={() => setMaking(true)}>New webhook</NewButton> : null}
      {secret === null ? null : <Once label="The secret that signs the deliveries" value={secret} />}
      <Rows
        of={webhooks}
        empty={
          <Empty title="No webhooks">
            <p>A webhook tells an address of yours when deployments start, succeed or fail.</p>
          </Empty>
        }
        columns={[
          { title: 'Address', show: ({ target_url }) => <span className="strong">{target_url}</span> },
          { title: 'State', isTight: true, show: ({ enabled }) => (enabled === false ? 'disabled' : 'enabled') },
          {
            title: 'Actions',
            isTight: true,
            show: ({ id, target_url }) => (
              <span className="row">
                <Button
                  size="compact-sm"
                  variant="default"
                  aria-expanded={opened === id}
                  onClick={() => open(opened === id ? null : id)}
                >
                  Deliveries
                </Button>
                {may('administer') ? (
                  <Remove
                    name={target_url ?? ''}
                    what="Delete"
                    changed="webhooks"
                    consequence="Nothing is sent to this address any more."
                    act={() =>
                      answerOf(
                        client.DELETE('/organization/{organizationId}/webhook/{webhookId}', {
                          params: { path: { organizationId, webhookId: id } },
                        }),
                      )
                    }
                  />
                ) : null}
              </span>
            ),
          },
        ]}
      />
      {opened === null ? null : <Deliveries organizationId={organizationId} webhookId={opened} />}
      {isMaking ? (
        <NewWebhook organizationId={organizationId} onClose={() => setMaking(false)} onMade={setSecret} />
      ) : null}
    </div>
  )
}
