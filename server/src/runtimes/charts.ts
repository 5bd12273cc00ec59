/** Services that are charts, as a runtime with the ability `charts` is given them. */
import type { Secret } from '../lib/secret.ts'

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

/** What a chart would make otherwise than what is there, by name alone: values may be secret. */
export interface ChartChange {
  /** `Deployment shop` */
  name: string
  change: 'added' | 'removed' | 'changed'
}
