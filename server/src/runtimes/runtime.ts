/**
 * Where services run. A runtime gets the desired state of a service and makes it true; every call is idempotent and
 * may be repeated after a crash at any instant. It knows ids and labels, never the product's kinds or database.
 */
import type { DeploymentError } from '../lib/errors.ts'
import type { Secret } from '../lib/secret.ts'
import type { AppObjects, AppSettings, AppToRun, Told } from './apps.ts'
import type { ChartChange, ChartToRun } from './charts.ts'
import type { Images } from './images.ts'
import type { Exposure, Ingress } from './ingress.ts'
import type { Marks } from './marks.ts'
import type { Owned } from './owned.ts'
import type { PipedTask, PipeEnd, Pipes } from './pipes.ts'
import type { Placement } from './placement.ts'
import type { Trouble } from './trouble.ts'

/** A service inside its cluster: a pod is found by both ids, a container by the second. */
export interface ServiceKey {
  environmentId: string
  serviceId: string
  /** What it is; absent where that is not known: then a cluster looks for all that there may be of it. */
  artifact?: ArtifactKind | undefined
}

/** One execution of a task of a service. */
export interface TaskKey extends ServiceKey {
  taskId: string
}

export type PortProtocol = 'HTTP' | 'GRPC' | 'TCP' | 'UDP'

export interface WorkloadPort {
  /** Port that the program listens on, 1–65535. */
  internalPort: number
  protocol: PortProtocol
  publiclyAccessible: boolean
  /** For a public TCP or UDP port: that of the cluster's ingress. An `Exposure` says which ports are opened. */
  externalPort?: number
  /** For a public HTTP or gRPC port: its path prefix, and the path that the program gets in its place. */
  publicPath?: string
  publicPathRewrite?: string
}

/** Exactly one kind of check; times in seconds. */
export interface Probe {
  check:
    | { kind: 'http'; port: number; path: string; scheme: 'HTTP' | 'HTTPS' }
    | { kind: 'tcp'; port: number }
    /** By gRPC's own health service; `service`: empty for the program as a whole. */
    | { kind: 'grpc'; port: number; service: string }
    | { kind: 'exec'; command: string[] }
  initialDelaySeconds: number
  periodSeconds: number
  timeoutSeconds: number
  successThreshold: number
  failureThreshold: number
}

/**
 * The default pace of a probe: it says how long a version may take to become ready, and how often running instances
 * are checked. A version that starts is not kept waiting for it.
 */
export const usualPace = { initialDelaySeconds: 30, periodSeconds: 10 }

/** How the number of a service's instances follows its use. */
export interface Scaling {
  /** 0 or more. With 0 it sleeps without requests, if it can be woken. */
  min: number
  /** 1 or more. */
  max: number
  /** Target use of its instances' processor limit, on average: 1–1000. */
  cpuPercent: number
  /** The same for its memory limit, if the cluster scales by itself: the larger resulting number counts. */
  memoryPercent?: number
  /** With 0 instances its hosts park requests until it runs. */
  sleeps: boolean
}

/** Whether a version has no instance until a request wakes it. */
export const isAsleep = ({ instances, scaling }: Pick<Workload, 'instances' | 'scaling'>): boolean =>
  instances === 0 && scaling?.sleeps === true

/** One service at one revision, whatever it is. */
interface Revision extends ServiceKey {
  organizationId: string
  projectId: string
  /** Id of the deployment that made this revision; instances of other revisions are older or newer versions. */
  revision: string
  /** How long a new revision may take until it is ready, in milliseconds. */
  readyTimeoutMs: number
}

/** What a chart makes. */
export interface ServiceChart extends Revision {
  artifact: 'chart'
  chart: ChartToRun
}

/** An app of the cluster's Argo CD: one instance stands for it. */
export interface ServiceApp extends Revision {
  artifact: 'app'
  app: AppToRun
}

