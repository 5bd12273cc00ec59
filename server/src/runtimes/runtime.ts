/**
 * Where services run. A runtime is given the state that a service is to have and makes it true; every call is idempotent
 * and may be repeated after a crash at any instant. It knows ids and labels, never the product's kinds or database.
 */
import type { DeploymentError } from '../lib/errors.ts'
import type { Secret } from '../lib/secret.ts'
import type { AppObjects, AppSettings, AppToRun, Told } from './apps.ts'
import type { Images } from './images.ts'
import type { Exposure, Ingress } from './ingress.ts'
import type { Marks } from './marks.ts'
import type { Owned } from './owned.ts'
import type { Placement } from './placement.ts'
import type { Trouble } from './trouble.ts'

/** A service inside its cluster: a pod is found by both, a container by the second. */
export interface ServiceKey {
  environmentId: string
  serviceId: string
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
  /** Of a public TCP or UDP port: the one of the cluster's ingress. What is opened is said by an `Exposure`. */
  externalPort?: number
  /** Of a public HTTP or gRPC port: the prefix that it is at, and what the program sees in its place. */
  publicPath?: string
  publicPathRewrite?: string
}

/** Exactly one way to ask; times in seconds. */
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
 * What a probe has where nobody chose: it says how long a version may take to become ready, and the pace of what runs. A
 * version that starts is not kept waiting for it.
 */
export const usualPace = { initialDelaySeconds: 30, periodSeconds: 10 }

/** How the number of a service's instances follows its use. */
export interface Scaling {
  /** 0 or more. With 0 it sleeps while nobody asks for it, if it can be woken. */
  min: number
  /** 1 or more. */
  max: number
  /** What its instances use of their processor limit, on average, when there are as many as there should be: 1–1000. */
  cpuPercent: number
  /** The same of its memory limit, where the cluster scales by itself: the larger number counts. */
  memoryPercent?: number
  /** With 0 instances its hosts hold requests until it runs. */
  sleeps: boolean
}

/** Whether nothing of a version runs until somebody asks for it. */
export const isAsleep = ({ instances, scaling }: Pick<Workload, 'instances' | 'scaling'>): boolean =>
  instances === 0 && scaling?.sleeps === true

/** How a chart is installed. */
export interface ChartSettings {
  /** Until its workloads are ready: 1–86,400. */
  waitSeconds: number
  /** It may make objects that are not of the environment's namespace. */
  allowClusterWide: boolean
}

/** What a runtime with the ability installs in place of instances. */
export interface ChartToRun extends ChartSettings {
  /** The archive with all its dependencies, and values files, the last of which counts most: secret, for variables are in them. */
  content: Secret<ChartContent>
}

export interface ChartContent {
  /** base64 of a tar archive with gzip. */
  archive: string
  values: string[]
}

/** One service at one revision: all that a runtime needs. Made by a pure function from the service's configuration. */
export interface Workload extends Placement {
  organizationId: string
  projectId: string
  environmentId: string
  serviceId: string
  /** Id of the deployment that made this revision; instances of other revisions are older or newer versions. */
  revision: string
  /** DNS names of the service on its environment's network. */
  aliases: string[]
  /** Image reference or id that the engine holds or can pull. */
  image: string
  entrypoint: string[] | null
  arguments: string[] | null
  /** Environment, secrets included: opened only to be handed to the engine's API. */
  env: Secret<Record<string, string>>
  /** Files to write before the start; content is as secret as `env`. */
  files: Secret<{ path: string; content: string }[]>
  cpuMillicores: number
  memoryMb: number
  /** How many instances run side by side, 0 or more; of one that scales, how many now. */
  instances: number
  /** How many there are follows its use; absent: always as many. */
  scaling?: Scaling
  ports: WorkloadPort[]
  volumes: { id: string; mountPath: string; sizeGb: number }[]
  readiness: Probe | null
  liveness: Probe | null
  /** How long the instances of a new revision may take until ready, in milliseconds. */
  readyTimeoutMs: number
  /** Time between SIGTERM and SIGKILL, in milliseconds; what is run before SIGTERM takes its time from it. */
  stopGraceMs: number
  /** Nothing but its volumes and the folders of its outputs can be written to. */
  readOnlyRoot?: boolean
  /** The running version ends before a new one starts. */
  recreate?: boolean
  /** Its readiness is asked as often as that is cheap until it is ready, and not afterwards: nobody chose a pace. */
  eagerReadiness?: boolean
  /** Run in an instance after each start of it; one that does not end with code 0 fails the start. */
  postStart?: string[]
  /** Run in an instance before SIGTERM, whatever it ends with. */
  preStop?: string[]
  /** For its image where nothing runs as root: the number of the user that it runs as, and variables that it needs then. */
  withoutRoot?: { user: number; env?: Readonly<Record<string, string>> }
  /** Words of its owners for people and tools that look at the engine: never believed by us. */
  labels?: Record<string, string>
  /** It is what this chart makes; image, instances and what belongs to them say nothing then. */
  chart?: ChartToRun
  /** It is this app, with one instance that stands for it; the image says nothing then. */
  app?: AppToRun
  /** How its requests are treated on their way, where that is not as usual: settings, by their names. */
  ingress?: Readonly<Record<string, unknown>>
  /** Text kept with what runs and with volumes, for `records` to read: no configuration, another one changes nothing. */
  record?: string
}

