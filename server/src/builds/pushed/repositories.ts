/**
 * The repositories that applications have on this server itself, for pushes and fetches (api/git-http). Knows neither
 * callers nor deployments.
 */
import { DeploymentError } from '../../lib/errors.ts'
import type { Database } from '../../store/database.ts'
import type { GitSource } from '../builder.ts'
import { roomRefusal } from '../git/mirror-room.ts'
import type { Git, GitTalk } from '../git/process.ts'
import type { Mirrors } from '../mirrors/mirrors.ts'
import { type Intake, openIntake } from './intake.ts'
import { readRefs } from './rows.ts'
import { alignRefs } from './stored.ts'

const fetchMs = 600_000

export interface Repositories {
  /** For a push to a repository. The caller removes it. Rejects with an `ApiError` when there is no room for it. */
  intake(source: GitSource, signal: AbortSignal): Promise<Intake>
  /**
   * `git upload-pack`, which serves fetches and nothing else; `advertise` lists the references. Only objects reachable
   * from them are served: the mirror also has the submodules of builds, which readers of the application may not be
   * allowed to read.
   */
  serve(source: GitSource, options: { advertise: boolean }, signal: AbortSignal): Promise<GitTalk>
  /** MB of the mirrors of all git repositories of an organization on this server. */
  usedMb(organizationId: string): Promise<number>
}

interface RepositoryParts {
  git: Git
  template: string
  mirrors: Pick<Mirrors, 'withStored' | 'demandRoom' | 'usedMb'>
  database: Database
}

const mostTries = 5

/**
 * Updates the mirror to the branches and tags of the database. If more was pushed after its packs were read, it is
 * read once more.
 */
const bringUpToDate = async (
  { git, mirrors, database }: RepositoryParts,
  source: GitSource,
  signal: AbortSignal,
): Promise<string> => {
  for (let tries = 1; ; tries += 1)
    try {
      return await mirrors.withStored(source, signal, async (path, id) => {
        const refs = await readRefs(database, id)
        await alignRefs(git, path, new Map(refs.map(({ name, objectId }) => [name, objectId])), source.branch)
        return path
      })
    } catch (error) {
      const isBehind = error instanceof DeploymentError && error.code === 'git_refused'
      if (!isBehind || tries === mostTries) throw error
    }
}

export const createRepositories = (parts: RepositoryParts): Repositories => ({
  async intake(source, signal) {
    try {
      const mirror = await parts.mirrors.withStored(source, signal, async (path) => path)
      await parts.mirrors.demandRoom(source, signal)
      return openIntake(parts.git, mirror, parts.template)
    } catch (error) {
      throw roomRefusal(error) ?? error
    }
  },
  usedMb: parts.mirrors.usedMb,
  async serve(source, { advertise }, signal) {
    const mirror = await bringUpToDate(parts, source, signal)
    const mode = advertise ? ['--advertise-refs'] : []
    return parts.git.talk(['upload-pack', '--strict', '--stateless-rpc', ...mode, mirror], {
      timeoutMs: fetchMs,
      config: [
        ['transfer.hideRefs', 'refs/slipway'],
        ['uploadpack.allowFilter', 'false'],
      ],
      // Version 2 would serve any object by its id.
      env: { GIT_PROTOCOL: '' },
    })
  },
})
