/** What belongs to an organization: people and their roles, tokens, webhooks, clusters, and what was done by whom. */
import { Button, Checkbox, Modal, PasswordInput, Select, TextInput } from '@mantine/core'
import { type UseQueryResult, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { type FormEvent, type ReactNode, useState } from 'react'
import { answerOf, client, Problem } from '../api/client.ts'
import * as read from '../api/queries.ts'
import { Icon } from '../ui/icons.tsx'
import { Answer, Empty, Failure } from '../ui/notices.tsx'
import { useMay } from '../ui/place.ts'
import { StateMark } from '../ui/state.tsx'
import { Tabs } from '../ui/tabs.tsx'
import { Time } from '../ui/time.tsx'
import { tell, tellProblem } from '../ui/toasts.tsx'

const sections = {
  members: 'Members',
  roles: 'Roles',
  tokens: 'API tokens',
  webhooks: 'Webhooks',
  clusters: 'Clusters',
  audit: 'Audit log',
}

interface Props {
  organizationId: string
}

interface Column<Row> {
  title: string
  isTight?: boolean
  isOptional?: boolean
  show(row: Row): ReactNode
}

const classOf = ({
  isTight,
  isOptional,
}: {
  isTight?: boolean | undefined
  isOptional?: boolean | undefined
}): string => `${isTight === true ? 'tight' : ''} ${isOptional === true ? 'optional' : ''}`

function Rows<Row extends { id: string }>({
  of,
  columns,
  empty,
}: {
  of: UseQueryResult<Row[]>
  columns: Column<Row>[]
  empty: ReactNode
}) {
  return (
    <Answer of={of}>
      {(rows) =>
        rows.length === 0 ? (
          empty
        ) : (
          <div className="card scroll">
            <table className="list">
              <thead>
                <tr>
                  {columns.map((column) => (
                    <th key={column.title} className={classOf(column)}>
                      {column.title}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {rows.map((row) => (
                  <tr key={row.id}>
                    {columns.map((column) => (
                      <td key={column.title} className={`${classOf(column)} wrap`}>
                        {column.show(row)}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )
      }
    </Answer>
  )
}

const useOrganizationList = <Row,>(name: string, organizationId: string, ask: () => Promise<{ results: Row[] }>) =>
  useQuery({ queryKey: [name, organizationId], queryFn: async () => (await ask()).results })

const pathOf = (organizationId: string) => ({ params: { path: { organizationId } } })

interface DialogProps {
  title: string
  button: string
  isReady: boolean
  onClose(): void
  act(): Promise<unknown>
  /** What is read again. */
  changed: string
  children: ReactNode
}

const FormDialog = ({ title, button, isReady, onClose, act, changed, children }: DialogProps) => {
  const queries = useQueryClient()
  const acting = useMutation({
    mutationFn: act,
    onSuccess: () => void queries.invalidateQueries({ queryKey: [changed] }),
  })
  const submit = (event: FormEvent): void => {
    event.preventDefault()
    acting.mutate()
  }
  return (
    <Modal opened onClose={onClose} title={title} closeButtonProps={{ 'aria-label': 'Close' }}>
      <form className="stack" onSubmit={submit}>
        {children}
        {acting.error === null ? null : (
          <div className="note bad" role="alert">
            {acting.error.message}
          </div>
        )}
        <Button type="submit" loading={acting.isPending} disabled={!isReady}>
          {button}
        </Button>
      </form>
    </Modal>
  )
}

const useRoles = (organizationId: string) =>
  useOrganizationList('roles', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/availableRole', pathOf(organizationId))),
  )

const NewButton = ({ children, onClick }: { children: string; onClick(): void }) => (
  <div>
    <Button leftSection={<Icon name="plus" size={14} />} onClick={onClick}>
      {children}
    </Button>
  </div>
)

/** Shown once: the server keeps none of it. */
const Once = ({ label, value }: { label: string; value: string }) => (
  <div className="note warn stack tight">
    <strong>{label}: copy it now, it is not shown again.</strong>
    <TextInput
      aria-label={label}
      readOnly
      value={value}
      styles={{ input: { fontFamily: 'var(--mono)' } }}
      rightSectionWidth={70}
      rightSection={
        <Button size="compact-xs" variant="default" onClick={() => void navigator.clipboard.writeText(value)}>
          Copy
        </Button>
      }
    />
  </div>
)

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

const Members = ({ organizationId }: Props) => {
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

const levelWords: Record<string, string> = {
  NO_ACCESS: 'no access',
  VIEWER: 'views',
  DEPLOYER: 'deploys',
  MANAGER: 'manages',
}

const Roles = ({ organizationId }: Props) => {
  const roles = useRoles(organizationId)
  const custom = useOrganizationList('custom roles', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/customRole', pathOf(organizationId))),
  )
  const known = new Set((custom.data ?? []).map(({ id }) => id))
  const builtIn = { ...roles, data: roles.data?.filter(({ id }) => !known.has(id)) } as typeof roles
  const meaning: Record<string, string> = {
    owner: 'Everything, and who owns the organization',
    admin: 'Everything but who owns the organization',
    devops: 'Projects, clusters, webhooks and tokens',
    viewer: 'Reads everything but secrets',
    billing: 'Reads settings and clusters',
  }
  return (
    <div className="stack">
      <Rows
        of={builtIn}
        empty={null}
        columns={[
          { title: 'Role', isTight: true, show: ({ name }) => <span className="strong">{name}</span> },
          { title: 'May', show: ({ name }) => <span className="dim">{meaning[name.toLowerCase()] ?? ''}</span> },
        ]}
      />
      {(custom.data ?? []).map(({ id, name, description, project_permissions: projects }) => (
        <section key={id} className="card">
          <header>
            <h2 className="wrap">{name}</h2>
            <span className="dim wrap">{description}</span>
          </header>
          <div className="scroll">
            <table className="list">
              <thead>
                <tr>
                  <th>Project</th>
                  {['Development', 'Preview', 'Staging', 'Production'].map((mode) => (
                    <th key={mode}>{mode}</th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {projects.map(({ project_id, project_name, is_admin, permissions }) => (
                  <tr key={project_id}>
                    <td className="wrap">{project_name}</td>
                    {['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION'].map((mode) => (
                      <td key={mode} className="dim">
                        {is_admin === true
                          ? 'administers'
                          : levelWords[
                              permissions?.find(({ environment_type }) => environment_type === mode)?.permission ??
                                'NO_ACCESS'
                            ]}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      ))}
    </div>
  )
}

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

interface RemoveProps {
  name: string
  what: string
  consequence: string
  changed: string
  act(): Promise<unknown>
}

const Remove = ({ name, what, consequence, changed, act }: RemoveProps) => {
  const [isAsked, setAsked] = useState(false)
  return (
    <>
      <Button size="compact-sm" variant="default" onClick={() => setAsked(true)}>
        {what}
      </Button>
      {isAsked ? (
        <FormDialog
          title={`${what} ${name}`}
          button={what}
          isReady
          onClose={() => setAsked(false)}
          changed={changed}
          act={async () => {
            await act()
            setAsked(false)
          }}
        >
          <p>{consequence}</p>
        </FormDialog>
      ) : null}
    </>
  )
}

const Tokens = ({ organizationId }: Props) => {
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

const Webhooks = ({ organizationId }: Props) => {
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

const Clusters = ({ organizationId }: Props) => {
  const clusters = useOrganizationList('clusters', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/cluster', pathOf(organizationId))),
  )
  return (
    <Rows
      of={clusters}
      empty={<Empty title="No clusters" />}
      columns={[
        {
          title: 'Cluster',
          show: ({ name, description }) => (
            <>
              <span className="strong">{name}</span>
              <p className="dim small">{description}</p>
            </>
          ),
        },
        { title: 'State', isTight: true, show: ({ status }) => <StateMark state={status} /> },
        {
          title: 'CPU',
          isTight: true,
          isOptional: true,
          show: ({ cpu }) => (cpu == null ? '–' : `${cpu / 1000} cores`),
        },
        {
          title: 'Memory',
          isTight: true,
          isOptional: true,
          show: ({ memory }) => (memory == null ? '–' : `${Math.round(memory / 102.4) / 10} GB`),
        },
        { title: 'Version', isTight: true, isOptional: true, show: ({ version }) => version ?? '–' },
      ]}
    />
  )
}

const Audit = ({ organizationId }: Props) => {
  const events = useQuery({
    queryKey: ['audit', organizationId],
    queryFn: async () =>
      (
        await answerOf(
          client.GET('/organization/{organizationId}/events', {
            params: { path: { organizationId }, query: { pageSize: 60 } },
          }),
        )
      ).events,
  })
  return (
    <Rows
      of={events}
      empty={<Empty title="Nothing was done yet" />}
      columns={[
        { title: 'When', isTight: true, show: ({ timestamp }) => <Time at={timestamp} /> },
        {
          title: 'What',
          show: ({ event_type: type, target_type: target, sub_target_type: sub, target_name: name }) => (
            <>
              {`${type} ${sub ?? target}`.toLowerCase().replaceAll('_', ' ')} <span className="strong">{name}</span>
            </>
          ),
        },
        {
          title: 'Where',
          isOptional: true,
          show: ({ project_name: project, environment_name: environment }) => (
            <span className="dim">{[project, environment].filter(Boolean).join(' / ')}</span>
          ),
        },
        {
          title: 'By',
          isOptional: true,
          show: ({ triggered_by: by, origin }) => <span className="dim">{`${by}, ${origin.toLowerCase()}`}</span>,
        },
      ]}
    />
  )
}

const pages: Record<string, (props: Props) => ReactNode> = {
  members: Members,
  roles: Roles,
  tokens: Tokens,
  webhooks: Webhooks,
  clusters: Clusters,
  audit: Audit,
}

export const Organization = () => {
  const { organizationId, section } = useParams({ from: '/frame/o/$organizationId/$section' })
  const { data } = useQuery(read.organizations())
  const name = data?.find(({ id }) => id === organizationId)?.name
  read.useTitle(sections[section as keyof typeof sections], name)
  const Page = pages[section]
  if (Page === undefined) return <Failure error={new Problem(404, {})} />
  return (
    <>
      <div className="head">
        <h1>{name ?? 'Organization'}</h1>
      </div>
      <Tabs base={`/o/${organizationId}`} at={section} sections={sections} label="Of this organization" />
      <Page key={organizationId} organizationId={organizationId} />
    </>
  )
}