/** How long the instances of a new revision may take until they have said yes as often as they are asked to. */
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

/** Whether an instance has to be started or replaced; the engine looks after what only crashed. */
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
  /** How it ended the last time, as far as the engine has told; absent if it did not. */
  lastExit?: LastExit
  /** RFC 3339, null before the first start. */
  startedAt: string | null
  /** Ports that it is to listen on. */
  ports: readonly number[]
  /** It was ready, and says no now: it gets no requests. */
  unready?: boolean
  trouble?: Trouble
  /** The machine of its cluster that it is on, where that has several. */
  machine?: string
  /** Of a task's execution, which only `owned` tells: the task's id. */
  taskId?: string
  /** It stands for what another controller runs: what that says of it. */
  told?: Told
}

/** What one running instance uses now, and what it may; a limit is null where it has none. */
export interface Usage {
  cpuMillicores: number
  cpuLimitMillicores: number | null
  /** Without what the kernel would give up for others, such as cached files. */
  memoryMb: number
  /** Of that, what belongs to its processes alone. */
  memoryRssMb: number
  memoryLimitMb: number | null
}

export interface RuntimeEvent {
  serviceId: string
  revision: string
  instanceId: string
  /** `unready` and `ready`: whether it gets requests, after it was ready once. */
  kind: 'started' | 'died' | 'oom' | 'removed' | 'unready' | 'ready'
}

