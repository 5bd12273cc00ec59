/**
 * The builder over git mirrors and the engines of clusters (see builder.ts for its promises). Does not know
 * deployments, and which engines there are. When the process dies here: locks are removed from mirrors when next used.
 */
import { DeploymentError } from '../lib/errors.ts'
import type { Builder, BuildRequest, ImageBuilder } from './builder.ts'
import { partOf, type Sources } from './sources.ts'

interface BuilderParts {
  sources: Sources
  missingTool: Builder['missingTool']
  toolVersions: Builder['toolVersions']
  /**
   * The image builder of a cluster's engine. Rejects with a `DeploymentError` for a cluster on which nothing is built.
   */
  imageBuilder(clusterId: string): Promise<Pick<ImageBuilder, 'build' | 'built'>>
}

/**
 * Runs `work` with the commit in our mirror: another server may have fetched it into its own and then have died, or
 * the mirror may have been removed since.
 */
const withCommit = async <T>(
  { fetch }: Pick<Sources, 'fetch'>,
  { source, commitId }: BuildRequest,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> => {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof DeploymentError) || error.code !== 'git_ref_missing') throw error
    await fetch({ ...source, commitId }, signal)
    return work()
  }
}

/** Closes the sources; the creator of the image builders closes them first. */
export const createBuilder = ({ sources, missingTool, toolVersions, imageBuilder }: BuilderParts): Builder => ({
  ...sources,
  async build(request, onLog, signal) {
    const { build } = await imageBuilder(request.clusterId)
    return withCommit(sources, request, signal, async () => {
      const { source, commitId } = request
      await sources.fetchContent(source, commitId, partOf(request), onLog, signal)
      return build(request, onLog, signal)
    })
  },
  async built(request, signal) {
    const { built } = await imageBuilder(request.clusterId)
    return withCommit(sources, request, signal, () => built(request, signal))
  },
  missingTool,
  toolVersions,
})
