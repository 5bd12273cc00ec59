/** Clusters that are a Docker engine: which rows are, and how their engines are reached. */
import type { ImageBuilder } from '../builds/builder.ts'
import {
  defaultSocketPath,
  type EngineConnection,
  parseEngineUrl,
  type SshConnection,
} from '../lib/docker/engine-connection.ts'
import type { Pin } from '../lib/net/pinned-connector.ts'
import type { Secret } from '../lib/secret.ts'
import type { Runtime } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { namesEngineSql } from './local.ts'

/** The identity of an engine, as it reports it. */
export interface EngineFacts {
  /** The engine's own id, the same over restarts. */
  id: string
  version: string
  apiVersion: string
  /** In Docker's spelling. */
  os: string
  architecture: string
}

export interface EngineTarget {
  clusterId: string
  organizationId: string
  connection: EngineConnection
  /** Address of that machine on which services are published for this server; null for an engine of this machine. */
  serviceAddress: string | null
}

export interface EngineUse {
  runtime: Runtime
  builder: Pick<ImageBuilder, 'build' | 'built'>
  /** For a deleted cluster: removes the images made and pulled there, unless something runs from them. */
  clear(): Promise<void>
}

export interface Engines {
  /** Rejects with errors that `explainEngine` can explain. */
  identify(connection: EngineConnection, signal: AbortSignal): Promise<EngineFacts>
  /** Id of the engine of the default cluster; null where there is none. Rejects when it does not answer. */
  ownId(signal: AbortSignal): Promise<string | null>
  /** Its runtime is closed when the cluster is deleted or its connection changes. */
  open(target: EngineTarget): EngineUse
  /** The address to connect to; rejects if connections to it are not allowed. */
  pin: Pin
  /** Sockets of this machine that the operator allows clusters to use. */
  sockets: readonly string[]
}

/** The fields of credentials that say how an engine is reached; secrets are separate. */
export interface EngineSpec {
  engine_url: string
  engine_ca_certificate?: string
  engine_client_certificate?: string
  engine_ssh_host_keys?: string
  engine_service_address?: string
}

export const engineSecrets = ['engine_client_key', 'engine_ssh_key'] as const
export type EngineSecrets = Partial<Record<(typeof engineSecrets)[number], Secret>>

/** Parses an address; the end of a sentence if it cannot be used: `must be …`. */
export const readEngineUrl = (
  text: string,
): { kind: EngineConnection['kind']; host: string; port: number; user: string; socketPath: string } | string => {
  const forms = 'must be tcp://host:2376, ssh://user@host or unix:///path'
  const kind = /^(unix|tcp|ssh):\/\//.exec(text)?.[1]
  if (kind === 'unix') {
    const socketPath = text.slice('unix://'.length)
    const isPlain = /^\/[\w./-]+$/.test(socketPath) && !socketPath.includes('..')
    return isPlain ? { kind: 'local', host: '', port: 0, user: '', socketPath } : forms
  }
  const url = kind === undefined ? null : parseEngineUrl(text)
  if (url === null || url.password !== '' || url.search !== '' || url.hash !== '' || url.port === '0') return forms
  const path = url.pathname === '/' ? '' : url.pathname
  const common = { host: url.hostname, user: url.username }
  if (kind === 'tcp') {
    if (path !== '' || common.user !== '') return forms
    return { ...common, kind, port: Number(url.port || 2376), socketPath: '' }
  }
  if (!/^[\w][\w.-]{0,63}$/.test(common.user) || !/^(\/[\w.-]+)*$/.test(path)) return forms
  return { ...common, kind: 'ssh', port: Number(url.port || 22), socketPath: path || defaultSocketPath }
}

/** For a configuration that was checked when it was written. */
export const connectionOf = (spec: EngineSpec, secrets: EngineSecrets, pin: Pin): EngineConnection => {
  const url = readEngineUrl(spec.engine_url)
  if (typeof url === 'string') throw new Error(`the address of an engine ${url}`)
  const { kind, host, port, user, socketPath } = url
  if (kind === 'local') return { kind, socketPath }
  if (kind === 'tcp') {
    const [ca, cert] = [spec.engine_ca_certificate, spec.engine_client_certificate]
    return { kind, host, port, pin, tls: { ca, cert, key: secrets.engine_client_key } }
  }
  const ssh: Omit<SshConnection, 'key'> = {
    kind,
    host,
    port,
    pin,
    user,
    socketPath,
    hostKeys: spec.engine_ssh_host_keys ?? '',
  }
  return { ...ssh, key: secrets.engine_ssh_key! }
}

export interface EngineRow {
  clusterId: string
  organizationId: string
  credentialsId: string
  /** Changes whenever the credentials are written. */
  version: string
  spec: EngineSpec
  sealed: Record<string, string>
}

const columns = `c.id as "clusterId", c.organization_id as "organizationId", k.id as "credentialsId",
  k.id || ' ' || k.version as version, k.spec, k.sealed`

/** All clusters that are an engine, or one of them. */
export const readEngineRows = (db: Queryable, clusterId: string | null = null): Promise<EngineRow[]> =>
  db.query<EngineRow>(
    `select ${columns} from node c join node k on ${namesEngineSql('c')} where $1::uuid is null or c.id = $1 order by c.created_at`,
    [clusterId],
  )

export const openSecrets = async (
  sealer: Sealer,
  { organizationId, credentialsId, sealed }: Pick<EngineRow, 'organizationId' | 'credentialsId' | 'sealed'>,
): Promise<EngineSecrets> => {
  const secrets: EngineSecrets = {}
  for (const name of engineSecrets)
    if (sealed[name] !== undefined)
      secrets[name] = await sealer.open(
        organizationId,
        { table: 'node', row: credentialsId, column: name },
        sealed[name],
      )
  return secrets
}