export interface LogLine {
  /** RFC 3339 with nanoseconds where the engine has them. */
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

/** Takes the bytes of one file and resolves when they are safe. After a crash it is handed the same file again. */
export type OutputPlace = (bytes: AsyncIterable<Uint8Array>, signal: AbortSignal) => Promise<void>

/** A file that is wanted of an execution. */
export interface TaskOutput {
  /** Absolute. Its folder, unless that is the top, is made before the start for whoever the program runs as to write to. */
  path: string
  maxBytes: number
  /** Where its bytes go once the program has ended with code 0, within that time; absent: it is a small text. */
  stream?: { to: OutputPlace; deadlineMs: number }
  /** Another place for the output before it: a runtime that reads one file of an execution leaves it out. */
  isAlternative?: boolean
}

/** What became of each output, by its path: its text, or how much was handed over, or why not. What was not written is left out. */
export type TaskOutputs = Readonly<Record<string, { text: string } | { bytes: number } | { error: DeploymentError }>>

/** How an execution ended, and what it left. */
export interface TaskEnd {
  exitCode: number
  oomKilled: boolean
  /** It took longer than it may and was stopped. */
  timedOut: boolean
  outputs: TaskOutputs
  /** Of a program that could not be started: why, as a whole sentence; absent where that is not known. */
  notStarted?: string
}

/** Something that runs to completion: a job, a migration, a backup. */
export interface Task {
  organizationId: string
  environmentId: string
  serviceId: string
  /** Unique per execution: the same id again joins or reads the execution that already is. */
  taskId: string
  image: string
  entrypoint: string[] | null
  arguments: string[] | null
  env: Secret<Record<string, string>>
  /**
   * As of a workload. Where one is too large to be handed over whole, the program finds it in parts, which are the files of
   * the folder `<path>.parts` in the order of their names.
   */
  files: Workload['files']
  /** Those of its service that it sees. */
  volumes: Workload['volumes']
  outputs: readonly TaskOutput[]
  cpuMillicores: number
  memoryMb: number
  timeoutMs: number
  /** How long its program may take to end when its time is over, in milliseconds. Default 10,000. */
  stopGraceMs?: number
  /** As of a workload. */
  readOnlyRoot?: boolean
  /** As of a workload. */
  withoutRoot?: Workload['withoutRoot']
  /** As of a workload. */
  machineLabels?: Workload['machineLabels']
  /** As of a workload. */
  labels?: Workload['labels']
  /** Of several attempts with one id: a later one takes the place of an earlier one. Default 1. */
  attempt?: number
}

/** Of a program that must not begin twice, even when its execution is lost. */
export interface Once {
  /** It was marked before: an execution that is not there any more is not begun again. */
  marked: boolean
  /** Kept before the program can begin; called again while it has not begun. */
  mark(): Promise<void>
}

/** One sentence a user may read, in the order things happen; `warning`: it says what keeps the service from being ready. */
export type Progress = (text: string, level?: 'warning') => void

/** What the machines of a cluster have, as its engine says. */
export interface Capacity {
  /** All processors together: 1000 is one. */
  cpuMillicores: number
  memoryMb: number
  architecture: 'AMD64' | 'ARM64'
  /** A new volume takes no more than its size; else sizes are only counted. */
  limitsVolumes: boolean
}

/** What not every runtime has: a service that needs it is refused. */
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

/** Of an engine with our router: everything but what only a Kubernetes cluster does. */
export const engineAbilities: ReadonlySet<Ability> = new Set(
  abilities.filter((each) => each !== 'charts' && each !== 'apps'),
)

/** What a chart would make otherwise than what is there, by name alone: values may be secret. */
export interface ChartChange {
  /** `Deployment shop` */
  name: string
  change: 'added' | 'removed' | 'changed'
}

/** `exposure` is asked when it is published: names may come and go while a version starts. */
export interface Running {
  state: 'running'
  workload: Workload
  exposure(): Promise<Exposure>
  /** Without instances: it was to be woken and could not be started, which its hosts say. */
  failed?: boolean
}

/** What a service is to be. */
export type Desired =
  | Running
  /** Nothing of it runs; its volumes stay, and its hosts say that it is stopped. */
  | { state: 'stopped'; exposure(): Promise<Exposure>; graceMs: number }
  /** Nothing of it is left, its volumes included. */
  | { state: 'absent'; graceMs: number }

export type RolloutStep = 'stop-first' | 'start' | 'ready' | 'switch' | 'drain' | 'retire'

/** The way to a desired state as people are shown it: whoever asked for it writes down its steps. */
export interface Rollout {
  /**
   * Does one part of the way, within its deadline: again where something is away for a moment. An abort only shortens
   * `drain` once the new version serves, and does not touch `retire` then.
   */
  step(name: RolloutStep, deadlineMs: number, work: (signal: AbortSignal) => Promise<void>): Promise<void>
  /** One sentence a user may read. A warning is also what the status says until the step ends. */
  report(name: RolloutStep, text: string, level?: 'warning'): void
  /** The moment between: requests go to the new version, the old one has not ended. A failure of it is one of `switch`. */
  serving(): Promise<void>
}

/** What there is of a service once it is as desired. */
export interface Converged {
  /** Of the desired revision. */
  instances: readonly Instance[]
  /** What cannot be published, in sentences. */
  refused: readonly string[]
}

export interface Runtime {
  readonly abilities: ReadonlySet<Ability>
  /** The cluster itself lets the number of instances follow their use; `resize` is not asked for it. */
  readonly scalesItself: boolean
  /**
   * The cluster's own controllers replace instances. Each of a new version gets requests as soon as it is ready, and not
   * all of them at the switch; to go back from there is another such replacement. What is to end without a rollout is on
   * its way to that when a call resolves.
   */
  readonly rollsItself: boolean
  /** A volume that is there gets the larger size that is asked for it; a smaller one leaves it as it is. */
  readonly growsVolumes: boolean
  readonly ingress: Ingress
  readonly images: Images
  readonly marks: Marks
  /** Rejects unless the engine answers within 3 s. */
  ping(): Promise<void>
  /** What there is for services, as the engine says now. */
  capacity(): Promise<Capacity>
  /**
   * How much each of these volumes takes at most, in GB, whatever it was last asked to: null without a limit. Those that
   * were not made yet are left out.
   */
  volumeSizes(ids: readonly string[]): Promise<ReadonlyMap<string, number | null>>
  /** Whether the running version of such a service ends before a new one starts. */
  stopsFirst(workload: Pick<Workload, 'volumes' | 'recreate'>): boolean
  /**
   * Makes a service as desired from whatever there is of it, and ends what does not belong to that.
   *
   * With a rollout, a new version is started beside the old one (unless `stopsFirst`) and waited for until every
   * instance is ready, by our own probe from outside (with no probe configured: any HTTP answer on an HTTP port, an
   * accepted connection on a TCP port, or staying up). Then requests go to it, `serving` is called, and the old version
   * ends when it has answered what it was asked. Until then a failure leaves the old one serving, unless it had to
   * stop, and what is left of the new one goes with the next `converge` to what was desired before. Rejects with a
   * `DeploymentError` that names the cause; `lines` are the last log lines of a version that is not ready:
   * `crash_loop`, `out_of_memory`, `not_ready`; or `port_unavailable`.
   *
   * Without one, the version is that which serves already: what is missing starts, nobody waits until it is ready, and
   * what cannot be published is told in the answer.
   */
  converge(service: ServiceKey, desired: Desired, rollout: Rollout | null, signal: AbortSignal): Promise<Converged>
  /**
   * Makes the version that serves have as many instances as its workload says; none of the others is restarted. Those
   * that are added get requests when all are ready. Those that are too many, the last ones, get no more, and end when
   * they have answered. `serving` is called before requests are led otherwise; if it rejects, they are not. Rejects as a
   * rollout that is not ready does: what was added stays then, without requests, until a call for fewer.
   */
  resize(service: ServiceKey, desired: Running, serving: () => Promise<void>, signal: AbortSignal): Promise<Converged>
  /** What a chart would change; with the ability `charts` alone. Rejects as `converge` does for a chart that it refuses. */
  planChart?(desired: Running, signal: AbortSignal): Promise<ChartChange[]>
  /** Why an app cannot be deployed now, in a sentence; null if it can. With the ability `apps` alone. Answers within 3 s. */
  appRefusal?(app: AppSettings): Promise<string | null>
  /** What an app has made, as it is now; null without one. With the ability `apps` alone. */
  readApp?(service: ServiceKey, signal: AbortSignal): Promise<AppObjects | null>
  /** Removes what the environment itself has (its network), once no instance is left in it. */
  removeEnvironment(environmentId: string, signal: AbortSignal): Promise<void>
  /** The instances of these services, or of all: one call to the engine however many they are. */
  observe(services?: readonly ServiceKey[]): Promise<Instance[]>
  /**
   * What these instances use now, by their ids; those that do not run are left out. Readers at once share the questions
   * to the engine, and nothing is asked while nobody reads.
   */
  usage(instances: readonly Instance[], signal: AbortSignal): Promise<ReadonlyMap<string, Usage>>
  /** Why it can say nothing of what instances use, as a sentence; null while it can. Absent where it always can. */
  usageProblem?(signal: AbortSignal): Promise<string | null>
  /** What happens to our instances, until aborted; ends with an error when the engine goes away. */
  watch(signal: AbortSignal): AsyncIterable<RuntimeEvent>
  /**
   * Restarts the instances whose liveness probe fails, and keeps requests from those whose readiness probe fails after
   * they were ready, until aborted; rejects when the engine goes away. One caller at a time: two would restart an
   * instance twice.
   */
  keepAlive(signal: AbortSignal): Promise<void>
  /** Lines of a service's present instances, all revisions, merged by time when `tail`, `since` or `until` is given. */
  logs(service: ServiceKey, options: LogOptions): AsyncIterable<LogLine>
  /**
   * Runs a task to its end and collects its outputs. Its execution stays until `endTask`, so that whoever asks with the
   * same id goes on with it or gets the same end again. An abort only ends the wait. Past its time it is stopped as by
   * `stopTask`. Rejects with `task_gone` for an execution that was lost before its outputs were collected, or that may
   * have begun once and is lost (`once`); and as the place of an output rejects.
   */
  run(task: Task, onLine: (line: string) => void, signal: AbortSignal, once?: Once): Promise<TaskEnd>
  /**
   * Ends the program of an execution, asked first and forced after `graceMs`, and collects the texts that it left. Null
   * when there is no execution.
   */
  stopTask(task: TaskKey & Pick<Task, 'outputs'>, graceMs: number, signal: AbortSignal): Promise<TaskOutputs | null>
  /** Ends and removes an execution that nobody waits for any more; succeeds when there is none. */
  endTask(task: TaskKey, signal: AbortSignal): Promise<void>
  /**
   * Everything that carries our label and this data directory's owner mark, so that reconcile can sweep. All of it or
   * nothing: rejects when any part of the answer is missing.
   */
  owned(): Promise<Owned>
  /** The texts (`Workload.record`) that instances and volumes of each of these services were made with, without repeats. */
  records(services: readonly ServiceKey[]): Promise<ReadonlyMap<string, readonly string[]>>
  close(): Promise<void>
}
