/** The Docker engine of this machine, and the other clusters. */
import type { Cluster } from '../clusters/clusters.ts'
import { isHeld } from '../clusters/lines/line.ts'
import { waitAtMost } from '../lib/concurrency/waiting.ts'
import type { Engine } from '../lib/docker/docker-engine.ts'
import { failed, listed, topic, warning } from '../lib/finding.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Queryable } from '../store/database.ts'

export type EngineKind = 'docker' | 'fake' | 'none'

export interface EngineInfo {
  ServerVersion?: string
  DockerRootDir?: string
  OperatingSystem?: string
  MemoryLimit?: boolean
  CpuCfsQuota?: boolean
}

export interface EngineFacts {
  kind: EngineKind
  /** Null if it does not answer. */
  info: EngineInfo | null
  /** How it is reached. */
  address: string
}

const engineTopic = topic('engine', 'Engine')
const answerMs = 3000

export const readEngine = (engine: Pick<Engine, 'call'>): Promise<EngineInfo | null> =>
  engine.call<EngineInfo>('GET', '/info', { deadlineMs: answerMs }).catch(() => null)

export const judgeEngine = ({ kind, info, address }: EngineFacts) => {
  if (kind === 'fake') return engineTopic.skipped('Deployments are simulated (--fake): nothing runs on an engine.')
  if (kind === 'none') return engineTopic.skipped('This server has no Docker engine of its own (SLIPWAY_DOCKER=off).')
  if (info === null)
    return engineTopic.judge(
      [
        failed(
          `The Docker engine at ${address} does not answer.`,
          'Start it (`systemctl start docker`) and read its log (`journalctl -u docker`); check that this user may use its socket. Slipway resumes by itself as soon as it answers.',
        ),
      ],
      '',
    )
  const { ServerVersion: version = 'of an unknown version', MemoryLimit: memory, CpuCfsQuota: cpu } = info
  const missing = [memory === false ? 'memory' : null, cpu === false ? 'CPU' : null].filter((each) => each !== null)
  return engineTopic.judge(
    missing.map((what) =>
      warning(
        `The engine does not limit the ${what} of containers: one service can take that of all.`,
        'Boot the machine with the cgroup controllers memory and cpu (`cgroup_enable=memory` on the command line of the kernel).',
      ),
    ),
    `Docker ${version} answers.`,
  )
}

export interface ClusterFacts {
  name: string
  answers: boolean
  /** Nothing is changed there until an operator decides. */
  isHeld: boolean
}

export interface ClustersReader {
  database: Queryable
  clock: Pick<Clock, 'sleep'>
  all(): readonly Pick<Cluster, 'key' | 'runtime' | 'line'>[]
}

/** What clusters are called, by their keys. */
export const readNames = async (
  database: Queryable,
  keys: readonly string[],
  ownKey: string,
): Promise<ReadonlyMap<string, string>> => {
  const others = keys.filter((key) => key !== ownKey)
  const rows = await database.query<{ id: string; name: string }>(
    'select id, name from node where id = any($1::uuid[])',
    [others],
  )
  return new Map([[ownKey, 'this machine'], ...rows.map(({ id, name }): [string, string] => [id, `cluster ${name}`])])
}

/** The engine of this machine has its own finding, so its answer does not count here. */
export const readClusters = async (
  { database, clock, all }: ClustersReader,
  ownKey: string,
): Promise<ClusterFacts[]> => {
  const clusters = all()
  const names = await readNames(
    database,
    clusters.map(({ key }) => key),
    ownKey,
  )
  return Promise.all(
    clusters.map(async (cluster) => {
      const isOwn = cluster.key === ownKey
      const asked = isOwn ? true : cluster.runtime.capacity().then(() => true)
      const answers = await waitAtMost(clock, answerMs, Promise.resolve(asked)).catch(() => false)
      const name = names.get(cluster.key) ?? cluster.key
      return { name, answers: answers === true, isHeld: isHeld(cluster) }
    }),
  )
}

const clustersTopic = topic('clusters', 'Clusters')

export const judgeClusters = (facts: readonly ClusterFacts[]) => {
  const held = facts.filter((each) => each.isHeld).map(({ name }) => name)
  const silent = facts.filter(({ answers }) => !answers).map(({ name }) => name)
  const problems = [
    ...(held.length === 0
      ? []
      : [
          failed(
            `Nothing is changed on ${listed(held)}: this database is older than what runs there, or a copy of one that is still in use.`,
            'Look at the orphans of the cluster and decide: docs/guides/backup.md says how.',
          ),
        ]),
    ...(silent.length === 0
      ? []
      : [
          warning(
            `${silent.length === 1 ? 'A cluster does' : `${silent.length} clusters do`} not answer: ${listed(silent)}.`,
            'Its status says why (`GET /organization/{organizationId}/cluster/status`): check its machine, its network and its credentials.',
          ),
        ]),
  ]
  if (facts.length === 0) return clustersTopic.skipped('No cluster is connected.')
  return clustersTopic.judge(
    problems,
    facts.length === 1 ? 'The only cluster answers.' : `All ${facts.length} clusters answer.`,
  )
}
