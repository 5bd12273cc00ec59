/** Addresses that get events of deployments, and the deliveries to them. */

import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath, resultsOf, type Schemas } from '../../api/client.ts'
import { refresh } from '../../api/queries.ts'
import { DialogFrame, NewButton, Once, Remove } from '../../ui/dialog.tsx'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { type FieldSpec, optionsOf, RecordForm } from '../../ui/record-form.tsx'
import { Rows } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { Time } from '../../ui/time.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import { modeWords } from '../overview.tsx'
import { type Props, useOrganizationList } from './list.ts'

type Webhook = Schemas['Webhook']

const eventWords: Record<string, string> = {
  DEPLOYMENT_STARTED: 'started',
  DEPLOYMENT_SUCCESSFUL: 'succeeded',
  DEPLOYMENT_FAILURE: 'failed',
  DEPLOYMENT_CANCELLED: 'canceled',
}
const fields: readonly FieldSpec[] = [
  { at: '/target_url', label: 'Address', placeholder: 'https://example.org/hook', isRequired: true },
  {
    at: '/kind',
    label: 'What is sent',
    kind: 'choice',
    options: [
      { value: 'STANDARD', label: 'JSON, signed as Standard Webhooks' },
      { value: 'SLACK', label: 'A message for Slack' },
    ],
    initial: 'STANDARD',
  },
  {
    at: '/events',
    label: 'When a deployment has',
    kind: 'many',
    options: optionsOf(eventWords),
    isRequired: true,
    initial: Object.keys(eventWords),
  },
  { at: '/environment_types_filter', label: 'Only in environments of', kind: 'many', options: optionsOf(modeWords) },
  {
    at: '/target_secret',
    label: 'Secret',
    kind: 'secret',
    hint: 'Signs the deliveries. Without one the server makes it.',
  },
  { at: '/description', label: 'Description' },
  { at: '/enabled', label: 'Send to it', kind: 'switch', initial: true },
]

interface Delivery {
  id: string
  created_at: string
  matched_event: string
  request: Record<string, unknown>
  target_response_status_code: number
  target_response_body: string | null
  error: string | null
  attempt: number
  duration_ms: number
}

const Payload = ({ delivery, onClose }: { delivery: Delivery; onClose(): void }) => (
  <DialogFrame title="A delivery" size="xl" onClose={onClose}>
    <div className="stack">
      <p className="dim">
        Attempt {delivery.attempt}, <Time at={delivery.created_at} />, {delivery.duration_ms} ms:{' '}
        <span className="wrap">{delivery.error ?? `answered ${delivery.target_response_status_code}`}</span>
      </p>
      <h3>What was sent</h3>
      <pre className="code" data-autofocus>
        {JSON.stringify(delivery.request, null, 2)}
      </pre>
      {delivery.target_response_body === null || delivery.target_response_body === '' ? null : (
        <>
          <h3>What was answered</h3>
          <pre className="code">{delivery.target_response_body}</pre>
        </>
      )}
    </div>
  </DialogFrame>
)

const Outcome = ({ delivery: { target_response_status_code: code, error } }: { delivery: Delivery }) => {
  const isGood = error === null && code >= 200 && code < 300
  return <span className={`wrap ${isGood ? '' : 'state-text bad'}`}>{error ?? `answered ${code}`}</span>
}

const Deliveries = ({ organizationId, webhookId }: Props & { webhookId: string }) => {
  const may = useMay()
  const [shown, show] = useState<Delivery | null>(null)
  const path = { organizationId, webhookId }
  const deliveries = useQuery({
    queryKey: ['deliveries', webhookId],
    queryFn: (): Promise<Delivery[]> =>
      resultsOf(client.GET('/organization/{organizationId}/webhook/{webhookId}/event', inPath(path))),
  })
  const resending = useMutation({
    mutationFn: (webhookEventId: string) =>
      answerOf(
        client.POST(
          '/organization/{organizationId}/webhook/{webhookId}/event/{webhookEventId}/resend',
          inPath({ ...path, webhookEventId }),
        ),
      ),
    onSuccess() {
      tell('It is being sent again.')
      void refresh(['deliveries', webhookId])
    },
    onError: tellProblem,
  })
  return (
    <section className="stack">
      <div className="row">
        <h2>Deliveries</h2>
        <SmallButton className="push" onClick={() => void deliveries.refetch()}>
          Read again
        </SmallButton>
      </div>
      <Rows
        of={deliveries}
        empty={<p className="dim">Nothing has been sent yet.</p>}
        columns={[
          { title: 'Event', show: ({ matched_event }) => matched_event.toLowerCase().replaceAll('_', ' ') },
          { title: 'Result', show: (row) => <Outcome delivery={row} /> },
          { title: 'Attempt', look: 'tight optional', show: ({ attempt }) => attempt },
          { title: 'Sent', look: 'tight', show: ({ created_at }) => <Time at={created_at} /> },
          {
            title: 'Actions',
            look: 'tight',
            show: (row) => (
              <span className="row">
                <SmallButton onClick={() => show(row)}>Payload</SmallButton>
                {may('write') ? <SmallButton onClick={() => resending.mutate(row.id)}>Send again</SmallButton> : null}
              </span>
            ),
          },
        ]}
      />
      {shown === null ? null : <Payload delivery={shown} onClose={() => show(null)} />}
    </section>
  )
}