/** Instances of an image. Made by a pure function from the service's configuration. */
export interface Workload extends Revision, Placement {
  artifact: 'image'
  /** DNS names of the service on its environment's network. */
  aliases: string[]
  /** Reference or id of an image that the engine has or can pull. */
  image: string
  entrypoint: string[] | null
  arguments: string[] | null
  /** Environment, secrets included: decrypted only to be passed to the engine's API. */
  env: Secret<Record<string, string>>
  /** Files to write before the start; content is as secret as `env`. */
  files: Secret<{ path: string; content: string }[]>
  cpuMillicores: number
  memoryMb: number
  /** How many instances run at once, 0 or more; for one that scales, the present number. */
  instances: number
  /** How their number follows their use; absent: it never changes. */
  scaling?: Scaling
  ports: WorkloadPort[]
  volumes: { id: string; mountPath: string; sizeGb: number }[]
  readiness: Probe | null
  liveness: Probe | null
  /** Time between SIGTERM and SIGKILL, in milliseconds; the command before SIGTERM is part of it. */
  stopGraceMs: number
  /** Only its volumes and the folders of its outputs can be written to. */
  readOnlyRoot?: boolean
  /** The running version ends before a new one starts. */
  recreate?: boolean
  /** Its readiness is checked as often as is cheap until it is ready, and not afterwards: no pace was configured. */
  eagerReadiness?: boolean
  /** Run in an instance after each of its starts; a code other than 0 fails the start. */
  postStart?: string[]
  /** Run in an instance before SIGTERM, with any result. */
  preStop?: string[]
  /** For its image where nothing runs as root: the number of its user, and variables that it needs then. */
  withoutRoot?: { user: number; env?: Readonly<Record<string, string>> }
  /** The owners' labels for people and tools that read the engine: never trusted by us. */
  labels?: Record<string, string>
  /** Its settings for the treatment of requests that differ from the defaults, by name. */
  ingress?: Readonly<Record<string, unknown>>
  /** Text stored with instances and volumes, for `records` to read: not configuration, a change has no effect. */
  record?: string
}

/** What can run of a service: all that a runtime needs. */
export type Artifact = Workload | ServiceChart | ServiceApp

export type ArtifactKind = Artifact['artifact']

/** How long the instances of a new revision may take until they have passed their probe often enough. */
export const readyWithinMs = ({
  readyTimeoutMs,
  readiness,
}: Pick<Workload, 'readyTimeoutMs' | 'readiness'>): number => {
  if (readiness === null) return readyTimeoutMs
  const { successThreshold, periodSeconds, timeoutSeconds } = readiness
  return readyTimeoutMs + 1000 * Math.max(0, successThreshold - 1) * (periodSeconds + timeoutSeconds)
}

export type InstanceState = 'created' | 'starting' | 'running' | 'restarting' | 'exited' | 'missing'

const down: ReadonlySet<InstanceState> = new Set(['missing', 'exited', 'created'])

/** Whether an instance has to be started or replaced; the engine restarts those that only crashed. */
export const isDown = (of: Pick<Instance, 'state' | 'trouble'>): boolean => down.has(of.state) || !!of.trouble?.needsNew

export interface LastExit {
  exitCode: number
  oomKilled: boolean
  /** RFC 3339. */
  at: string
}

/** One running copy as the engine sees it now. */
export interface Instance {
  /** The engine's id (container id, pod name). */
  id: string
  /** Name made from our ids; stable for (service, revision, index). */
  name: string
  organizationId: string
  environmentId: string
  serviceId: string
  revision: string
  index: number
  state: InstanceState
  exitCode: number | null
  oomKilled: boolean
  /** How often it ended and was started again. */
  restarts: number
  /** Its last end, as far as the engine has reported it; absent if it did not end. */
  lastExit?: LastExit
  /** RFC 3339, null before the first start. */
  startedAt: string | null
  /** Ports that it should listen on. */
  ports: readonly number[]
  /** It was ready, and no longer is: it gets no requests. */
  unready?: boolean
  trouble?: Trouble
  /** Its machine, if its cluster has several. */
  machine?: string
  /** For a task's execution, which only `owned` lists: the task's id. */
  taskId?: string
  /** The report of another controller, if the instance represents its work. */
  told?: Told
}

/** The present usage of one running instance, and its limits; null without one. */
export interface Usage {
  cpuMillicores: number
  cpuLimitMillicores: number | null
  /** Without memory that the kernel can reclaim, such as cached files. */
  memoryMb: number
  /** The part of it that belongs only to its processes. */
  memoryRssMb: number
  memoryLimitMb: number | null
}

