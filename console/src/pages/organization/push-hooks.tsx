/** Webhooks that a git host or a registry calls after a push, so that it is deployed within a second. */

import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath, type Schemas } from '../../api/client.ts'
import { refresh } from '../../api/queries.ts'
import { Copied, NewButton, Once, Remove } from '../../ui/dialog.tsx'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { namesOf, RecordForm } from '../../ui/record-form.tsx'
import { Rows } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { Time } from '../../ui/time.tsx'
import { tellProblem } from '../../ui/toasts.tsx'
import { type Props, useOrganizationList } from './list.ts'

type Hook = Schemas['GitWebhook']
type Made = Hook & { signing_secret: string; secret_url: string }

const Secrets = ({ made }: { made: Made }) => (
  <div className="stack tight">
    <Once label="The secret of the webhook" value={made.signing_secret} />
    <p className="dim small">For hosts that send no secret, such as Docker Hub, this address has it in itself:</p>
    <Copied label="The address with the secret" value={made.secret_url} />
  </div>
)

const Rotate = ({ organizationId, hook, onMade }: Props & { hook: Hook; onMade(made: Made): void }) => {
  const rotating = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST(
          '/organization/{organizationId}/gitWebhook/{gitWebhookId}/rotate',
          inPath({ organizationId, gitWebhookId: hook.id }),
        ),
      ),
    onSuccess(made) {
      onMade(made as Made)
      void refresh('push hooks')
    },
    onError: tellProblem,
  })
  return (
    <SmallButton loading={rotating.isPending} onClick={() => rotating.mutate()}>
      New secret
    </SmallButton>
  )
}

export const PushHooks = ({ organizationId }: Props) => {
  const may = useMay()
  const [isMaking, setMaking] = useState(false)
  const [made, setMade] = useState<Made | null>(null)
  const hooks = useOrganizationList('push hooks', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/gitWebhook', inPath({ organizationId }))),
  )
  const tokens = useOrganizationList('gitToken', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/gitToken', inPath({ organizationId }))),
  )
  const nameOf = new Map((tokens.data ?? []).map(({ id, name }) => [id, name]))
  return (
    <div className="stack">
      <p className="dim">
        Enter the address and the secret at your git host or registry, with its push events and, for previews, those of
        pull requests. Without one, repositories are asked every minute.
      </p>
      {may('write') ? <NewButton onClick={() => setMaking(true)}>New push hook</NewButton> : null}
      {made === null ? null : <Secrets made={made} />}
      <Rows
        of={hooks}
        empty={
          <Empty title="No push hooks yet">
            <p>With one, a push is deployed within a second.</p>
          </Empty>
        }
        columns={[
          {
            title: 'Address',
            show: ({ url, description }) => (
              <div className="stack tight">
                {description ? <span className="strong wrap">{description}</span> : null}
                <Copied label="Address of the push hook" value={url} />
              </div>
            ),
          },
          {
            title: 'For',
            look: 'tight optional',
            show: ({ git_token_id: id }) =>
              id == null ? 'all repositories' : `those of ${nameOf.get(id) ?? 'a git token'}`,
          },
          {
            title: 'Last delivery',
            look: 'tight optional',
            show: ({ last_delivery_at: at }) => <Time at={at} />,
          },
          {
            title: 'Actions',
            look: 'tight',
            show: (hook) => (
              <span className="row wraps">
                {may('write') ? <Rotate organizationId={organizationId} hook={hook} onMade={setMade} /> : null}
                {may('administer') ? (
                  <Remove
                    name={hook.description || 'the push hook'}
                    what="Delete"
                    changed={['push hooks']}
                    consequence="What is sent to its address is refused. Repositories are asked every minute instead."
                    act={() =>
                      answerOf(
                        client.DELETE(
                          '/organization/{organizationId}/gitWebhook/{gitWebhookId}',
                          inPath({ organizationId, gitWebhookId: hook.id }),
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
      {isMaking ? (
        <RecordForm
          title="New push hook"
          button="Create"
          changed={['push hooks']}
          onClose={() => setMaking(false)}
          fields={[
            { at: '/description', label: 'Description', placeholder: 'our git host' },
            {
              at: '/git_token_id',
              label: 'Only repositories read with',
              kind: 'choice',
              hint: 'Left empty, it serves all repositories and registries of the organization.',
              options: namesOf(tokens.data),
            },
          ]}
          save={async (body) => {
            const answer = await answerOf(
              client.POST('/organization/{organizationId}/gitWebhook', {
                ...inPath({ organizationId }),
                body: body as never,
              }),
            )
            setMade(answer as Made)
          }}
        />
      ) : null}
    </div>
  )
}
