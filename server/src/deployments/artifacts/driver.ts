/** The differences between an image, a chart, an app and a module, as one interface. */
import type { Cluster } from '../../clusters/clusters.ts'
import type { DatabaseModules } from '../../clusters/database-modules.ts'
import type { AppSettings } from '../../runtimes/apps.ts'
import type { ChartChange } from '../../runtimes/charts.ts'
import type { Ability, ArtifactKind } from '../../runtimes/runtime.ts'
import type { ServiceRequest, Source, WorkloadSpec } from '../deployments.ts'
import type { ModuleSource } from '../desired/modules.ts'
import type { VolumeSizes } from '../desired/volume-sizes.ts'
import type { Made } from '../images/make-image.ts'
import type { DeploymentParts, EffectiveVariables } from '../parts.ts'
import type { ServiceRun } from '../progress/service-run.ts'
import type { Release } from '../release/releases.ts'
import type { Version } from '../release/version-change.ts'

/** A cluster as a service is to be deployed to it. */
export interface Place {
  abilities: ReadonlySet<Ability>
  /** Whether it limits volumes; null if it never said. */
  limits: boolean | null
  sizes: VolumeSizes
  /** Why nothing can be built for it; null if something can. */
  builds: string | null
  missingTool(name: string): Promise<string | null>
  /** Why a module cannot make something. */
  module(source: ModuleSource): string | null
  /** Why an app cannot be deployed there, as the cluster says now. */
  app(settings: AppSettings): Promise<string | null>
}

export interface Asked<Of extends Source> {
  source: Of
  spec: WorkloadSpec
  requested: Partial<ServiceRequest>
}

/** The input for finding the version that a deploy would bring. */
export interface Next {
  parts: DeploymentParts
  cluster: Cluster
  organizationId: string
  requested: Omit<ServiceRequest, 'id'>
  current: Release | null
  signal: AbortSignal
}

export interface Foreseeing extends Next {
  environmentId: string
  service: { id: string; clusterId: string; projectId: string; mode: string }
  spec: WorkloadSpec
  variables: EffectiveVariables
  version: Version
}

export interface Foreseen {
  /** It would be built. */
  builds?: boolean
  /** Reference of the image that the version was built to before. */
  built?: string | null
  /** What would change on its cluster. */
  objects?: ChartChange[]
}

/** Resolves to the newest variables of the service, as those of this commit. */
export type ReadVariables = (commitId?: string) => Promise<EffectiveVariables>

export interface Driver<Of extends Source = Source> {
  /** The kind of artifact that its cluster runs; null: a module makes it elsewhere, and its cluster runs nothing. */
  readonly artifact: ArtifactKind | null
  /** Why it cannot be deployed there, besides what the cluster lacks; null when it can. */
  refusal(place: Place, asked: Asked<Of>): string | null | Promise<string | null>
  /** Why it cannot be stopped; null when it can. Absent: it always can. */
  stopRefusal?(modules: DatabaseModules | undefined, source: Of): string | null
  /** The folder of its repository that a build reads; absent: not one alone. */
  folder?(source: Of): string
  /** The version that is deployed, and the one that a deploy as requested would bring: nothing is fetched or built. */
  next(next: Next, source: Of): Version | Promise<Version>
  /** Makes the content of a release, as steps of its deployment. */
  make(run: ServiceRun, source: Of, readVariables: ReadVariables): Promise<Made>
  /** The part of a plan besides the version. */
  foresee?(what: Foreseeing, source: Of): Promise<Foreseen>
}
