/** The actions on a cluster: those at a cloud provider are planned, made, upgraded, stopped and destroyed. */

import { Checkbox } from '@mantine/core'
import { useMutation, useQueries, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { FormDialog, TypedName } from '../../ui/dialog.tsx'
import { useMay } from '../../ui/place.ts'
import { RecordForm } from '../../ui/record-form.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { isBusy } from '../../ui/state.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import { type Cluster, cloudOf, EditCluster, providerWord } from './cluster-forms.tsx'
import type { ClusterStatus } from './cluster-words.ts'
import { CredentialsEditor, type CredentialsRow } from './credentials.tsx'

const changed = ['clusters', 'cluster statuses', 'cluster log']

export interface ClusterProps {
  organizationId: string
  cluster: Cluster
  status: ClusterStatus | undefined
  isKubernetes: boolean
  logins: readonly CredentialsRow[]
}

const base = '/organization/{organizationId}/cluster/{clusterId}'

interface Act {
  path: `${typeof base}/${'deploy' | 'stop'}` | '/cluster/{clusterId}/upgrade'
  query?: object
  said: string
}

/** The actions differ only in the path, so the types of one of them are used for all. */
const useAct = ({ organizationId, cluster }: ClusterProps) => {
  return useMutation({
    mutationFn: ({ path, query = {} }: Act) =>
      answerOf(
        client.POST(path, {
          params: { path: { organizationId, clusterId: cluster.id }, query },
        }),
      ),
    async onSuccess(_, { said }) {
      tell(said)
      await read.refresh(...changed)
    },
    onError: tellProblem,
  })
}

/** Undefined until all are known. */
const useEnvironmentsOn = ({ organizationId, cluster }: ClusterProps): readonly string[] | undefined => {
  const projects = useQuery(read.projects(organizationId)).data
  const lists = useQueries({ queries: (projects ?? []).map(({ id }) => read.environmentsOf(id)) })
  if (projects === undefined || lists.some(({ isPending }) => isPending)) return undefined
  return lists.flatMap(({ data = [] }, at) =>
    data.filter((each) => each.cluster.id === cluster.id).map(({ name }) => `${projects[at]!.name} / ${name}`),
  )
}

const Delete = (props: ClusterProps & { onClose(): void; onGone(): void }) => {
  const { organizationId, cluster, status, onClose, onGone } = props
  const [typed, type] = useState('')
  const [isOnlyHere, setOnlyHere] = useState(false)
  const environments = useEnvironmentsOn(props)
  const cloud = cloudOf(cluster)
  const place = `${providerWord(cluster.cloud_provider)} in ${cluster.region}`
  const isMade = cloud !== null && (status?.last_execution_id ?? null) !== null
  const isUsed = environments !== undefined && environments.length > 0
  return (
    <FormDialog
      title={`Delete ${cluster.name}`}
      button="Delete"
      isReady={typed === cluster.name && !isUsed}
      isLoss
      onClose={onClose}
      changed={[...changed, 'cluster credentials']}
      act={async () => {
        await answerOf(
          client.DELETE(base, {
            params: {
              path: { organizationId, clusterId: cluster.id },
              query: isOnlyHere ? { deleteMode: 'DELETE_QOVERY_CONFIG' as const } : {},
            },
          }),
        )
        tell(isMade && !isOnlyHere ? `${cluster.name} is being destroyed.` : `${cluster.name} was deleted.`)
        onGone()
      }}
    >
      {isUsed ? (
        <div className="note warn">
          <strong>Environments run on it: delete them first.</strong>
          <ul className="plain-list">
            {environments.map((each) => (
              <li key={each} className="wrap">
                {each}
              </li>
            ))}
          </ul>
        </div>
      ) : null}
      {isMade ? (
        <>
          <p>
            {isOnlyHere
              ? `Everything at ${place} stays there and costs money; this server knows nothing of it any more.`
              : `Everything that its module made at ${place} is destroyed, with the machines, their disks and the data on them.`}
          </p>
          <Checkbox
            label="Only forget it here"
            checked={isOnlyHere}
            onChange={(event) => setOnlyHere(event.currentTarget.checked)}
          />
        </>
      ) : (
        <p>
          {cloud === null
            ? 'It is only forgotten here: what is on it and is not of this server stays.'
            : `Nothing was made of it at ${place}: only its settings go.`}
        </p>
      )}
      <TypedName name={cluster.name} typed={typed} onType={type} />
    </FormDialog>
  )
}

const Locking = ({ cluster, onClose }: Pick<ClusterProps, 'cluster'> & { onClose(): void }) => (
  <RecordForm
    title={`Lock ${cluster.name}`}
    button="Lock"
    fields={[
      {
        at: '/reason',
        label: 'Why',
        hint: 'Until it is unlocked it is not deployed, upgraded or deleted.',
        isRequired: true,
      },
      {
        at: '/ttl_in_days',
        label: 'For how many days',
        kind: 'number',
        hint: 'Leave empty to keep it locked until someone unlocks it.',
      },
    ]}
    changed={changed}
    onClose={onClose}
    save={(body) =>
      answerOf(
        client.POST('/cluster/{clusterId}/lock', {
          params: { path: { clusterId: cluster.id } },
          body: body as { reason: string },
        }),
      )
    }
  />
)

type Asked = 'edit' | 'login' | 'lock' | 'deploy' | 'stop' | 'delete' | null

const CloudButtons = (props: ClusterProps & { ask(asked: Asked): void }) => {
  const { cluster, status, ask } = props
  const may = useMay()
  const act = useAct(props)
  const state = status?.status ?? cluster.status
  const next = status?.next_k8s_available_version ?? null
  if (isBusy(state))
    return may('deploy') && !/DELET|CANCELING/.test(state) ? (
      <SmallButton
        loading={act.isPending}
        onClick={() => act.mutate({ path: `${base}/stop`, said: `Canceling the current action on ${cluster.name}.` })}
      >
        Cancel
      </SmallButton>
    ) : null
  return (
    <>
      {may('deploy') ? (
        <>
          <SmallButton
            loading={act.isPending}
            onClick={() =>
              act.mutate({
                path: `${base}/deploy`,
                query: { dry_run: true },
                said: `What a deployment of ${cluster.name} would change is being planned.`,
              })
            }
          >
            Plan
          </SmallButton>
          <SmallButton onClick={() => ask('deploy')}>{state === 'STOPPED' ? 'Start' : 'Deploy'}</SmallButton>
          {status?.is_deployed === true && state !== 'STOPPED' ? (
            <SmallButton onClick={() => ask('stop')}>Stop</SmallButton>
          ) : null}
        </>
      ) : null}
      {may('write') && next !== null ? (
        <SmallButton
          loading={act.isPending}
          onClick={() =>
            act.mutate({
              path: '/cluster/{clusterId}/upgrade',
              said: `${cluster.name} is upgraded to Kubernetes ${next}.`,
            })
          }
        >
          Upgrade to {next}
        </SmallButton>
      ) : null}
    </>
  )
}

const Confirm = (props: ClusterProps & { what: 'deploy' | 'stop'; onClose(): void }) => {
  const { cluster, what, onClose } = props
  const act = useAct(props)
  const place = `${providerWord(cluster.cloud_provider)} in ${cluster.region}`
  return (
    <FormDialog
      title={`${what === 'deploy' ? 'Deploy' : 'Stop'} ${cluster.name}`}
      button={what === 'deploy' ? 'Deploy' : 'Stop'}
      isReady
      onClose={onClose}
      changed={[]}
      act={async () => {
        await act.mutateAsync({
          path: `${base}/${what}`,
          said:
            what === 'deploy'
              ? `The deployment of ${cluster.name} was requested.`
              : `${cluster.name} is being stopped.`,
        })
        onClose()
      }}
    >
      <p>
        {what === 'deploy'
          ? `Its module makes or changes what it needs at ${place}, which costs money there. A plan says first what that is.`
          : `Its machines at ${place} are stopped, and nothing that runs on it answers until it is started again.`}
      </p>
    </FormDialog>
  )
}

const Dialogs = ({
  asked,
  onClose,
  onGone,
  ...props
}: ClusterProps & { asked: Asked; onClose(): void; onGone(): void }) => {
  const login = props.logins.find(({ id }) => id === props.cluster.cloud_provider_credentials?.credentials?.id)
  if (asked === 'edit') return <EditCluster {...props} onClose={onClose} />
  if (asked === 'login')
    return <CredentialsEditor organizationId={props.organizationId} row={login} onClose={onClose} />
  if (asked === 'lock') return <Locking cluster={props.cluster} onClose={onClose} />
  if (asked === 'delete') return <Delete {...props} onClose={onClose} onGone={onGone} />
  return asked === null ? null : <Confirm {...props} what={asked} onClose={onClose} />
}

export const ClusterActions = (props: ClusterProps & { onGone(): void }) => {
  const { cluster, status, logins } = props
  const may = useMay()
  const [asked, ask] = useState<Asked>(null)
  const unlocking = useMutation({
    mutationFn: () => answerOf(client.DELETE('/cluster/{clusterId}/lock', inPath({ clusterId: cluster.id }))),
    onSuccess: () => read.refresh('cluster statuses'),
    onError: tellProblem,
  })
  const isLocked = (status?.cluster_lock ?? null) !== null
  const hasLogin = logins.some(({ id }) => id === cluster.cloud_provider_credentials?.credentials?.id)
  return (
    <div className="row wraps">
      {cloudOf(cluster) === null || isLocked ? null : <CloudButtons {...props} ask={ask} />}
      {may('write') ? <SmallButton onClick={() => ask('edit')}>Edit</SmallButton> : null}
      {may('administer') && hasLogin ? <SmallButton onClick={() => ask('login')}>Login</SmallButton> : null}
      {may('write') && !isLocked ? <SmallButton onClick={() => ask('lock')}>Lock</SmallButton> : null}
      {may('administer') && isLocked ? (
        <SmallButton loading={unlocking.isPending} onClick={() => unlocking.mutate()}>
          Unlock
        </SmallButton>
      ) : null}
      {may('administer') && !cluster.is_default && !isLocked && !isBusy(status?.status ?? '') ? (
        <SmallButton onClick={() => ask('delete')}>Delete</SmallButton>
      ) : null}
      <Dialogs {...props} asked={asked} onClose={() => ask(null)} />
    </div>
  )
}
