/** Parts shared by several kinds of services: ports, storage, probes. Pure. */
import Type, { type TSchema } from 'typebox'
import { Flag, List, Maybe, Nullable, OneOf, Refused, Text, Uuid, Whole } from '../../api/operations/schema.ts'
import { invalidField } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { isPrefix } from '../../router/table/paths.ts'
import { type PortProtocol, type Probe, usualPace, type WorkloadPort } from '../../runtimes/runtime.ts'

const PortNumber = (options = {}) => Whole(1, 65_535, options)

export const Ports = () =>
  List(
    Type.Object({
      id: Maybe(Uuid()),
      name: Maybe(Text(100)),
      internal_port: PortNumber(),
      external_port: Maybe(Nullable(PortNumber())),
      publicly_accessible: Maybe(Flag({ default: false })),
      is_default: Maybe(Flag()),
      protocol: Maybe(OneOf(['HTTP', 'GRPC', 'TCP', 'UDP'], { default: 'HTTP' })),
      public_path: Maybe(
        Text(1024, {
          description:
            "For a public HTTP or GRPC port: only requests for this path and below are accepted. A port with a path is also reached below it at the service's main address and custom domains; of several the longest counts.",
        }),
      ),
      public_path_rewrite: Maybe(
        Text(1024, {
          description: 'The path that the program gets in place of `public_path`; if empty, the path is unchanged.',
        }),
      ),
    }),
    50,
    { default: [] },
  )

export interface Port {
  id: string
  name: string
  internal_port: number
  /** 0 until a public TCP or UDP port has been assigned one (service/published-ports.ts). */
  external_port: number
  publicly_accessible: boolean
  is_default: boolean
  protocol: PortProtocol
  public_path?: string
  public_path_rewrite?: string
}

const isWeb = ({ protocol = 'HTTP', publicly_accessible: open }: Partial<Port>): boolean =>
  open === true && (protocol === 'HTTP' || protocol === 'GRPC')

const transportOf = ({ protocol }: Partial<Port>): string => (protocol === 'UDP' ? 'udp' : 'tcp')

/** Published on a port of this machine, not under a host name. */
export const isPublished = ({ protocol = 'HTTP', publicly_accessible: open }: Partial<Port>): boolean =>
  open === true && (protocol === 'TCP' || protocol === 'UDP')

const publishedPort = (port: Partial<Port> & { internal_port: number }, same: Port | undefined): number => {
  if (typeof port.external_port === 'number') return port.external_port
  if (isWeb(port)) return 443
  if (!isPublished(port)) return port.internal_port
  return same !== undefined && isPublished(same) && same.protocol === port.protocol ? same.external_port : 0
}

/** `/` and nothing mean all paths; null if it is not a plain prefix. */
const prefixOf = (text: string | undefined): string | null | undefined => {
  const path = (text ?? '').trim().replace(/\/+$/, '')
  if (path === '') return undefined
  return isPrefix(path) ? path : null
}

const notPrefix = 'must be a path such as /api, without encoded characters, patterns, `.` and `..`'

/** 400 for paths that the router could not distinguish. */
const checkPaths = (ports: readonly Partial<Port>[]): void => {
  const seen = new Set<string>()
  for (const [index, port] of ports.entries()) {
    if (!isWeb(port)) continue
    const path = prefixOf(port.public_path)
    if (path === null) throw invalidField(`/ports/${index}/public_path`, notPrefix)
    if (prefixOf(port.public_path_rewrite) === null)
      throw invalidField(`/ports/${index}/public_path_rewrite`, notPrefix)
    if (path === undefined) continue
    if (seen.has(path)) throw invalidField(`/ports/${index}/public_path`, 'is used by another port')
    seen.add(path)
  }
}

/** A path stored before paths were checked counts as none. */
const placeOf = (port: Port): Pick<WorkloadPort, 'publicPath' | 'publicPathRewrite'> => {
  const path = isWeb(port) ? prefixOf(port.public_path) : undefined
  if (path === undefined || path === null) return {}
  const text = (port.public_path_rewrite ?? '').trim()
  const rewrite = text === '' ? undefined : (prefixOf(text) ?? '/')
  return { publicPath: path, ...(rewrite === undefined ? {} : { publicPathRewrite: rewrite }) }
}

