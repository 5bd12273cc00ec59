/**
 * The operations of a runtime that starts and ends single instances. Each call is idempotent and may be repeated after
 * a crash at any instant; converge.ts decides their order, and where requests go.
 */
import type { Instance, Progress, ServiceKey, Workload } from '../runtime.ts'

export interface PlacedInstance extends Instance {
  /** Internal port → where this machine reaches it: one address for a port that serves both TCP and UDP. */
  endpoints: Record<number, { host: string; port: number }>
}

export interface Instances {
  /**
   * Creates and starts the instances of this revision, in parallel to those of other revisions. Does not wait for them
   * to be ready. Rejects with a `DeploymentError` that names the cause.
   */
  apply(workload: Workload, progress: Progress, signal: AbortSignal): Promise<PlacedInstance[]>
  /** Waits until every instance of this revision is ready; see `Runtime.converge`. */
  ready(workload: Workload, progress: Progress, signal: AbortSignal): Promise<PlacedInstance[]>
  /** Ends a service's instances but those of `keep` (null: all): SIGTERM, SIGKILL after `graceMs`. Volumes stay. */
  retire(service: ServiceKey, keep: string | null, graceMs: number, signal: AbortSignal): Promise<void>
  /** Ends and removes the surplus instances of this revision above `instances`, the last ones, as `retire` does. */
  shrink(workload: Workload, signal: AbortSignal): Promise<void>
  /** Removes everything of a service, its volumes included. */
  remove(service: ServiceKey, signal: AbortSignal): Promise<void>
  /** The instances of these services, or of all: one call to the engine however many they are. */
  see(services?: readonly ServiceKey[]): Promise<PlacedInstance[]>
}
