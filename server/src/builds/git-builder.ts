/**
 * The builder over git mirrors and the engines of clusters (see builder.ts for what it promises). Refuses to know
 * deployments, and which engines there are. When the process dies here: mirrors are freed of locks when next used.
 */
import type { Builder, ImageBuilder } from './builder.ts'
import type { Sources } from './sources.ts'

export interface BuilderParts {
  sources: Sources
  missingTool: Builder['missingTool']
  /** That of a cluster's engine. Rejects with a `DeploymentError` for a cluster on which nothing is built. */
  imageBuilder(clusterId: string): Promise<Pick<ImageBuilder, 'build' | 'built'>>
}

/** Closes the sources; who made the image builders closes them first. */
export const createBuilder = ({ sources, missingTool, imageBuilder }: BuilderParts): Builder => ({
  fetch: sources.fetch,
  head: sources.head,
  branches: sources.branches,
  commits: sources.commits,
  folders: sources.folders,
  files: sources.files,
  build: async (request, onLog, signal) => (await imageBuilder(request.clusterId)).build(request, onLog, signal),
  built: async (request, signal) => (await imageBuilder(request.clusterId)).built(request, signal),
  missingTool,
  close: sources.close,
})
