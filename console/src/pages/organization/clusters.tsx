/** The clusters of an organization: Docker engines and Kubernetes clusters, with what each one lacks. */

import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { answerOf, client, inPath } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { NewButton } from '../../ui/dialog.tsx'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { Rows } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { StateMark } from '../../ui/state.tsx'
import { ClusterDetail } from './cluster-detail.tsx'
import { type Cluster, cloudOf, RegisterCluster, type Registering } from './cluster-forms.tsx'
import { type ClusterStatus, coresOf, gigabytesOf, kindOf } from './cluster-words.ts'
import { useCredentials } from './credentials.tsx'
import { type Props, useOrganizationList } from './list.ts'

const Name = ({ cluster, status }: { cluster: Cluster; status: ClusterStatus | undefined }) => (
  <>
    <span className="strong">{cluster.name}</span> {cluster.is_default ? <span className="chip">default</span> : null}
    <p className="dim small wrap">{cluster.description}</p>
    {status?.error_message === undefined ? null : <p className="small bad-text wrap">{status.error_message}</p>}
  </>
)

/** A cluster that answers is shown as ready. */
const ClusterState = ({ cluster, status }: { cluster: Cluster; status: ClusterStatus | undefined }) => {
  const state = status?.status ?? cluster.status
  return (
    <>
      <StateMark state={state} {...(state === 'DEPLOYED' ? { word: 'Ready' } : {})} />
      {cloudOf(cluster) !== null && cluster.deployment_status === 'OUT_OF_DATE' ? (
        <span className="chip warn">Out of date</span>
      ) : null}
      {(status?.cluster_lock ?? null) === null ? null : <span className="chip warn">Locked</span>}
    </>
  )
}

export const Clusters = ({ organizationId }: Props) => {
  const may = useMay()
  const navigate = useNavigate()
  const { cluster: opened } = useSearch({ from: '/frame/o/$organizationId/$section' })
  const [asked, ask] = useState<Registering | null>(null)
  const clusters = useQuery(read.clusters(organizationId))
  const statuses = useOrganizationList('cluster statuses', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/cluster/status', inPath({ organizationId }))),
  )
  const { data: logins = [] } = useCredentials(organizationId, may('write'))
  const statusOf = new Map((statuses.data ?? []).map((each) => [each.cluster_id, each]))
  // Not everyone may read its credentials, which say what it is; versions of Kubernetes begin with a letter.
  const isKubernetes = ({ cloud_provider_credentials: kept, kubernetes, version }: Cluster): boolean => {
    const login = logins.find(({ id }) => id === kept?.credentials?.id)
    if (kubernetes === 'MANAGED') return true
    return login === undefined ? version?.startsWith('v') === true : !('engine_url' in login.record)
  }
  const found = clusters.data?.find(({ id }) => id === opened)
  const open = (cluster: string | undefined): void => void navigate({ to: '.', search: { cluster }, replace: true })
  return (
    <div className="stack">
      {may('administer') ? (
        <div className="row wraps">
          <NewButton onClick={() => ask('docker')}>Docker engine</NewButton>
          <NewButton onClick={() => ask('kubernetes')}>Kubernetes cluster</NewButton>
          <NewButton onClick={() => ask('cloud')}>Cluster at a cloud provider</NewButton>
        </div>
      ) : null}
      <Rows
        of={clusters}
        label="Clusters"
        empty={
          <Empty title="No clusters">
            <p>Register a machine with Docker or a Kubernetes cluster: services run there.</p>
          </Empty>
        }
        columns={[
          { title: 'Cluster', show: (cluster) => <Name cluster={cluster} status={statusOf.get(cluster.id)} /> },
          {
            title: 'State',
            look: 'tight',
            show: (cluster) => <ClusterState cluster={cluster} status={statusOf.get(cluster.id)} />,
          },
          { title: 'Kind', look: 'optional', show: (cluster) => kindOf(cluster, isKubernetes(cluster)) },
          { title: 'CPU', look: 'tight optional', show: ({ cpu }) => coresOf(cpu) },
          { title: 'Memory', look: 'tight optional', show: ({ memory }) => gigabytesOf(memory) },
          {
            title: 'Actions',
            look: 'tight',
            show: ({ id, name }) => (
              <SmallButton aria-expanded={opened === id} onClick={() => open(opened === id ? undefined : id)}>
                Details<span className="hidden-text"> of {name}</span>
              </SmallButton>
            ),
          },
        ]}
      />
      {found === undefined ? null : (
        <ClusterDetail
          key={found.id}
          organizationId={organizationId}
          cluster={found}
          status={statusOf.get(found.id)}
          isKubernetes={isKubernetes(found)}
          logins={logins}
          onGone={() => open(undefined)}
        />
      )}
      {asked === null ? null : (
        <RegisterCluster organizationId={organizationId} what={asked} onClose={() => ask(null)} onRegistered={open} />
      )}
    </div>
  )
}
