/**
 * The builder of `--fake`: commits are really fetched and their Dockerfile is really read, but nothing is built. The
 * image is the Dockerfile's last base image where that is one of the fake runtime's (`FROM fake/never-ready`), so that a
 * repository says how its instances behave.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { baseNames, planStages } from './build-plan.ts'
import type { Builder, BuildRequest, BuiltImage } from './builder.ts'
import { parseDockerfile } from './dockerfile.ts'
import { createMirrors } from './git.ts'
import { createGit } from './git-process.ts'
import type { CheckHost } from './git-remote.ts'
import { readSourceTree, readTreeFor } from './source-tree.ts'

export const createFakeBuilder = (parts: {
  dataDir: string
  checkHost: CheckHost
  log: Log
  clock: Clock
}): Builder => {
  const home = join(parts.dataDir, 'git-home')
  mkdirSync(home, { recursive: true, mode: 0o700 })
  const git = createGit(home)
  const mirrors = createMirrors({ ...parts, git, folder: join(parts.dataDir, 'mirrors') })
  const built = new Map<string, string>()

  const build = async (request: BuildRequest, onLog: (text: string) => void): Promise<BuiltImage> => {
    const { source, commitId, rootPath, dockerfilePath, targetStage, tool } = request
    const mirror = await mirrors.find(source.url, commitId)
    const tree =
      tool === undefined
        ? await readSourceTree(git, mirror, commitId, rootPath, dockerfilePath)
        : await readTreeFor(git, mirror, commitId, null, () => 'FROM fake/tool')
    const file = parseDockerfile(tree.dockerfile.toString('utf8'))
    const [base] = baseNames(planStages(file, {}, targetStage)).slice(-1)
    const reference = base?.startsWith('fake/') === true ? base : `fake/serve-${commitId.slice(0, 12)}`
    const contentKey = `${commitId}${rootPath}${dockerfilePath}`
    const skipped = built.has(contentKey)
    built.set(contentKey, reference)
    if (!skipped) onLog(`The fake builder takes ${reference} for commit ${commitId}.\n`)
    return { reference, imageId: reference, contentKey, skipped }
  }
  return {
    fetch: mirrors.fetch,
    head: mirrors.head,
    branches: mirrors.branches,
    commits: mirrors.commits,
    folders: mirrors.folders,
    build: (request, onLog) => build(request, onLog),
    built: async ({ commitId, rootPath, dockerfilePath }) =>
      built.get(`${commitId}${rootPath}${dockerfilePath}`) ?? null,
    missingTool: async () => null,
    close: () => mirrors.close(),
  }
}
