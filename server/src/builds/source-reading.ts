/** What a build reads of a repository: its tree with the Dockerfile, and the context as a tar. */
import type { Readable } from 'node:stream'
import type { BuildRequest } from './builder.ts'
import { type OwnDockerfile, openContext } from './context.ts'
import { type Dockerfile, parseDockerfile } from './dockerfile.ts'
import type { Mirrors } from './git.ts'
import type { Git } from './git-process.ts'
import { readSourceTree, readTreeFor, type SourceTree } from './source-tree.ts'
import { toolDockerfile } from './tools.ts'

export interface PreparedSource {
  tree: SourceTree
  dockerfile: Dockerfile
}

type Wanted = Pick<BuildRequest, 'source' | 'commitId' | 'rootPath' | 'dockerfilePath' | 'tool'>

export interface Preparation {
  read(what: Wanted, signal: AbortSignal): Promise<PreparedSource>
  context(tree: SourceTree, dockerfile: OwnDockerfile, signal: AbortSignal): Promise<{ tar: Readable }>
}

const maxKnown = 500

/** The whole repository, for modules refer to others beside their own folder. */
const readToolTree = (git: Git, mirror: string, commitId: string, { rootPath, tool }: Wanted) => {
  const { fragment } = tool!
  const path = fragment !== null && 'path' in fragment ? `${rootPath}/${fragment.path}` : null
  const text = fragment !== null && 'text' in fragment ? fragment.text : null
  return readTreeFor(git, mirror, commitId, path, (read) => toolDockerfile(read ?? text))
}

export const createPreparation = (git: Git, mirrors: Mirrors): Preparation => {
  /** A commit never changes: what was read of it once stays true. */
  const known = new Map<string, PreparedSource>()
  return {
    async read(what) {
      const { source, commitId, rootPath, dockerfilePath, tool } = what
      const name = JSON.stringify([source.url, commitId, rootPath, dockerfilePath, tool])
      const before = known.get(name)
      if (before !== undefined) return before
      const mirror = await mirrors.find(source.url, commitId)
      const tree =
        tool === undefined
          ? await readSourceTree(git, mirror, commitId, rootPath, dockerfilePath)
          : await readToolTree(git, mirror, commitId, what)
      const read = { tree, dockerfile: parseDockerfile(tree.dockerfile.toString('utf8')) }
      if (tree.dockerfile.length < 65_536) known.set(name, read)
      if (known.size > maxKnown) known.delete(known.keys().next().value!)
      return read
    },
    context: async (tree, dockerfile) => ({ tar: openContext(git, tree, dockerfile) }),
  }
}
