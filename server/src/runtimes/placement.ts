/** Where instances run on a cluster of several machines, and how a rollout by the cluster replaces them. */
export interface Placement {
  /** Only machines with these labels run it. */
  machineLabels?: Readonly<Record<string, string>>
  /** No two instances of a version on one machine. */
  apart?: boolean
  /** Whether instances of a version are spread over zones as well as possible, or else do not start. */
  zones?: 'ScheduleAnyway' | 'DoNotSchedule'
  /** How many more instances than wanted there may be while a version replaces another. */
  surgePercent?: number
}
