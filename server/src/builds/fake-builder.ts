/**
 * The builder of `--fake`: commits are fetched and their Dockerfile is read, but nothing is built. The image is the
 * Dockerfile's last base image if that is one of the fake runtime's (`FROM fake/never-ready`), so that a repository
 * determines how its instances behave.
 */

import type { BuildRequest, BuiltImage, ImageBuilder } from './builder.ts'
import { baseNames, planStages, usualPlatform } from './preparation/build-plan.ts'
import type { Preparation } from './preparation/preparation.ts'

export const createFakeBuilder = (preparation: Preparation): ImageBuilder => {
  const built = new Map<string, string>()

  /** By organization, as images are. */
  const keyOf = ({ source, commitId, rootPath, dockerfilePath }: BuildRequest): string =>
    JSON.stringify([source.organizationId, commitId, rootPath, dockerfilePath])

  const build = async (
    request: BuildRequest,
    onLog: (text: string) => void,
    signal: AbortSignal,
  ): Promise<BuiltImage> => {
    const { commitId, targetStage, tool } = request
    const { dockerfile } = await preparation.read(request, signal)
    const stages = tool === undefined ? planStages(dockerfile, {}, targetStage, usualPlatform) : null
    const [base] = stages === null ? ['fake/tool'] : baseNames(stages).slice(-1)
    const reference = base?.startsWith('fake/') === true ? base : `fake/serve-${commitId.slice(0, 12)}`
    const contentKey = keyOf(request)
    const skipped = built.has(contentKey)
    built.set(contentKey, reference)
    if (!skipped) onLog(`The fake builder uses ${reference} for commit ${commitId}.\n`)
    return { reference, imageId: reference, contentKey, skipped }
  }
  return {
    build,
    built: async (request) => built.get(keyOf(request)) ?? null,
    toolImage: async () => 'fake/tool',
    close: preparation.close,
  }
}
