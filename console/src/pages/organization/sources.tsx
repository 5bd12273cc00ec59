/** The sources of images, charts and repositories, and their credentials. */

import type { Schemas } from '../../api/client.ts'
import type { FieldSpec, Values } from '../../ui/record-form.tsx'
import { optionsOf } from '../../ui/record-form.tsx'
import { Time } from '../../ui/time.tsx'
import { Collection } from './collection.tsx'
import type { Props } from './list.ts'

const registryKinds: Record<string, string> = {
  DOCKER_HUB: 'Docker Hub',
  GENERIC_CR: 'Any registry',
  GITHUB_CR: 'GitHub',
  GITHUB_ENTERPRISE_CR: 'GitHub Enterprise',
  GITLAB_CR: 'GitLab',
  ECR: 'Amazon ECR',
  PUBLIC_ECR: 'Amazon ECR, public',
  SCALEWAY_CR: 'Scaleway',
  GCP_ARTIFACT_REGISTRY: 'Google Artifact Registry',
  AZURE_CR: 'Azure',
  DOCR: 'DigitalOcean',
}

const chartKinds: Record<string, string> = {
  HTTPS: 'Chart repository (HTTPS)',
  OCI_GENERIC_CR: 'Any OCI registry',
  OCI_DOCKER_HUB: 'Docker Hub (OCI)',
  OCI_GITHUB_CR: 'GitHub (OCI)',
  OCI_GITLAB_CR: 'GitLab (OCI)',
  OCI_ECR: 'Amazon ECR (OCI)',
  OCI_PUBLIC_ECR: 'Amazon ECR, public (OCI)',
  OCI_SCALEWAY_CR: 'Scaleway (OCI)',
}

const kindIn =
  (...kinds: string[]) =>
  (values: Values): boolean =>
    kinds.includes(String(values['/kind']).replace(/^OCI_/, ''))

const isOpen = kindIn('PUBLIC_ECR')
const isCloud = kindIn('ECR', 'SCALEWAY_CR', 'GCP_ARTIFACT_REGISTRY', 'AZURE_CR')
const hasPassword = (values: Values): boolean => !isOpen(values) && !isCloud(values)

const logins: readonly FieldSpec[] = [
  { at: '/config/username', label: 'User name', when: hasPassword },
  { at: '/config/password', label: 'Password or token', kind: 'secret', when: hasPassword },
  { at: '/config/region', label: 'Region', isRequired: true, when: kindIn('ECR', 'SCALEWAY_CR') },
  { at: '/config/access_key_id', label: 'Access key id', when: kindIn('ECR') },
  { at: '/config/secret_access_key', label: 'Secret access key', kind: 'secret', when: kindIn('ECR') },
  { at: '/config/role_arn', label: 'Role (ARN), instead of a key', when: kindIn('ECR') },
  { at: '/config/scaleway_access_key', label: 'Access key', when: kindIn('SCALEWAY_CR') },
  { at: '/config/scaleway_secret_key', label: 'Secret key', kind: 'secret', when: kindIn('SCALEWAY_CR') },
  { at: '/config/scaleway_project_id', label: 'Project', when: kindIn('SCALEWAY_CR') },
]

const describing: FieldSpec = { at: '/description', label: 'Description' }

const registryFields: readonly FieldSpec[] = [
  { at: '/name', label: 'Name', isRequired: true },
  {
    at: '/kind',
    label: 'Kind',
    kind: 'choice',
    options: optionsOf(registryKinds),
    isRequired: true,
    initial: 'GENERIC_CR',
  },
  { at: '/url', label: 'Address', placeholder: 'https://registry.example.org', isRequired: true },
  ...logins,
  {
    at: '/config/json_credentials',
    label: 'Key of the service account (JSON)',
    kind: 'secret',
    when: kindIn('GCP_ARTIFACT_REGISTRY'),
  },
  { at: '/config/azure_tenant_id', label: 'Tenant', isRequired: true, when: kindIn('AZURE_CR') },
  { at: '/config/azure_subscription_id', label: 'Subscription', isRequired: true, when: kindIn('AZURE_CR') },
  describing,
]

