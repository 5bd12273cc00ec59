/** One cluster: its facts, its actions, its machines, live, and the logs of its runs at a provider. */
import { Fragment, type ReactNode, useState } from 'react'
import { useStream } from '../../api/stream.ts'
import { Waiting } from '../../ui/notices.tsx'
import { ListTable } from '../../ui/rows.tsx'
import { isBusy, StateMark } from '../../ui/state.tsx'
import { Time } from '../../ui/time.tsx'
import { ClusterActions, type ClusterProps } from './cluster-actions.tsx'
import { cloudOf, providerWord } from './cluster-forms.tsx'
import { ClusterLog } from './cluster-log.tsx'
import { ClusterOrphans } from './cluster-orphans.tsx'
import { coresOf, gigabytesOf, kindOf } from './cluster-words.ts'

interface Warning {
  type: string
  reason: string
  message: string
}

interface StatusFrame {
  computed_status: { global_status: string; node_warnings: Record<string, Warning[]> }
}

interface Resources {
  cpu_milli: number
  memory_mib: number
}

interface Node {
  name: string
  architecture: string
  kubelet_version: string
  os_image: string
  unschedulable: boolean
  resources_capacity: Resources
  metrics_usage: { cpu_percent_usage?: number | null; memory_percent_working_set_usage?: number | null }
  conditions: { type: string; status: string; message: string }[]
  pods: { name: string; status_phase: string; restart_count: number; qovery_service_info: { service_name: string } }[]
}

interface MetricsFrame {
  nodes: Node[]
}

const percent = (value: number | null | undefined): string => (value == null ? '–' : `${value}%`)

const isReady = ({ conditions }: Node): boolean =>
  conditions.some(({ type, status }) => type === 'Ready' && status === 'True')

const NodeRow = ({ node, warnings }: { node: Node; warnings: readonly Warning[] }) => (
  <tr>
    <td className="wrap">
      <span className="strong">{node.name === 'docker-engine' ? 'The Docker engine' : node.name}</span>
      <p className="dim small wrap">
        {[node.architecture, node.kubelet_version, node.os_image].filter(Boolean).join(', ')}
      </p>
      {warnings.map(({ type, message }) => (
        <p key={type} className="small bad-text wrap">
          {type}: {message}
        </p>
      ))}
    </td>
    <td className="tight">
      <StateMark state={isReady(node) ? 'RUNNING' : 'ERROR'} word={isReady(node) ? 'Ready' : 'Not ready'} />
      {node.unschedulable ? <span className="chip warn">takes nothing new</span> : null}
    </td>
    <td className="tight optional">{coresOf(node.resources_capacity.cpu_milli)}</td>
    <td className="tight optional">{percent(node.metrics_usage.cpu_percent_usage)}</td>
    <td className="tight optional">{gigabytesOf(node.resources_capacity.memory_mib)}</td>
    <td className="tight optional">{percent(node.metrics_usage.memory_percent_working_set_usage)}</td>
    <td className="tight">{node.pods.length}</td>
  </tr>
)

const Missing = ({ warnings }: { warnings: Record<string, Warning[]> }) => {
  const all = Object.entries(warnings)
  if (all.length === 0) return null
  return (
    <div className="note bad" role="status">
      <strong>Something is missing.</strong>
      <ul className="plain-list">
        {all.flatMap(([node, each]) =>
          each.map(({ type, message }) => <li key={`${node} ${type}`} className="wrap">{`${node}: ${message}`}</li>),
        )}
      </ul>
    </div>
  )
}

const Machines = ({ clusterId }: { clusterId: string }) => {
  const [status, setStatus] = useState<StatusFrame | null>(null)
  const [metrics, setMetrics] = useState<MetricsFrame | null>(null)
  useStream<StatusFrame>(`/cluster/status?cluster=${clusterId}`, { onMessage: setStatus })
  useStream<MetricsFrame>(`/cluster/metrics?cluster=${clusterId}`, { onMessage: setMetrics })
  const warnings = status?.computed_status.node_warnings ?? {}
  return (
    <>
      <Missing warnings={warnings} />
      {metrics === null ? (
        <Waiting />
      ) : (
        <ListTable
          label="Machines"
          isCard
          heads={{
            Machine: '',
            State: 'tight',
            CPU: 'tight optional',
            'CPU used here': 'tight optional',
            Memory: 'tight optional',
            'Memory used here': 'tight optional',
            Instances: 'tight',
          }}
        >
          {metrics.nodes.map((node) => (
            <NodeRow key={node.name} node={node} warnings={warnings[node.name] ?? []} />
          ))}
        </ListTable>
      )}
    </>
  )
}

const rangeOf = ({ min_running_nodes: least = 1, max_running_nodes: most = 1 }: ClusterProps['cluster']): string =>
  least === most ? String(least) : `${least} to ${most}`

const Facts = ({ cluster, status, isKubernetes }: ClusterProps) => {
  const cloud = cloudOf(cluster)
  const facts: [string, ReactNode][] = [
    ['Kind', kindOf(cluster, isKubernetes)],
    ['Region', cluster.region],
    ...(cluster.version === undefined ? [] : [['Version', cluster.version] as [string, ReactNode]]),
  ]
  const login = cluster.cloud_provider_credentials?.credentials?.name
  if (login !== undefined) facts.push(['Credentials', login])
  if (cloud !== null) {
    facts.push(['Machines', rangeOf(cluster)], ['Last deployed', <Time key="at" at={status?.last_deployment_date} />])
    if (cluster.deployment_status === 'OUT_OF_DATE')
      facts.push(['Settings', 'changed since: the next deployment applies them'])
  }
  return (
    <dl className="facts">
      {facts.map(([word, value]) => (
        <Fragment key={word}>
          <dt>{word}</dt>
          <dd className="wrap">{value}</dd>
        </Fragment>
      ))}
    </dl>
  )
}

const Away = ({ cluster }: Pick<ClusterProps, 'cluster'>) => (
  <p className="dim">
    {cloudOf(cluster) === null
      ? 'This server does not reach it: its credentials name no engine and no cluster. Environments on it are only recorded.'
      : `It does not exist yet: a deployment creates it at ${providerWord(cluster.cloud_provider)}.`}
  </p>
)

export const ClusterDetail = (props: ClusterProps & { onGone(): void }) => {
  const { cluster, status, organizationId } = props
  const lock = status?.cluster_lock ?? null
  const isGoingOn = isBusy(status?.status ?? '')
  return (
    <section className="card" aria-label={`About ${cluster.name}`.slice(0, 200)}>
      <header>
        <h2 className="wrap grow">{cluster.name}</h2>
        <ClusterActions {...props} />
      </header>
      <div className="body stack">
        {lock === null ? null : (
          <div className="note warn wrap">
            <strong>Locked by {lock.owner_name}.</strong> {lock.reason}
          </div>
        )}
        <ClusterOrphans clusterId={cluster.id} />
        <Facts {...props} />
        {status === undefined ? (
          <Waiting />
        ) : status.is_deployed ? (
          <Machines clusterId={cluster.id} />
        ) : (
          <Away cluster={cluster} />
        )}
        {cloudOf(cluster) === null ? null : (
          <ClusterLog organizationId={organizationId} clusterId={cluster.id} isGoingOn={isGoingOn} />
        )}
      </div>
    </section>
  )
}
