/** Services that are charts, as a runtime with the ability `charts` is given them. */
import type { Secret } from '../lib/secret.ts'

export interface ChartSettings {
  /** Until its workloads are ready: 1–86,400. */
  waitSeconds: number
  /** It may make objects outside the environment's namespace. */
  allowClusterWide: boolean
}

/** The chart that a runtime with the ability installs in place of instances. */
export interface ChartToRun extends ChartSettings {
  /** The archive with all its dependencies, and values files, the last of which wins: they contain secret variables. */
  content: Secret<ChartContent>
}

export interface ChartContent {
  /** base64 of a tar archive with gzip. */
  archive: string
  values: string[]
}

/** An object that a chart would change, by name alone: values may be secret. */
export interface ChartChange {
  /** `Deployment shop` */
  name: string
  change: 'added' | 'removed' | 'changed'
}