/** Ports with ids, names, published ports and exactly one default among the public web ones. */
export const completePorts = (sent: unknown, previous: readonly Port[]): Port[] => {
  const ports = sent as (Partial<Port> & { internal_port: number })[]
  const seen = new Set<string>()
  checkPaths(ports)
  const wanted = ports.find((port) => isWeb(port) && port.is_default === true) ?? ports.find(isWeb)
  return ports.map((port, index) => {
    const { protocol = 'HTTP', publicly_accessible: open = false, internal_port: inside } = port
    const key = `${inside}/${transportOf(port)}`
    if (seen.has(key)) throw invalidField(`/ports/${index}/internal_port`, 'is used twice')
    seen.add(key)
    const isSame = (each: Port): boolean =>
      port.id === undefined
        ? each.internal_port === inside && transportOf(each) === transportOf(port)
        : each.id === port.id
    const same = previous.find(isSame)
    return {
      ...port,
      id: same?.id ?? newId(),
      name: port.name ?? `p${inside}`,
      external_port: publishedPort(port, same),
      publicly_accessible: open,
      is_default: port === wanted,
      protocol,
    }
  })
}

export const workloadPorts = (ports: readonly Port[]): WorkloadPort[] =>
  ports.map((port) => ({
    internalPort: port.internal_port,
    protocol: port.protocol,
    publiclyAccessible: port.publicly_accessible,
    ...(isPublished(port) ? { externalPort: port.external_port } : {}),
    ...placeOf(port),
  }))

const minStorageGb = 4

/** Description of `auto_preview` for services with a repository. */
export const autoPreview =
  "Whether pull requests to the service's branch get a preview, if the deployment rule of its environment has `auto_preview` too."
/** Description of `auto_preview` for services without one. */
export const noPreviews = 'an image has no pull requests.'
const noGpu = 'this cluster has no GPUs'

/** A number of GPUs. */
export const Gpus = () => Refused(Whole(0, 1000, { default: 0 }), noGpu)

export const volumeSizeWords =
  "GB; counts toward the organization's limits. A new volume takes no more than this where the Docker engine of the cluster can limit it; elsewhere the header and the plan name the field as not applied. The size of a limited volume cannot be changed: a deploy with another one is refused."

export const Storage = () =>
  List(
    Type.Object({
      id: Maybe(Uuid()),
      type: Maybe(OneOf(['FAST_SSD'], { default: 'FAST_SSD' })),
      size: Whole(minStorageGb, 65_536, { description: volumeSizeWords }),
      mount_point: Text(1024, { minLength: 2, pattern: '^/[^\\u0000-\\u0020\\u007f:,\\\\]+$' }),
    }),
    20,
    { default: [] },
  )

export interface StorageItem {
  id: string
  type: string
  size: number
  mount_point: string
}

const insideSystem = /^\/(proc|sys|dev)(\/|$)/

/** Storage with ids; an item without one keeps the id of the same mount point. */
export const completeStorage = (sent: unknown, previous: readonly StorageItem[]): StorageItem[] => {
  const seen = new Set<string>()
  return (sent as (Partial<StorageItem> & { size: number; mount_point: string })[]).map((item, index) => {
    const path = item.mount_point.replaceAll(/\/+/g, '/').replace(/\/$/, '')
    const field = `/storage/${index}/mount_point`
    if (path.split('/').includes('..') || path.split('/').includes('.') || path === '' || insideSystem.test(path))
      throw invalidField(field, 'must be an absolute path without `.` and `..`, outside /proc, /sys and /dev')
    if (seen.has(path)) throw invalidField(field, 'is used twice')
    seen.add(path)
    const same = previous.find((each) => each.id === item.id || (item.id === undefined && each.mount_point === path))
    return { id: same?.id ?? newId(), type: item.type ?? 'FAST_SSD', size: item.size, mount_point: path }
  })
}

const paceWords =
  'How a running version is asked, and part of the time in which a new one must become ready. A starting version is asked sooner where this is the default.'