type Opened = { edit: Webhook } | 'new' | null

const Editor = ({
  organizationId,
  opened,
  onClose,
  onMade,
}: Props & { opened: NonNullable<Opened>; onClose(): void; onMade(secret: string): void }) => {
  const webhook = opened === 'new' ? undefined : opened.edit
  return (
    <RecordForm
      title={webhook === undefined ? 'New webhook' : 'Edit the webhook'}
      button={webhook === undefined ? 'Create' : 'Save'}
      fields={fields}
      record={webhook}
      changed={['webhooks']}
      onClose={onClose}
      save={async (body) => {
        if (webhook === undefined) {
          const made = await answerOf(
            client.POST('/organization/{organizationId}/webhook', {
              ...inPath({ organizationId }),
              body: body as never,
            }),
          )
          onMade(made.signing_secret)
          return
        }
        await answerOf(
          client.PUT('/organization/{organizationId}/webhook/{webhookId}', {
            params: { path: { organizationId, webhookId: webhook.id } },
            body: body as never,
          }),
        )
        tell('Saved.')
      }}
    />
  )
}

export const Webhooks = ({ organizationId }: Props) => {
  const may = useMay()
  const [opened, open] = useState<Opened>(null)
  const [secret, setSecret] = useState<string | null>(null)
  const [followed, follow] = useState<string | null>(null)
  const webhooks = useOrganizationList('webhooks', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/webhook', inPath({ organizationId }))),
  )
  return (
    <div className="stack">
      {may('write') ? <NewButton onClick={() => open('new')}>New webhook</NewButton> : null}
      {secret === null ? null : <Once label="The secret that signs the deliveries" value={secret} />}
      <Rows
        of={webhooks}
        empty={
          <Empty title="No webhooks yet">
            <p>A webhook calls an address of yours when deployments start, succeed or fail.</p>
          </Empty>
        }
        columns={[
          {
            title: 'Address',
            show: ({ target_url, description }) => (
              <>
                <span className="strong">{target_url}</span>
                {description ? <p className="dim small wrap">{description}</p> : null}
              </>
            ),
          },
          {
            title: 'State',
            look: 'tight optional',
            show: ({ enabled }) => (enabled === false ? 'disabled' : 'enabled'),
          },
          {
            title: 'Actions',
            look: 'tight',
            show: (row) => (
              <span className="row wraps">
                <SmallButton
                  aria-expanded={followed === row.id}
                  onClick={() => follow(followed === row.id ? null : row.id)}
                >
                  Deliveries
                </SmallButton>
                {may('write') ? <SmallButton onClick={() => open({ edit: row })}>Edit</SmallButton> : null}
                {may('administer') ? (
                  <Remove
                    name={row.target_url ?? ''}
                    what="Delete"
                    changed={['webhooks']}
                    consequence="Nothing is sent to this address any more."
                    act={() =>
                      answerOf(
                        client.DELETE(
                          '/organization/{organizationId}/webhook/{webhookId}',
                          inPath({ organizationId, webhookId: row.id }),
                        ),
                      )
                    }
                  />
                ) : null}
              </span>
            ),
          },
        ]}
      />
      {followed === null ? null : <Deliveries organizationId={organizationId} webhookId={followed} />}
      {opened === null ? null : (
        <Editor
          key={opened === 'new' ? 'new' : opened.edit.id}
          organizationId={organizationId}
          opened={opened}
          onClose={() => open(null)}
          onMade={setSecret}
        />
      )}
    </div>
  )
}
