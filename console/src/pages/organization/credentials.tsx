/** Credentials of cloud providers, engines and clusters. Their secrets are written and never read. */

import { useState } from 'react'
import { answerOf, client, inPath, pathLike } from '../../api/client.ts'
import { NewButton, Remove } from '../../ui/dialog.tsx'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { type FieldSpec, optionsOf, RecordForm } from '../../ui/record-form.tsx'
import { Rows } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { tell } from '../../ui/toasts.tsx'
import { type Props, useOrganizationList } from './list.ts'

export type Provider = 'onPremise' | 'aws' | 'gcp' | 'azure' | 'scaleway'

const providerWords: Record<Provider, string> = {
  onPremise: 'An engine or a cluster of your own',
  aws: 'AWS',
  gcp: 'Google Cloud',
  azure: 'Azure',
  scaleway: 'Scaleway',
}

const providerOf = (type: string): Provider => {
  if (type.startsWith('AWS') || type.startsWith('EKS')) return 'aws'
  if (type.startsWith('GCP')) return 'gcp'
  return ({ AZURE: 'azure', SCW: 'scaleway' } as const)[type as 'AZURE'] ?? 'onPremise'
}

const isSsh = (values: Readonly<Record<string, unknown>>): boolean =>
  String(values['/engine_url'] ?? '').startsWith('ssh:')
const isTls = (values: Readonly<Record<string, unknown>>): boolean =>
  String(values['/engine_url'] ?? '').startsWith('tcp:')

/** The connection of a Docker engine. */
export const engineFields: readonly FieldSpec[] = [
  {
    at: '/engine_url',
    label: 'Address of the engine',
    placeholder: 'ssh://slipway@10.0.0.2',
    hint: 'Over SSH, or over TLS with certificates: tcp://10.0.0.2:2376. Access to an engine is root access to its machine.',
  },
  {
    at: '/engine_ssh_key',
    label: 'Private key, without a passphrase',
    kind: 'lines',
    isRequired: true,
    when: isSsh,
    isSecret: true,
  },
  {
    at: '/engine_ssh_host_keys',
    label: 'Host keys, as ssh-keyscan prints them',
    kind: 'lines',
    isRequired: true,
    when: isSsh,
  },
  { at: '/engine_ca_certificate', label: 'Certificate of the CA', kind: 'lines', isRequired: true, when: isTls },
  {
    at: '/engine_client_certificate',
    label: 'Certificate of the client',
    kind: 'lines',
    isRequired: true,
    when: isTls,
  },
  {
    at: '/engine_client_key',
    label: 'Key of the client',
    kind: 'lines',
    isRequired: true,
    when: isTls,
    isSecret: true,
  },
  {
    at: '/engine_service_address',
    label: 'Address of that machine for the router',
    hint: 'If it is not the one above.',
    when: (values) => isSsh(values) || isTls(values),
  },
]

export const kubeconfigField: FieldSpec = {
  at: '/kubeconfig',
  label: 'Kubeconfig',
  kind: 'lines',
  hint: 'Complete in itself, with a token or a client certificate. Its rights are checked before it is stored.',
  isSecret: true,
}

const name: FieldSpec = { at: '/name', label: 'Name', isRequired: true }

export const credentialFields: Record<Provider, readonly FieldSpec[]> = {
  onPremise: [name, ...engineFields, kubeconfigField],
  aws: [
    name,
    { at: '/access_key_id', label: 'Access key id' },
    { at: '/secret_access_key', label: 'Secret access key', kind: 'secret' },
    { at: '/role_arn', label: 'Role (ARN), instead of a key' },
  ],
  gcp: [name, { at: '/gcp_credentials', label: 'Key of the service account (JSON)', kind: 'lines', isSecret: true }],
  azure: [
    name,
    { at: '/azure_subscription_id', label: 'Subscription' },
    { at: '/azure_tenant_id', label: 'Tenant' },
    { at: '/azure_application_id', label: 'Application' },
    { at: '/azure_application_secret', label: 'Secret of the application', kind: 'secret' },
  ],
  scaleway: [
    name,
    { at: '/scaleway_access_key', label: 'Access key' },
    { at: '/scaleway_secret_key', label: 'Secret key', kind: 'secret' },
    { at: '/scaleway_project_id', label: 'Project' },
    { at: '/scaleway_organization_id', label: 'Organization at Scaleway' },
  ],
}

const path = '/organization/{organizationId}/onPremise/credentials'
const listPath = (provider: Provider) => pathLike(path, 'onPremise', provider)
const itemPath = (provider: Provider) => pathLike(`${path}/{credentialsId}`, 'onPremise', provider)