export interface RuntimeEvent {
  serviceId: string
  revision: string
  instanceId: string
  /** `unready` and `ready`: whether it gets requests, after it was ready before. */
  kind: 'started' | 'died' | 'oom' | 'removed' | 'unready' | 'ready'
}

export interface LogLine {
  /** RFC 3339, with nanoseconds if the engine has them. */
  at: string
  text: string
  stream: 'stdout' | 'stderr'
  instance: string
  revision: string
}

export interface LogOptions {
  /** Last lines per service, oldest first; a runtime that merges several instances may stop at 10,000. */
  tail?: number
  /** RFC 3339: only later lines. */
  since?: string
  /** RFC 3339: only lines before; not with `follow`. */
  until?: string
  follow?: boolean
  signal?: AbortSignal
}

/** Takes the bytes of one file and resolves when they are safe. After a crash it gets the same file again. */
export type OutputPlace = (bytes: AsyncIterable<Uint8Array>, signal: AbortSignal) => Promise<void>

/** A file to collect from an execution. */
export interface TaskOutput {
  /** Absolute. Its folder, unless that is the root, is created before the start, writable for the program's user. */
  path: string
  maxBytes: number
  /** Where its bytes are sent once the program has ended with code 0, within that time; absent: it is a small text. */
  stream?: { to: OutputPlace; deadlineMs: number }
  /** Another path for the preceding output: a runtime that reads only one file of an execution leaves it out. */
  isAlternative?: boolean
}

/** The result for each written output, by its path: its text, or the number of bytes passed on, or an error. */
export type TaskOutputs = Readonly<Record<string, { text: string } | { bytes: number } | { error: DeploymentError }>>

/** How an execution ended, and its outputs. */
export interface TaskEnd {
  exitCode: number
  oomKilled: boolean
  /** It exceeded its time limit and was stopped. */
  timedOut: boolean
  outputs: TaskOutputs
  /** For a program that could not be started: why, as a whole sentence; absent if unknown. */
  notStarted?: string
}

/** Something that runs to completion: a job, a migration, a backup. */
export interface Task extends Pick<Workload, 'readOnlyRoot' | 'withoutRoot' | 'machineLabels' | 'labels'> {
  organizationId: string
  environmentId: string
  serviceId: string
  /** Unique per execution: the same id again joins or reads the existing execution. */
  taskId: string
  image: string
  entrypoint: string[] | null
  arguments: string[] | null
  env: Secret<Record<string, string>>
  /**
   * As for a workload. If one is too large to be passed whole, the program finds it in parts, which are the files of
   * the folder `<path>.parts` in the order of their names.
   */
  files: Workload['files']
  /** Those of its service that it mounts. */
  volumes: Workload['volumes']
  outputs: readonly TaskOutput[]
  cpuMillicores: number
  memoryMb: number
  timeoutMs: number
  /** How long its program may take to end when its time is over, in milliseconds. Default 10,000. */
  stopGraceMs?: number
  /** The number of the attempt with this id: a later one replaces an earlier one. Default 1. */
  attempt?: number
}

/** For a program that must not begin twice, even when its execution is lost. */
export interface Once {
  /** It was marked before: a missing execution is not begun again. */
  marked: boolean
  /** Stored before the program can begin; called again while it has not begun. */
  mark(): Promise<void>
}

/** One sentence for users, in the order of events; `warning`: why the service is not ready. */
export type Progress = (text: string, level?: 'warning') => void

/** The resources of a cluster's machines, as its engine reports them. */
export interface Capacity {
  /** All processors together: 1000 is one. */
  cpuMillicores: number
  memoryMb: number
  architecture: 'AMD64' | 'ARM64'
  /** A new volume is limited to its size; else sizes are only counted. */
  limitsVolumes: boolean
}

/** Abilities that not every runtime has: a service that needs a missing one is refused. */
export const abilities = [
  'volumes',
  'tcp-ports',
  'udp-ports',
  'grpc',
  'path-rewrites',
  'network-settings',
  'sticky-sessions',
  'sleep',
  'charts',
  'apps',
] as const
export type Ability = (typeof abilities)[number]

