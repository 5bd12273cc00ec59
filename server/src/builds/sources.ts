/**
 * The part of a builder that touches repositories: mirrors, and the preparation of builds from them. Initialized in the
 * background; the first callers wait. Knows no engines or images.
 */

import { DeploymentError } from '../lib/errors.ts'
import type { Log } from '../lib/log.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Database } from '../store/database.ts'
import type { BuildRequest } from './builder.ts'
import type { RoomLimits } from './git/mirror-room.ts'
import { openGitPlace } from './git/place.ts'
import { createGit } from './git/process.ts'
import { type GitLimits, type GitNetwork, usualLimits } from './git/remote.ts'
import type { ContentPart } from './lfs/complete.ts'
import { createMirrors, type Mirrors } from './mirrors/mirrors.ts'
import { createPreparation, type Preparation } from './preparation/preparation.ts'
import type { PreparationLimits } from './preparation-limits.ts'
import { sweepIntakes } from './pushed/intake.ts'
import { createRepositories, type Repositories } from './pushed/repositories.ts'
import { createStored } from './pushed/stored.ts'

export interface SourceParts {
  dataDir: string
  network: GitNetwork
  log: Log
  clock: Clock
  gitLimits?: Partial<GitLimits>
  room?: RoomLimits
  /** For one git process. */
  gitMemoryMb?: number
  preparation?: Partial<PreparationLimits>
  concurrency: number
  /** Has the repositories on this server itself; without it there are none. */
  database?: Database
}

export interface Sources
  extends Omit<Mirrors, 'mirrorOf' | 'contentOf' | 'withStored' | 'demandRoom' | 'usedMb' | 'removeOld'> {
  /** See `Mirrors.removeOld`. */
  removeOldMirrors: Mirrors['removeOld']
  /** Those on this server itself. Rejects without a database. */
  repositories: Repositories
  /** With its own threads, for the builds of one engine: one that stops reading its context delays no other. */
  prepare(): Preparation
}

/**
 * The part of a commit that a build reads. A tool gets the whole repository: modules refer to others outside their
 * folder.
 */
export const partOf = ({
  rootPath,
  dockerfilePath,
  tool,
  skipSubmodules = false,
}: Pick<BuildRequest, 'rootPath' | 'dockerfilePath' | 'tool' | 'skipSubmodules'>): ContentPart => ({
  ...{ rootPath, dockerfilePath, isWhole: tool !== undefined, skipSubmodules },
})

const started = new Date(Date.now() - performance.now())

const open = async (parts: SourceParts) => {
  const { dataDir, log, gitLimits, gitMemoryMb: memoryMb, database } = parts
  const { mirrors: folder, template, home, user, prlimit } = await openGitPlace(dataDir, log)
  const maxFileBytes = (gitLimits?.maxBytes ?? usualLimits.maxBytes) + 2 ** 30
  const setup = { home, user, prlimit, maxFileBytes, ...(memoryMb === undefined ? {} : { memoryMb }) }
  const git = createGit(setup)
  const stored = database === undefined ? undefined : createStored(database)
  const mirrors = createMirrors({ ...parts, git, folder, template, limits: gitLimits, stored })
  const repositories = database === undefined ? null : createRepositories({ git, template, mirrors, database })
  await sweepIntakes(git, folder, started)
  const prepare = () =>
    createPreparation({
      git: setup,
      mirrorOf: mirrors.mirrorOf,
      limits: parts.preparation,
      // As many contexts as builds are sent at once; two more can always be read.
      threads: parts.concurrency + 2,
      clock: parts.clock,
    })
  return { mirrors, prepare, repositories }
}

export const createSources = (parts: SourceParts): Sources => {
  const opened = open(parts)
  opened.catch((error: unknown) =>
    parts.log.error({ err: error }, 'git could not be set up: builds and repositories are unavailable'),
  )
  const ready = () =>
    opened.catch((error: unknown) => {
      throw new DeploymentError('git_unreachable', "git could not be set up on this server: see the server's log.", {
        cause: error,
      })
    })
  const repositories = async (): Promise<Repositories> => {
    const found = (await ready()).repositories
    if (found === null) throw new Error('there is no database for repositories')
    return found
  }
  return {
    repositories: {
      intake: async (...args) => (await repositories()).intake(...args),
      serve: async (...args) => (await repositories()).serve(...args),
      usedMb: async (...args) => (await repositories()).usedMb(...args),
    },
    fetch: async (...args) => (await ready()).mirrors.fetch(...args),
    head: async (...args) => (await ready()).mirrors.head(...args),
    branches: async (...args) => (await ready()).mirrors.branches(...args),
    commits: async (...args) => (await ready()).mirrors.commits(...args),
    heads: async (...args) => (await ready()).mirrors.heads(...args),
    changes: async (...args) => (await ready()).mirrors.changes(...args),
    folders: async (...args) => (await ready()).mirrors.folders(...args),
    folder: async (...args) => (await ready()).mirrors.folder(...args),
    fetchContent: async (...args) => (await ready()).mirrors.fetchContent(...args),
    files: async (...args) => (await ready()).mirrors.files(...args),
    removeOldMirrors: async (...args) => (await ready()).mirrors.removeOld(...args),
    prepare() {
      let made: Promise<Preparation> | undefined
      const preparation = (): Promise<Preparation> => {
        made ??= ready().then(({ prepare }) => prepare())
        return made
      }
      return {
        async read(what, signal) {
          const { mirrors } = await ready()
          const commitId = await mirrors.contentOf(what.source, what.commitId, partOf(what))
          return (await preparation()).read({ ...what, commitId }, signal)
        },
        context: async (...args) => (await preparation()).context(...args),
        close: async () => (await made?.catch(() => null))?.close(),
      }
    },
    close: async () => (await opened.catch(() => null))?.mirrors.close(),
  }
}
