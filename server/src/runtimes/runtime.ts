/**
 * Where services run. A runtime is given a desired state (a `Workload`) and makes it true; every call is idempotent
 * and may be repeated after a crash at any instant. It knows ids and labels, never the product's kinds or database.
 */
import type { DeploymentError } from '../lib/errors.ts'
import type { Secret } from '../lib/secret.ts'

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
  /** Of a public TCP or UDP port: the one of this machine that the router opens for it. Says nothing to a runtime. */
  externalPort?: number
}

/** Exactly one way to ask; times in seconds. */
export interface Probe {
  check:
    | { kind: 'http'; port: number; path: string; scheme: 'HTTP' | 'HTTPS' }
    | { kind: 'tcp'; port: number }
    | { kind: 'exec'; command: string[] }
  initialDelaySeconds: number
  periodSeconds: number
  timeoutSeconds: number
  successThreshold: number
  failureThreshold: number
}

/** One service at one revision: all that a runtime needs. Made by a pure function from the service's configuration. */
export interface Workload {
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
  /** How many instances run side by side, 0 or more. */
  instances: number
  ports: WorkloadPort[]
  volumes: { id: string; mountPath: string; sizeGb: number }[]
  readiness: Probe | null
  liveness: Probe | null
  /** How long the instances of a new revision may take until ready, in milliseconds. */
  readyTimeoutMs: number
  /** Time between SIGTERM and SIGKILL, in milliseconds. */
  stopGraceMs: number
}

export type InstanceState = 'created' | 'starting' | 'running' | 'restarting' | 'exited' | 'missing'

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
  restarts: number
  /** RFC 3339, null before the first start. */
  startedAt: string | null
  /**
   * Where this machine reaches each port: internal port → address. Where a program listens on one port over TCP and
   * UDP both, both are reached at the one address.
   */
  endpoints: Record<number, { host: string; port: number }>
  /** Of a task's execution, which only `owned` tells: the task's id. */
  taskId?: string
}

export interface RuntimeEvent {
  serviceId: string
  revision: string
  instanceId: string
  kind: 'started' | 'died' | 'oom' | 'removed'
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
  /** As of a workload. */
  files: Workload['files']
  /** Those of its service that it sees. */
  volumes: Workload['volumes']
  outputs: readonly TaskOutput[]
  cpuMillicores: number
  memoryMb: number
  timeoutMs: number
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

/** An image of a registry, for an organization: what others pulled is not there for it. */
export interface ImageRequest {
  organizationId: string
  /** With its host: `docker.io/library/postgres:16`, or with a digest after `@`. */
  reference: string
  /** Where its registry answers; null: https of the name's host. */
  origin: URL | null
  /** Login of the registry; opened only to be sent there. */
  login: Secret<{ username: string; password: string }> | null
  /** Ask the registry even when the engine holds the image. Without, `reference` is one that a release names. */
  refresh: boolean
}

/** One sentence a user may read, in the order things happen. */
export type Progress = (text: string) => void

/** What the machines of a cluster have, as its engine says. */
export interface Capacity {
  /** All processors together: 1000 is one. */
  cpuMillicores: number
  memoryMb: number
  architecture: 'AMD64' | 'ARM64'
}

/** What a runtime has; asked before it is relied on. */
export type Ability = 'volumes' | 'tcp-routes' | 'udp-routes' | 'helm' | 'argocd'

/** What a runtime holds of ours. */
export interface Owned {
  instances: Instance[]
  environments: string[]
  volumes: ({ id: string } & ServiceKey)[]
}

export interface Runtime {
  readonly name: 'docker' | 'kubernetes' | 'fake' | 'none'
  readonly can: ReadonlySet<Ability>
  /** Rejects unless the engine answers within 3 s. */
  ping(): Promise<void>
  /** What there is for services, as the engine says now. */
  capacity(): Promise<Capacity>
  /**
   * Makes the engine hold an image for its organization, and resolves to a reference that never moves: by digest, where
   * there is one. What the operator put on the engine may stand in for the public registry, and `progress` says so.
   * Rejects with a `DeploymentError` that names the image: `image_missing`, `image_denied`, `image_unreachable`,
   * `image_refused`, `registry_refused`; at the latest 30 s after the registry was last heard.
   */
  pull(image: ImageRequest, progress: Progress, signal: AbortSignal): Promise<string>
  /**
   * The reference that `pull` would resolve to, without pulling. With `refresh` null for what its registry does not tell
   * of within 5 s, and `image_denied` when it refuses the login; without, null for what the engine does not hold for this
   * organization.
   */
  lookUp(image: ImageRequest, signal: AbortSignal): Promise<string | null>
  /** Ids of the organizations that the engine holds pulled images for, those of other installations too. */
  imageOwners(): Promise<string[]>
  /** The organization needs these no more: they go, unless something runs from them. */
  dropImages(organizationId: string, references: readonly string[], signal: AbortSignal): Promise<void>
  /** What the organization pulled, does not need and has not used for so long goes. */
  sweepImages(organizationId: string, needed: readonly string[], unusedMs: number, signal: AbortSignal): Promise<void>
  /**
   * Makes the instances of this revision exist and be started, beside those of other revisions. Does not wait for
   * them to be ready. Rejects with a `DeploymentError` that names the cause.
   */
  apply(workload: Workload, progress: Progress, signal: AbortSignal): Promise<Instance[]>
  /**
   * Waits until every instance of this revision is ready, by our own probe from outside (with no probe configured:
   * any HTTP answer on an HTTP port, an accepted connection on a TCP port, or staying up). Rejects with a
   * `DeploymentError` whose `lines` are the last log lines: `crash_loop`, `out_of_memory`, `not_ready`.
   */
  ready(workload: Workload, progress: Progress, signal: AbortSignal): Promise<Instance[]>
  /**
   * Ends and removes the instances of a service, except those of the revision `keep` (null: all of them). SIGTERM,
   * then SIGKILL after `graceMs`. Volumes stay.
   */
  retire(service: ServiceKey, keep: string | null, graceMs: number, signal: AbortSignal): Promise<void>
  /** Removes everything of a service, its volumes included. */
  removeService(service: ServiceKey, signal: AbortSignal): Promise<void>
  /** Removes what the environment itself has (its network), once no instance is left in it. */
  removeEnvironment(environmentId: string, signal: AbortSignal): Promise<void>
  /** The instances of these services, or of all: one call to the engine however many they are. */
  observe(services?: readonly ServiceKey[]): Promise<Instance[]>
  /** What happens to our instances, until aborted; ends with an error when the engine goes away. */
  watch(signal: AbortSignal): AsyncIterable<RuntimeEvent>
  /** Lines of a service's present instances, all revisions, merged by time when `tail` or `since` is given. */
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
  close(): Promise<void>
}