/** For an engine with our router: everything except what only a Kubernetes cluster does. */
export const engineAbilities: ReadonlySet<Ability> = new Set(
  abilities.filter((each) => each !== 'charts' && each !== 'apps'),
)

/** `exposure` is called when it is published: names may be added and removed while a version starts. */
export interface Running<Of extends Artifact = Artifact> {
  state: 'running'
  workload: Of
  exposure(): Promise<Exposure>
  /** Without instances: it could not be woken, which its hosts answer. */
  failed?: boolean
}

/** The desired state of a service. */
export type Desired =
  | Running
  /** No instance runs; its volumes are kept, and its hosts answer that it is stopped. */
  | { state: 'stopped'; exposure(): Promise<Exposure>; graceMs: number }
  /** Nothing of it is left, not even its volumes. */
  | { state: 'absent'; graceMs: number }

export type RolloutStep = 'stop-first' | 'start' | 'ready' | 'switch' | 'drain' | 'retire'

/** The steps to a desired state as users see them: the caller stores them. */
export interface Rollout {
  /**
   * Performs one step, within its deadline: retried after transient failures. An abort only shortens `drain` once the
   * new version serves, and does not affect `retire` then.
   */
  step(name: RolloutStep, deadlineMs: number, work: (signal: AbortSignal) => Promise<void>): Promise<void>
  /** One sentence for users. The status shows a warning too, until the step ends. */
  report(name: RolloutStep, text: string, level?: 'warning'): void
  /** Requests go to the new version, the old one has not ended. A failure counts as one of `switch`. */
  serving(): Promise<void>
}

/** The result for a service in its desired state. */
export interface Converged {
  /** The instances of the desired revision. */
  instances: readonly Instance[]
  /** Parts that cannot be published, in sentences. */
  refused: readonly string[]
}