const OneProbe = () =>
  Type.Object(
    {
      type: Maybe(
        Nullable(
          Type.Object({
            tcp: Maybe(
              Nullable(
                Type.Object({
                  port: Maybe(PortNumber()),
                  host: Maybe(
                    Refused(Nullable(Text()), 'is not possible: a probe asks the instance itself; leave it out'),
                  ),
                }),
              ),
            ),
            http: Maybe(
              Nullable(
                Type.Object({
                  path: Maybe(Text(2048, { default: '/', pattern: '^/[^\\u0000-\\u0020\\u007f]*$' })),
                  scheme: Maybe(OneOf(['HTTP', 'HTTPS'], { default: 'HTTP' })),
                  port: Maybe(PortNumber()),
                }),
              ),
            ),
            exec: Maybe(Nullable(Type.Object({ command: List(Text(4096), 100, { minItems: 1 }) }))),
            grpc: Maybe(
              Nullable(
                Type.Object(
                  { service: Maybe(Nullable(Text())), port: Maybe(PortNumber()) },
                  { description: "Asks gRPC's own health service (`grpc.health.v1.Health`), without TLS." },
                ),
              ),
            ),
          }),
        ),
      ),
      initial_delay_seconds: Maybe(
        Whole(0, 86_400, { default: usualPace.initialDelaySeconds, description: paceWords }),
      ),
      period_seconds: Maybe(Whole(1, 86_400, { default: usualPace.periodSeconds, description: paceWords })),
      timeout_seconds: Maybe(Whole(1, 86_400, { default: 5 })),
      success_threshold: Maybe(Whole(1, 1000, { default: 1 })),
      failure_threshold: Maybe(Whole(1, 1000, { default: 9 })),
    },
    { title: 'Probe' },
  )

export const Healthchecks = (options: Record<string, unknown> = {}): TSchema =>
  Type.Object({ readiness_probe: Maybe(Nullable(OneProbe())), liveness_probe: Maybe(Nullable(OneProbe())) }, options)

interface KeptProbe {
  type?: {
    tcp?: { port?: number; host?: string | null } | null
    http?: { path?: string; scheme?: 'HTTP' | 'HTTPS'; port?: number } | null
    exec?: { command: string[] } | null
    grpc?: { service?: string | null; port?: number } | null
  } | null
  initial_delay_seconds: number
  period_seconds: number
  timeout_seconds: number
  success_threshold: number
  failure_threshold: number
}

export interface KeptHealthchecks {
  readiness_probe?: KeptProbe | null
  liveness_probe?: KeptProbe | null
}

/** 400 for a probe that the local cluster cannot run. */
export const checkProbes = (checks: KeptHealthchecks, ports: readonly Port[]): void => {
  for (const name of ['readiness_probe', 'liveness_probe'] as const) {
    const type = checks[name]?.type
    if (type === undefined || type === null) continue
    const field = `/healthchecks/${name}/type`
    const ways = Object.values(type).filter((way) => way !== null && way !== undefined)
    if (ways.length > 1) throw invalidField(field, 'must have only one of `tcp`, `http`, `grpc` and `exec`')
    const asking = type.http ?? type.tcp ?? type.grpc ?? null
    if (asking !== null && asking.port === undefined && ports.length === 0)
      throw invalidField(field, 'requires a port because the service has none')
  }
}

/** A probe for runtimes; null if none is set. */
export const toProbe = (kept: KeptProbe | null | undefined, ports: readonly Port[]): Probe | null => {
  const type = kept?.type
  if (kept === null || kept === undefined || type === null || type === undefined) return null
  const port = (ports.find((each) => each.is_default) ?? ports[0])?.internal_port ?? 0
  const common = {
    initialDelaySeconds: kept.initial_delay_seconds ?? usualPace.initialDelaySeconds,
    periodSeconds: kept.period_seconds ?? usualPace.periodSeconds,
    timeoutSeconds: kept.timeout_seconds ?? 5,
    successThreshold: kept.success_threshold ?? 1,
    failureThreshold: kept.failure_threshold ?? 9,
  }
  if (type.http)
    return {
      ...common,
      check: {
        kind: 'http',
        port: type.http.port ?? port,
        path: type.http.path ?? '/',
        scheme: type.http.scheme ?? 'HTTP',
      },
    }
  if (type.tcp) return { ...common, check: { kind: 'tcp', port: type.tcp.port ?? port } }
  if (type.grpc) {
    const { port: own = port, service } = type.grpc
    return { ...common, check: { kind: 'grpc', port: own, service: service ?? '' } }
  }
  if (type.exec) return { ...common, check: { kind: 'exec', command: type.exec.command } }
  return null
}

const usualReadyMs = 300_000

/** How long a new version may take to become ready: the time that its probe allows, else five minutes. */
export const readyTimeoutMs = (probe: Probe | null): number =>
  probe === null
    ? usualReadyMs
    : 1000 * (probe.initialDelaySeconds + probe.failureThreshold * (probe.periodSeconds + probe.timeoutSeconds))

/** The words of an entrypoint, respecting quotes; null for none. */
export const wordsOf = (text: string | undefined | null): string[] | null => {
  if (text === undefined || text === null || text.trim() === '') return null
  return [...text.matchAll(/(?:"([^"]*)"|'([^']*)'|(\S+))/g)].map((match) => match[1] ?? match[2] ?? match[3]!)
}