/** A name, with details in small print. */
const Named = ({ name, notes }: { name: string | undefined; notes: readonly (string | null | undefined)[] }) => (
  <>
    <span className="strong">{name}</span>
    {notes.map((note) =>
      note ? (
        <p key={note} className="dim small wrap">
          {note}
        </p>
      ) : null,
    )}
  </>
)

const usingServices = {
  path: 'associatedServices',
  count: (row: { associated_services_count: number }) => row.associated_services_count,
}

const loginWords = { CREDENTIALS: 'with a login', ANONYMOUS: 'without a login', NOT_POSSIBLE: 'not possible' }

export const Registries = ({ organizationId }: Props) => (
  <Collection<Schemas['ContainerRegistry']>
    organizationId={organizationId}
    noun="registry"
    path="containerRegistry"
    right="write"
    fields={registryFields}
    users={usingServices}
    consequence="Services that use it cannot pull their image any more."
    empty={<p>Images are pulled from registries. Public ones need no login.</p>}
    columns={[
      {
        title: 'Registry',
        show: ({ name, url, description }) => <Named name={name} notes={[url, description]} />,
      },
      { title: 'Kind', look: 'tight optional', show: ({ kind }) => registryKinds[kind ?? ''] ?? kind },
      {
        title: 'Pulls',
        show: ({ login }) => (
          <>
            <span className={login.state === 'NOT_POSSIBLE' ? 'state bad' : 'dim'}>{loginWords[login.state]}</span>
            {login.message === null ? null : <p className="dim small wrap">{login.message}</p>}
          </>
        ),
      },
    ]}
  />
)

const chartFields: readonly FieldSpec[] = [
  { at: '/name', label: 'Name', isRequired: true },
  { at: '/kind', label: 'Kind', kind: 'choice', options: optionsOf(chartKinds), isRequired: true, initial: 'HTTPS' },
  { at: '/url', label: 'Address', placeholder: 'https://charts.example.org', isRequired: true },
  ...logins,
  describing,
]

export const Charts = ({ organizationId }: Props) => (
  <Collection<Schemas['HelmRepository']>
    organizationId={organizationId}
    noun="chart repository"
    path="helmRepository"
    right="write"
    fields={chartFields}
    users={usingServices}
    consequence="Helm services that use it cannot be deployed any more."
    empty={<p>Charts of helm services come from chart repositories, or from git.</p>}
    columns={[
      {
        title: 'Repository',
        show: ({ name, url }) => <Named name={name} notes={[url]} />,
      },
      { title: 'Kind', look: 'tight optional', show: ({ kind }) => chartKinds[kind ?? ''] ?? kind },
    ]}
  />
)

const hosts = { GITHUB: 'GitHub, Gitea or Forgejo', GITLAB: 'GitLab', BITBUCKET: 'Bitbucket' }

const gitFields: readonly FieldSpec[] = [
  { at: '/name', label: 'Name', isRequired: true },
  {
    at: '/type',
    label: 'Kind of host',
    kind: 'choice',
    options: optionsOf(hosts),
    isRequired: true,
    initial: 'GITHUB',
  },
  { at: '/token', label: 'Token', kind: 'secret', isRequired: true },
  {
    at: '/git_api_url',
    label: 'Address of the API',
    placeholder: 'https://git.example.org/api/v1',
    hint: 'API of your own git host; the token is sent to this host only.',
  },
  { at: '/workspace', label: 'Workspace', when: (values) => values['/type'] === 'BITBUCKET' },
  { at: '/expired_at', label: 'Ends on', placeholder: '2030-01-31T00:00:00Z' },
  describing,
]