export interface Runtime {
  readonly abilities: ReadonlySet<Ability>
  /** The cluster itself adjusts the number of instances to their use; `resize` is never called. */
  readonly scalesItself: boolean
  /**
   * The cluster's own controllers replace instances. Each of a new version gets requests as soon as it is ready, and
   * not all of them at the switch; going back is another such replacement. Instances that end without a rollout are
   * ending when a call resolves.
   */
  readonly rollsItself: boolean
  /** An existing volume gets a larger requested size; a smaller one leaves it unchanged. */
  readonly growsVolumes: boolean
  readonly ingress: Ingress
  readonly images: Images
  readonly marks: Marks
  /** Rejects unless the engine answers within 3 s. */
  ping(): Promise<void>
  /** The present resources for services, as the engine reports them. */
  capacity(): Promise<Capacity>
  /** The present limit of each volume in GB; null without one. Those that do not exist yet are left out. */
  volumeSizes(ids: readonly string[]): Promise<ReadonlyMap<string, number | null>>
  /** Whether the running version of such a service ends before a new one starts. */
  stopsFirst(workload: Pick<Workload, 'volumes' | 'recreate'>): boolean
  /**
   * Brings a service into the desired state from any other, and ends everything that does not belong to it.
   *
   * With a rollout, a new version is started in parallel to the old one (unless `stopsFirst`) and waited for until
   * every instance is ready, by our own probe from outside (with no probe configured: any HTTP answer on an HTTP port,
   * an accepted connection on a TCP port, or staying up). Then requests go to it, `serving` is called, and the old
   * version ends after its last answer. Until then a failure leaves the old one serving, unless it had to stop, and
   * the rest of the new one is removed by the next `converge` to the former desired state. Rejects with a
   * `DeploymentError` that names the cause; `lines` are the last log lines of a version that is not ready:
   * `crash_loop`, `out_of_memory`, `not_ready`; or `port_unavailable`.
   *
   * Without one, the version is the one that serves already: missing instances are started without waiting for them
   * (except for a chart, which helm waits for), and parts that cannot be published are in the result.
   */
  converge(service: ServiceKey, desired: Desired, rollout: Rollout | null, signal: AbortSignal): Promise<Converged>
  /**
   * Changes the number of instances of the version that serves to that of its workload; none of the others is
   * restarted. Added ones get requests when all are ready. Surplus ones, the last ones, get no more requests, and end
   * after their last answer. `serving` is called before routes change; if it rejects, they do not. Rejects like a
   * rollout that is not ready: added instances are kept then, without requests, until a call for fewer.
   */
  resize(
    service: ServiceKey,
    desired: Running<Workload>,
    serving: () => Promise<void>,
    signal: AbortSignal,
  ): Promise<Converged>
  /** The changes of a chart; only with the ability `charts`. Rejects as `converge` does for a chart that it refuses. */
  planChart?(desired: Running<ServiceChart>, signal: AbortSignal): Promise<ChartChange[]>
  /** Why an app cannot be deployed now, in a sentence, within 3 s; null if it can. Only with the ability `apps`. */
  appRefusal?(app: AppSettings): Promise<string | null>
  /** The present objects of an app; null without one. Only with the ability `apps`. */
  readApp?(service: ServiceKey, signal: AbortSignal): Promise<AppObjects | null>
  /** Removes the environment's own objects (its network), once no instance is left in it. */
  removeEnvironment(environmentId: string, signal: AbortSignal): Promise<void>
  /** The instances of these services, or of all: one call to the engine however many they are. */
  observe(services?: readonly ServiceKey[]): Promise<Instance[]>
  /**
   * The present usage of these instances, by their ids; those that do not run are left out. Concurrent readers share
   * the calls to the engine, and nothing is called without readers.
   */
  usage(instances: readonly Instance[], signal: AbortSignal): Promise<ReadonlyMap<string, Usage>>
  /** Why usage of instances is not available, as a sentence; null while it is. Absent if it always is. */
  usageProblem?(signal: AbortSignal): Promise<string | null>
  /** Events of our instances, until aborted; ends with an error when the engine disconnects. */
  watch(signal: AbortSignal): AsyncIterable<RuntimeEvent>
  /**
   * Restarts the instances whose liveness probe fails, and keeps requests from those whose readiness probe fails after
   * they were ready, until aborted; rejects when the engine disconnects. One caller at a time: two would restart an
   * instance twice.
   */
  keepAlive(signal: AbortSignal): Promise<void>
  /** Lines of a service's present instances, all revisions, merged by time when `tail`, `since` or `until` is given. */
  logs(service: ServiceKey, options: LogOptions): AsyncIterable<LogLine>
  /**
   * Runs a task to its end and collects its outputs. Its execution is kept until `endTask`, so that another call with
   * the same id continues it or gets the same result again. An abort only ends the wait. Past its time it is stopped
   * as by `stopTask`. Rejects with `task_gone` for an execution that was lost before its outputs were collected, or
   * that may have begun once and is lost (`once`); and with the error of an output's place.
   */
  run(task: Task, onLine: (line: string) => void, signal: AbortSignal, once?: Once): Promise<TaskEnd>
  /**
   * Runs a program once, with its standard streams, and removes all of it at the end, whatever the end is. An earlier
   * execution with this id, left by a process that died, is removed first. Rejects with the error of `stdin` or
   * `stdout`, which ends the program; with the reason of `signal`; with `pipes_unavailable` where it is not possible.
   */
  pipe(task: PipedTask, pipes: Pipes, signal: AbortSignal): Promise<PipeEnd>
  /** Ends an execution's program, by force after `graceMs`; collects its text outputs. Null: no execution. */
  stopTask(task: TaskKey & Pick<Task, 'outputs'>, graceMs: number, signal: AbortSignal): Promise<TaskOutputs | null>
  /** Ends and removes an abandoned execution; succeeds if there is none. */
  endTask(task: TaskKey, signal: AbortSignal): Promise<void>
  /**
   * Everything with our label and this data directory's owner mark, so that reconcile can sweep. Completely or not at
   * all: rejects if any part of the answer is missing.
   */
  owned(): Promise<Owned>
  /** The distinct texts (`Workload.record`) with which instances and volumes of each of these services were created. */
  records(services: readonly ServiceKey[]): Promise<ReadonlyMap<string, readonly string[]>>
  close(): Promise<void>
}
