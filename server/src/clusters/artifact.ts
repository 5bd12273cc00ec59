/** What a runtime runs for a service of a kind. */
import { isKind, kinds } from '../kinds.ts'
import type { ArtifactKind } from '../runtimes/runtime.ts'

const artifacts = { instances: 'image', tasks: 'image', charts: 'chart', apps: 'app' } as const

/** Undefined for an environment or an orphan: only services have one. */
export const artifactOf = (kind: string): ArtifactKind | undefined =>
  isKind(kind) ? artifacts[kinds[kind].runs] : undefined