export const GitTokens = ({ organizationId }: Props) => (
  <Collection<Schemas['GitToken']>
    organizationId={organizationId}
    noun="git token"
    path="gitToken"
    right="write"
    fields={gitFields}
    users={usingServices}
    consequence="Services that use it cannot read their repository any more."
    empty={<p>A git token reads private repositories, and writes statuses of commits and comments on pull requests.</p>}
    columns={[
      {
        title: 'Token',
        show: ({ name, description }) => <Named name={name} notes={[description]} />,
      },
      { title: 'Host', look: 'optional', show: ({ git_api_url: url }) => <span className="dim">{url}</span> },
      { title: 'Ends', look: 'tight optional', show: ({ expired_at: at }) => <Time at={at} /> },
    ]}
  />
)

const scopeWord = (scope: string): string => scope.toLowerCase().replaceAll('_', ' ').replace('hpa', 'autoscalers')

const scopeWords = [
  'DEPLOYMENTS',
  'STATEFUL_SETS',
  'SERVICES',
  'INGRESS',
  'GATEWAY_API_ROUTES',
  'HPA',
  'PODS',
  'SECRETS',
  'JOBS',
  'CRON_JOBS',
].map((value) => ({ value, label: scopeWord(value) }))

const PairList = ({ pairs }: { pairs: readonly { key: string; value: string }[] }) => (
  <span className="row wraps" style={{ gap: 6 }}>
    {pairs.map(({ key, value }) => (
      <code key={key} className="chip wrap">{`${key}=${value}`}</code>
    ))}
  </span>
)

const groupName: FieldSpec = { at: '/name', label: 'Name', isRequired: true }

export const Labels = ({ organizationId }: Props) => (
  <div className="stack wide">
    <section className="stack">
      <h2>Labels</h2>
      <Collection<Schemas['LabelsGroup']>
        organizationId={organizationId}
        noun="group of labels"
        path="labelsGroups"
        right="write"
        fields={[
          groupName,
          { at: '/labels', label: 'Labels', kind: 'pairs', isRequired: true, initial: [{ key: '', value: '' }] },
        ]}
        users={{ path: 'associatedItems', count: (row) => row.associated_items_count }}
        consequence="What uses it loses these labels with its next deployment."
        empty={
          <p>Labels are set on the containers of the services that use them, so that other tools can find them.</p>
        }
        columns={[
          { title: 'Group', show: ({ name }) => <span className="strong">{name}</span> },
          { title: 'Labels', show: ({ labels }) => <PairList pairs={labels} /> },
        ]}
      />
    </section>
    <section className="stack">
      <h2>Annotations</h2>
      <Collection<Schemas['AnnotationsGroup']>
        organizationId={organizationId}
        noun="group of annotations"
        path="annotationsGroups"
        right="write"
        fields={[
          groupName,
          {
            at: '/annotations',
            label: 'Annotations',
            kind: 'pairs',
            isRequired: true,
            initial: [{ key: '', value: '' }],
          },
          {
            at: '/scopes',
            label: 'On',
            kind: 'many',
            options: scopeWords,
            hint: 'Only recorded: on a Docker engine, annotations are labels of the containers.',
            isRequired: true,
            initial: ['PODS'],
          },
        ]}
        users={{ path: 'associatedItems', count: (row) => row.associated_items_count }}
        consequence="What uses it loses these annotations with its next deployment."
        empty={
          <p>Annotations describe services for other programs. On a Docker engine they are labels of the containers.</p>
        }
        columns={[
          { title: 'Group', show: ({ name }) => <span className="strong">{name}</span> },
          { title: 'Annotations', show: ({ annotations }) => <PairList pairs={annotations} /> },
          {
            title: 'On',
            look: 'optional',
            show: ({ scopes }) => <span className="dim small">{scopes.map(scopeWord).join(', ')}</span>,
          },
        ]}
      />
    </section>
  </div>
)
