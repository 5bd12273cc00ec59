/** Where instances are on a cluster of several machines, and how they follow each other where the cluster rolls out. */
export interface Placement {
  /** Only machines with these labels run it. */
  machineLabels?: Readonly<Record<string, string>>
  /** No two instances of a version on one machine. */
  apart?: boolean
  /** Whether instances of a version are spread over zones as well as can be, or do not start otherwise. */
  zones?: 'ScheduleAnyway' | 'DoNotSchedule'
  /** How many more instances than wanted there may be while a version replaces another. */
  surgePercent?: number
}
