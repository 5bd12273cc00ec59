/**
 * What a runtime that starts and ends single instances can do with them. Each call is idempotent and may be repeated
 * after a crash at any instant; which of them come when, and where requests go, is converge.ts's.
 */
import type { Instance, Progress, ServiceKey, Workload } from '../runtime.ts'

export interface PlacedInstance extends Instance {
  /**
   * Where this machine reaches each port: internal port → address. Where a program listens on one port over TCP and
   * UDP both, both are reached at the one address.
   */
  endpoints: Record<number, { host: string; port: number }>
}

export interface Instances {
  /**
   * Makes the instances of this revision exist and be started, beside those of other revisions. Does not wait for
   * them to be ready. Rejects with a `DeploymentError` that names the cause.
   */
  apply(workload: Workload, progress: Progress, signal: AbortSignal): Promise<PlacedInstance[]>
  /** Waits until every instance of this revision is ready; see `Runtime.converge`. */
  ready(workload: Workload, progress: Progress, signal: AbortSignal): Promise<PlacedInstance[]>
  /**
   * Ends and removes the instances of a service, except those of the revision `keep` (null: all of them). SIGTERM,
   * then SIGKILL after `graceMs`. Volumes stay.
   */
  retire(service: ServiceKey, keep: string | null, graceMs: number, signal: AbortSignal): Promise<void>
  /** Ends and removes those of this revision that are more than `instances`, the last ones, as `retire` does. */
  shrink(workload: Workload, signal: AbortSignal): Promise<void>
  /** Removes everything of a service, its volumes included. */
  remove(service: ServiceKey, signal: AbortSignal): Promise<void>
  /** The instances of these services, or of all: one call to the engine however many they are. */
  see(services?: readonly ServiceKey[]): Promise<PlacedInstance[]>
}
