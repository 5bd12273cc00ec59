/** Where the services of an organization run: Docker engines and Kubernetes clusters, with what is missing of each. */
import { Button } from '@mantine/core'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { answerOf, client, type Schemas } from '../../api/client.ts'
import { NewButton, Remove } from '../../ui/dialog.tsx'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { type FieldSpec, RecordForm } from '../../ui/record-form.tsx'
import { Rows } from '../../ui/rows.tsx'
import { StateMark } from '../../ui/state.tsx'
import { tell } from '../../ui/toasts.tsx'
import { ClusterDetail } from './cluster-detail.tsx'
import { engineFields, kubeconfigField, makeCredentials, removeCredentials } from './credentials.tsx'
import { type Props, pathOf, useOrganizationList } from './list.ts'

export type Cluster = Schemas['Cluster']
export type ClusterStatus = Schemas['ClusterStatus']

const first: readonly FieldSpec[] = [
  { at: '/name', label: 'Name', isRequired: true },
  {
    at: '/region',
    label: 'Region',
    hint: 'Any text: it tells people where it is.',
    isRequired: true,
    initial: 'local',
  },
]

type Engine = 'docker' | 'kubernetes'

const registrations: Record<Engine, { title: string; fields: readonly FieldSpec[] }> = {
  docker: {
    title: 'Register a Docker engine',
    fields: [...first, ...engineFields.map((field, at) => (at === 0 ? { ...field, isRequired: true } : field))],
  },
  kubernetes: {
    title: 'Register a Kubernetes cluster',
    fields: [...first, { ...kubeconfigField, isRequired: true }],
  },
}

const register = async (organizationId: string, body: Record<string, unknown>): Promise<void> => {
  const { name, region, container_registry_id: registryId, ...login } = body
  const id = await makeCredentials(organizationId, 'onPremise', { name, ...login })
  try {
    await answerOf(
      client.POST('/organization/{organizationId}/cluster', {
        ...pathOf(organizationId),
        body: {
          name: String(name),
          region: String(region),
          cloud_provider: 'ON_PREMISE',
          kubernetes: 'SELF_MANAGED',
          cloud_provider_credentials: { credentials: { id } },
          ...(registryId === undefined ? {} : { container_registry_id: registryId }),
        } as never,
      }),
    )
  } catch (error) {
    // Without a cluster nobody would look for them.
    await removeCredentials(organizationId, 'onPremise', id).catch(() => undefined)
    throw error
  }
}

const kindOf = ({ kubernetes, cloud_provider: provider }: Cluster): string =>
  kubernetes === 'MANAGED' ? `Kubernetes at ${provider}` : 'Of your own'

export const coresOf = (milli: number | null | undefined): string => (milli == null ? '–' : `${milli / 1000} cores`)
export const gigabytesOf = (mega: number | null | undefined): string =>
  mega == null ? '–' : `${Math.round(mega / 102.4) / 10} GB`

const Name = ({ cluster, status }: { cluster: Cluster; status: ClusterStatus | undefined }) => (
  <>
    <span className="strong">{cluster.name}</span> {cluster.is_default ? <span className="chip">default</span> : null}
    <p className="dim small wrap">{cluster.description}</p>
    {status?.error_message === undefined ? null : <p className="small bad-text wrap">{status.error_message}</p>}
  </>
)

/** A cluster that answers is ready, in the words of people. */
const ClusterState = ({ state }: { state: string }) => (
  <StateMark state={state} {...(state === 'DEPLOYED' ? { word: 'Ready' } : {})} />
)

export const Clusters = ({ organizationId }: Props) => {
  const may = useMay()
  const navigate = useNavigate()
  const { cluster: opened } = useSearch({ from: '/frame/o/$organizationId/$section' })
  const [asked, ask] = useState<Engine | null>(null)
  const clusters = useOrganizationList('clusters', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/cluster', pathOf(organizationId))),
  )
  const statuses = useOrganizationList('cluster statuses', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/cluster/status', pathOf(organizationId))),
  )
  const registries = useOrganizationList('containerRegistry', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/containerRegistry', pathOf(organizationId))),
  )
  const registryField: FieldSpec = {
    at: '/container_registry_id',
    label: 'Registry for what is built here',
    kind: 'choice',
    hint: 'Its machines pull from it what this server builds; the login must be allowed to write.',
    options: (registries.data ?? []).map(({ id, name }) => ({ value: id, label: name })),
  }
  const statusOf = new Map((statuses.data ?? []).map((each) => [each.cluster_id, each]))
  const found = clusters.data?.find(({ id }) => id === opened)
  const open = (cluster: string | undefined): void => void navigate({ to: '.', search: { cluster }, replace: true })
  return (
    <div className="stack">
      {may('administer') ? (
        <div className="row wraps">
          <NewButton onClick={() => ask('docker')}>Docker engine</NewButton>
          <NewButton onClick={() => ask('kubernetes')}>Kubernetes cluster</NewButton>
        </div>
      ) : null}
      <Rows
        of={clusters}
        empty={
          <Empty title="No clusters">
            <p>Register a machine with Docker, or look at a Kubernetes cluster.</p>
          </Empty>
        }
        columns={[
          { title: 'Cluster', show: (cluster) => <Name cluster={cluster} status={statusOf.get(cluster.id)} /> },
          {
            title: 'State',
            isTight: true,
            show: ({ id, status }) => <ClusterState state={statusOf.get(id)?.status ?? status} />,
          },
          { title: 'Kind', isTight: true, isOptional: true, show: kindOf },
          { title: 'CPU', isTight: true, isOptional: true, show: ({ cpu }) => coresOf(cpu) },
          { title: 'Memory', isTight: true, isOptional: true, show: ({ memory }) => gigabytesOf(memory) },
          { title: 'Version', isTight: true, isOptional: true, show: ({ version }) => version ?? '–' },
          {
            title: 'Actions',
            isTight: true,
            show: ({ id, name, is_default: isDefault }) => (
              <span className="row wraps">
                <Button
                  size="compact-sm"
                  variant="default"
                  aria-expanded={opened === id}
                  onClick={() => open(opened === id ? undefined : id)}
                >
                  Nodes
                </Button>
                {may('administer') && !isDefault ? (
                  <Remove
                    name={name}
                    what="Delete"
                    asksName
                    changed={['clusters', 'cluster credentials']}
                    consequence="Its environments must be deleted first. Nothing that is not of this server is touched on it."
                    act={() =>
                      answerOf(
                        client.DELETE('/organization/{organizationId}/cluster/{clusterId}', {
                          params: { path: { organizationId, clusterId: id } },
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
      {found === undefined ? null : <ClusterDetail key={found.id} cluster={found} />}
      {asked === null ? null : (
        <RecordForm
          title={registrations[asked].title}
          button="Register"
          fields={
            asked === 'docker' ? registrations.docker.fields : [...registrations.kubernetes.fields, registryField]
          }
          changed={['clusters', 'cluster statuses', 'cluster credentials']}
          onClose={() => ask(null)}
          save={async (body) => {
            await register(organizationId, body)
            tell(`${String(body.name)} was registered.`)
          }}
        >
          {asked === 'kubernetes' ? (
            <p className="dim small">
              Its account needs rights in every namespace; what is missing is named before anything is stored. It also
              needs an ingress controller for host names.
            </p>
          ) : null}
        </RecordForm>
      )}
    </div>
  )
}