export const makeCredentials = async (organizationId: string, provider: Provider, body: object): Promise<string> =>
  (await answerOf(client.POST(listPath(provider), { ...inPath({ organizationId }), body: body as { name: string } })))
    .id

export const removeCredentials = (organizationId: string, provider: Provider, id: string) =>
  answerOf(client.DELETE(itemPath(provider), inPath({ organizationId, credentialsId: id })))

export interface CredentialsRow {
  id: string
  name: string
  provider: Provider
  about: string
  record: object
  clusters: string[]
}

const readCredentials = async (organizationId: string): Promise<{ results: CredentialsRow[] }> => {
  const { results } = await answerOf(
    client.GET('/organization/{organizationId}/credentials', inPath({ organizationId })),
  )
  return {
    results: results.map(({ credential, clusters }): CredentialsRow => {
      const fields: Partial<Record<string, unknown>> = credential
      return {
        id: credential.id,
        name: credential.name,
        provider: providerOf(credential.object_type),
        about: String(fields.engine_url ?? fields.access_key_id ?? fields.role_arn ?? fields.scaleway_access_key ?? ''),
        record: credential,
        clusters: clusters.map((each) => each.name ?? ''),
      }
    }),
  }
}

export const useCredentials = (organizationId: string, mayRead = true) =>
  useOrganizationList('cluster credentials', organizationId, () => readCredentials(organizationId), mayRead)

export const CredentialsEditor = ({
  organizationId,
  row,
  onClose,
}: Props & { row: CredentialsRow | undefined; onClose(): void }) => {
  const kind: FieldSpec = {
    at: '/provider',
    label: 'For',
    kind: 'choice',
    options: optionsOf(providerWords),
    initial: 'onPremise',
  }
  const all = (Object.keys(credentialFields) as Provider[]).flatMap((provider) =>
    credentialFields[provider].slice(1).map((field) => ({
      ...field,
      when: (values: Readonly<Record<string, unknown>>) =>
        values['/provider'] === provider && (field.when === undefined || field.when(values)),
    })),
  )
  return (
    <RecordForm
      title={row === undefined ? 'New credentials' : `Edit ${row.name}`}
      button={row === undefined ? 'Create' : 'Save'}
      fields={row === undefined ? [kind, name, ...all] : credentialFields[row.provider]}
      record={row?.record}
      changed={['cluster credentials', 'cluster statuses']}
      onClose={onClose}
      save={async ({ provider, ...body }) => {
        if (row === undefined) await makeCredentials(organizationId, provider as Provider, body)
        else
          await answerOf(
            client.PUT(itemPath(row.provider), {
              params: { path: { organizationId, credentialsId: row.id } },
              body: body as never,
            }),
          )
        tell('Saved.')
      }}
    />
  )
}

export const Credentials = ({ organizationId }: Props) => {
  const may = useMay()
  const [opened, open] = useState<CredentialsRow | 'new' | null>(null)
  const credentials = useCredentials(organizationId)
  return (
    <div className="stack">
      {may('administer') ? <NewButton onClick={() => open('new')}>New credentials</NewButton> : null}
      <Rows
        of={credentials}
        empty={
          <Empty title="No credentials yet">
            <p>Clusters are reached with credentials. Registering a cluster makes them too.</p>
          </Empty>
        }
        columns={[
          {
            title: 'Name',
            show: (row) => (
              <>
                <span className="strong">{row.name}</span>
                <p className="dim small wrap">{row.about}</p>
              </>
            ),
          },
          { title: 'For', look: 'optional', show: ({ provider }) => providerWords[provider] },
          {
            title: 'Clusters',
            look: 'optional',
            show: ({ clusters }) =>
              clusters.length === 0 ? (
                <span className="dim">none</span>
              ) : (
                <span className="wrap">{clusters.join(', ')}</span>
              ),
          },
          {
            title: 'Actions',
            look: 'tight',
            show: (row) =>
              may('administer') ? (
                <span className="row wraps">
                  <SmallButton onClick={() => open(row)}>Edit</SmallButton>
                  <Remove
                    name={row.name}
                    what="Delete"
                    changed={['cluster credentials']}
                    consequence="Only credentials that no cluster uses can be deleted."
                    act={() => removeCredentials(organizationId, row.provider, row.id)}
                  />
                </span>
              ) : null,
          },
        ]}
      />
      {opened === null ? null : (
        <CredentialsEditor
          organizationId={organizationId}
          row={opened === 'new' ? undefined : opened}
          onClose={() => open(null)}
        />
      )}
    </div>
  )
}
