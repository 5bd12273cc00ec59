/** The machines of a cluster, live: what each has and uses, and what is wrong with it. */
import { useState } from 'react'
import { useStream } from '../../api/stream.ts'
import { Waiting } from '../../ui/notices.tsx'
import { Scroll } from '../../ui/scroll.tsx'
import { StateMark } from '../../ui/state.tsx'
import { type Cluster, coresOf, gigabytesOf } from './clusters.tsx'

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

const percent = (value: number | null | undefined): string => (value == null ? '–' : `${value} %`)

const isReady = ({ conditions }: Node): boolean =>
  conditions.some(({ type, status }) => type === 'Ready' && status === 'True')

const NodeRow = ({ node, warnings }: { node: Node; warnings: readonly Warning[] }) => (
  <tr>
    <td className="wrap">
      <span className="strong">{node.name}</span>
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
      {node.unschedulable ? <span className="chip warn">takes no more</span> : null}
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

export const ClusterDetail = ({ cluster }: { cluster: Cluster }) => {
  const [status, setStatus] = useState<StatusFrame | null>(null)
  const [metrics, setMetrics] = useState<MetricsFrame | null>(null)
  useStream<StatusFrame>(`/cluster/status?cluster=${cluster.id}`, { onMessage: setStatus })
  useStream<MetricsFrame>(`/cluster/metrics?cluster=${cluster.id}`, { onMessage: setMetrics })
  const warnings = status?.computed_status.node_warnings ?? {}
  return (
    <section className="stack" aria-label={`Nodes of ${cluster.name}`}>
      <h2 className="wrap">Nodes of {cluster.name}</h2>
      <Missing warnings={warnings} />
      {metrics === null ? (
        <Waiting />
      ) : (
        <Scroll label="Machines" isCard>
          <table className="list">
            <thead>
              <tr>
                <th>Node</th>
                <th className="tight">State</th>
                <th className="tight optional">CPU</th>
                <th className="tight optional">used by us</th>
                <th className="tight optional">Memory</th>
                <th className="tight optional">used by us</th>
                <th className="tight">Instances</th>
              </tr>
            </thead>
            <tbody>
              {metrics.nodes.map((node) => (
                <NodeRow key={node.name} node={node} warnings={warnings[node.name] ?? []} />
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  )
}
