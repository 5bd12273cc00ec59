/**
 * Bare mirrors of git repositories, one per organization, URL and credentials. Promises that a returned commit is
 * complete with all its files, that git connects only to the checked address, and that an organization gets only what
 * the host would show it now. A killed fetch leaves locks and partial packs, which the next use of that mirror
 * removes.
 */
import { join } from 'node:path'
import { createKeyedLock, type KeyedLock, withLock } from '../../lib/concurrency/keyed-lock.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Browser, Commit, GitSource } from '../builder.ts'
import { maxCommitBytes, parseCommit } from '../git/commit.ts'
import {
  askedHost,
  branchMissing,
  explainGit,
  explainLimits,
  isNotHandedOut,
  nothingPushed,
  refMissing,
  refused,
} from '../git/errors.ts'
import { noteUse } from '../git/mirror-folder.ts'
import { createMirrorRoom, type MirrorRoom, ownerKey, type RoomLimits } from '../git/mirror-room.ts'
import { hash, internalIdIn, isCommitId } from '../git/names.ts'
import { withObjects } from '../git/objects.ts'
import { type Git, GitFailed } from '../git/process.ts'
import {
  createRemote,
  describeRef,
  findTag,
  type GitLimits,
  type GitNetwork,
  headOf,
  type StoredRepositories,
  usualLimits,
  validate,
} from '../git/remote.ts'
import { type CompleteParts, type ContentPart, completeWithLfs, refForPart } from '../lfs/complete.ts'
import { type PreparationLimits, usualPreparation } from '../preparation-limits.ts'
import { createBrowser } from './browse.ts'
import { createUpkeep } from './mirror-upkeep.ts'
import { removeOldMirrors } from './old-mirrors.ts'
import { commitAtRef, fetchSubmodules, madeFor, readTop } from './submodules.ts'

export interface MirrorParts {
  git: Git
  /** Owned by git's user. */
  folder: string
  template: string
  network: GitNetwork
  log: Log
  clock: Clock
  limits?: Partial<GitLimits>
  /** Without limits, mirrors may use the whole disk. */
  room?: RoomLimits | undefined
  preparation?: Partial<PreparationLimits> | undefined
  /** Repositories on this server itself; absent: none. */
  stored?: StoredRepositories | undefined
}

export interface Mirrors extends Browser {
  fetch(source: GitSource, signal: AbortSignal): Promise<Commit>
  head(source: GitSource, timeoutMs: number): Promise<string | null>
  /**
   * Fetches into the mirror everything that a build of a fetched commit reads besides its own files: its submodules,
   * and the part's files in Git LFS. Rejects with a `DeploymentError`.
   */
  fetchContent(
    source: GitSource,
    commitId: string,
    part: ContentPart,
    say: (text: string) => void,
    signal: AbortSignal,
  ): Promise<void>
  /** The commit with all of that in place, once it was fetched. */
  contentOf(source: GitSource, commitId: string, part: ContentPart): Promise<string>
  /** The path of this source's mirror, whether it exists or not. */
  mirrorOf(source: GitSource): string
  /** Works with the mirror of a repository on this server, which contains all pushes; one at a time for each. */
  withStored<T>(source: GitSource, signal: AbortSignal, work: (mirror: string, id: string) => Promise<T>): Promise<T>
  /** Rejects with `limit_reached` or `disk_full` when nothing more may be added to the mirror of this source. */
  demandRoom(source: GitSource, signal: AbortSignal): Promise<void>
  usedMb: MirrorRoom['usedMb']
  /**
   * Removes mirrors that nothing has used for so long, and those of all organizations but these. Resolves to their
   * number.
   */
  removeOld(organizationIds: readonly string[], idleMs: number, signal: AbortSignal): Promise<number>
  close(): Promise<void>
}

const readMs = 30_000

const tooLarge = (commitId: string, bytes: number): DeploymentError =>
  refused(
    `Commit ${commitId.slice(0, 12)} is ${(bytes / 2 ** 20).toFixed(1)} MB large, and at most 1 MB is read: shorten its message.`,
  )

const nameOf = ({ organizationId, url, credentials }: GitSource): string => {
  const known = credentials?.reveal()
  const reader = known === undefined ? 'public' : hash(`${known.username}\0${known.password}`)
  return `${ownerKey(organizationId)}-${hash(url)}-${reader}`
}

/** A commit of a mirror; null if it is missing or the mirror is invalid. */
const readKnown = async (git: Git, mirror: string, commitId: string): Promise<Commit | null> => {
  if (!isCommitId(commitId)) throw refused('The commit id must be 40 or 64 hexadecimal digits.')
  try {
    return await withObjects(git, mirror, readMs, async (objects) => {
      const [found] = await objects.look([commitId])
      if (found?.kind !== 'commit' || !('size' in found)) return null
      if (found.size > maxCommitBytes) throw tooLarge(commitId, found.size)
      return parseCommit(commitId, await objects.read(found))
    })
  } catch (error) {
    if (!(error instanceof GitFailed)) throw error
    const limited = explainLimits(error.stderr)
    if (limited !== null) throw limited
    // A mirror that is missing or broken: it is recreated by the next fetch.
    return null
  }
}

/** The latest values; '' deletes one. */
const createMemory = () => {
  const texts = new Map<string, string>()
  return {
    get: (key: string) => texts.get(key),
    set(key: string, text: string): void {
      texts.delete(key)
      if (text !== '') texts.set(key, text)
      if (texts.size > 1000) texts.delete(texts.keys().next().value!)
    },
  }
}

interface ContentParts {
  git: Git
  remote: ReturnType<typeof createRemote>
  lfs: CompleteParts
  limits: GitLimits
  lock: KeyedLock
  mirrorOf(source: GitSource): string
  untilClosed(signal: AbortSignal): AbortSignal
}

/** The content of a commit for a build: the repository's files, with those of its submodules and of Git LFS. */
const createContent = (parts: ContentParts): Pick<Mirrors, 'fetchContent' | 'contentOf'> => {
  const { git, remote, lfs, limits, lock, mirrorOf, untilClosed } = parts
  /** Commits without submodules and LFS files, by their part. */
  const plain = createMemory()
  const asked = { git, remote, askMs: limits.askAgainMs }
  const keyOf = (mirror: string, commitId: string, part: ContentPart) => JSON.stringify([mirror, commitId, part])

  const complete = async (
    source: GitSource,
    commitId: string,
    part: ContentPart,
    say: (text: string) => void,
    signal: AbortSignal,
  ): Promise<boolean> => {
    const mirror = mirrorOf(source)
    const base = part.skipSubmodules
      ? { commitId, ...(await readTop(git, mirror, commitId)), owners: new Map([['', { source, commitId }]]) }
      : await fetchSubmodules(asked, source, mirror, commitId, say, signal)
    const hasLfs = await completeWithLfs(lfs, { mirror, ...base }, part, say, signal)
    return hasLfs || base.commitId !== commitId
  }

  return {
    async fetchContent(source, commitId, part, say, signal) {
      validate({ ...source, commitId })
      const mirror = mirrorOf(source)
      const key = keyOf(mirror, commitId, part)
      if (plain.get(key) !== undefined) return
      const both = untilClosed(signal)
      const explain = (error: unknown): never => {
        if (!(error instanceof GitFailed)) throw error
        throw explainLimits(error.stderr) ?? refMissing(`Commit ${commitId.slice(0, 12)} was not fetched.`)
      }
      const work = () => complete(source, commitId, part, say, both).catch(explain)
      if (!(await withLock(lock, mirror, both, work))) plain.set(key, 'plain')
    },
    async contentOf(source, commitId, part) {
      const mirror = mirrorOf(source)
      if (plain.get(keyOf(mirror, commitId, part)) !== undefined || !isCommitId(commitId)) return commitId
      const base = part.skipSubmodules ? commitId : ((await madeFor(git, mirror, commitId)) ?? commitId)
      return (await commitAtRef(git, mirror, refForPart(base, part))) ?? base
    },
  }
}

const noBranch = ({ url, branch }: GitSource, others: readonly string[]): DeploymentError =>
  internalIdIn(url) === null ? branchMissing(branch, others) : nothingPushed(branch, others)

interface StoredParts extends Pick<ContentParts, 'lock' | 'mirrorOf' | 'untilClosed'> {
  prepare(mirror: string): Promise<void>
  fetchWithRepair: ReturnType<typeof createUpkeep>['fetchWithRepair']
}

const createStoredAccess =
  ({ lock, mirrorOf, prepare, fetchWithRepair, untilClosed }: StoredParts): Mirrors['withStored'] =>
  (source, signal, work) => {
    const id = internalIdIn(source.url)
    if (id === null) throw new Error('not a repository of this server')
    const mirror = mirrorOf(source)
    return withLock(lock, mirror, signal, async () => {
      await prepare(mirror)
      noteUse(mirror).catch(() => {})
      const { code, stderr } = await fetchWithRepair(source, mirror, '', untilClosed(signal))
      if (code !== 0) throw new Error(`a repository could not be restored: ${stderr.trim()}`)
      return work(mirror, id)
    })
  }

const allRoom: RoomLimits = { organizationMb: 0, reserveMb: 0, sentence: () => '' }

interface FetchingParts {
  git: Git
  log: Log
  remote: ReturnType<typeof createRemote>
  limits: GitLimits
  lock: KeyedLock
  upkeep: ReturnType<typeof createUpkeep>
  mirrorOf(source: GitSource): string
}

const createFetching = (parts: FetchingParts): Mirrors['fetch'] => {
  const { git, log, remote, limits, lock, mirrorOf } = parts
  const { prepare, fetchWithRepair, tidy } = parts.upkeep
  const tags = createMemory()
  const heads = createMemory()

  const readCommit = async (mirror: string, commitId: string): Promise<Commit | null> => {
    const commit = await readKnown(git, mirror, commitId)
    return commit === null ? null : { ...commit, tag: tags.get(`${mirror} ${commitId}`) ?? '' }
  }

  /** The last known head of a branch, read while the host is asked for the current one. */
  const readLastHead = async (mirror: string, branch: string): Promise<Commit | null> => {
    const last = heads.get(`${mirror} ${branch}`)
    return last === undefined ? null : readCommit(mirror, last).catch(() => null)
  }

  /** `from`: the kind of the source's name in the repository, for messages. */
  const bring = async (
    source: GitSource,
    mirror: string,
    commitId: string,
    from: string,
    signal: AbortSignal,
  ): Promise<Commit> =>
    withLock(lock, mirror, signal, async () => {
      await prepare(mirror)
      const there = await readCommit(mirror, commitId)
      if (there !== null) return there
      const result = await fetchWithRepair(source, mirror, commitId, signal)
      const commit = result.code === 0 ? await readCommit(mirror, commitId) : null
      if (commit !== null) {
        if (internalIdIn(source.url) === null)
          await tidy(mirror).catch((error: unknown) => log.warn({ err: error }, 'a git mirror could not be cleaned up'))
        return commit
      }
      if (result.code === 0 || isNotHandedOut(result.stderr))
        throw refMissing(`Commit ${commitId.slice(0, 12)} is not in the ${from} of the repository.`)
      throw explainGit(result.stderr, askedHost(source))
    })

  const learnTag = (mirror: string, refs: Map<string, string>, commitId: string, preferred: string): string => {
    const tag = findTag(refs, commitId, preferred)
    tags.set(`${mirror} ${commitId}`, tag)
    return tag
  }

  /**
   * A commit that was fetched before is served again only if the repository may still be read. If the host does not
   * answer at all, it is enough that it once let the same organization read it with the same credentials.
   */
  const askAgain = async (source: GitSource, known: Commit, mirror: string, signal: AbortSignal): Promise<Commit> => {
    try {
      const refs = await remote.listRefs(source, limits.askAgainMs, true, signal)
      return { ...known, tag: learnTag(mirror, refs, known.git_commit_id, source.branch) }
    } catch (error) {
      if (error instanceof DeploymentError && error.code === 'git_unreachable') return known
      throw error
    }
  }

  const fetchHead = async (source: GitSource, mirror: string, signal: AbortSignal): Promise<Commit> => {
    const [refs, last] = await Promise.all([
      remote.listRefs(source, limits.lsRemoteMs, true, signal),
      readLastHead(mirror, source.branch),
    ])
    const commitId = source.commitId ?? headOf(refs, source.branch)
    if (commitId === undefined)
      throw noBranch(source, await remote.listBranches(source, limits.lsRemoteMs, signal).catch(() => []))
    const tag = learnTag(mirror, refs, commitId, source.branch)
    if (source.commitId === undefined) heads.set(`${mirror} ${source.branch}`, commitId)
    if (last?.git_commit_id === commitId) return { ...last, tag }
    // A given commit has already been searched for.
    const there = source.commitId === undefined ? await readCommit(mirror, commitId) : null
    return there ?? bring(source, mirror, commitId, describeRef(refs, source.branch), signal)
  }

  return async (source, signal) => {
    validate(source)
    const mirror = mirrorOf(source)
    await prepare(mirror)
    noteUse(mirror).catch(() => {})
    const pinned = source.commitId === undefined ? null : await readCommit(mirror, source.commitId)
    return pinned === null ? fetchHead(source, mirror, signal) : askAgain(source, pinned, mirror, signal)
  }
}

export const createMirrors = (parts: MirrorParts): Mirrors => {
  const { git, folder, log } = parts
  const limits = { ...usualLimits, ...parts.limits }
  const room = createMirrorRoom({ git, folder, limits: parts.room ?? allRoom })
  const remote = createRemote(git, parts.network, limits, room, parts.stored)
  const lock = createKeyedLock()
  const closing = new AbortController()
  const upkeep = createUpkeep(parts, limits, remote, closing.signal)
  const lfs: CompleteParts = {
    git,
    open: (request) => parts.network.open(request),
    authorize: remote.authorize,
    maxMirrorBytes: limits.maxBytes,
    room,
    emptied: createMemory(),
    preparation: { ...usualPreparation, ...parts.preparation },
  }
  const mirrorOf = (source: GitSource): string => join(folder, nameOf(source))
  const fetch = createFetching({ git, log, remote, limits, lock, upkeep, mirrorOf })
  const browser = createBrowser({
    git,
    remote,
    lfs,
    timeoutMs: limits.lsRemoteMs,
    fetch,
    mirrorOf,
    locked: (mirror, signal, work) => withLock(lock, mirror, signal, work),
  })
  const untilClosed = (signal: AbortSignal): AbortSignal => AbortSignal.any([signal, closing.signal])

  return {
    fetch: (source, signal) => fetch(source, untilClosed(signal)),
    branches: (source, signal) => browser.branches(source, untilClosed(signal)),
    commits: (source, count, signal) => browser.commits(source, count, untilClosed(signal)),
    heads: (source, branches, signal) => browser.heads(source, branches, untilClosed(signal)),
    changes: (source, from, signal) => browser.changes(source, from, untilClosed(signal)),
    folders: (source, path, signal) => browser.folders(source, path, untilClosed(signal)),
    files: (source, path, isWanted, signal) => browser.files(source, path, isWanted, untilClosed(signal)),
    folder: (source, path, most, signal) => browser.folder(source, path, most, untilClosed(signal)),
    async head(source, timeoutMs) {
      const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), closing.signal])
      try {
        validate(source)
        return headOf(await remote.listRefs(source, timeoutMs, false, signal), source.branch) ?? null
      } catch {
        return null
      }
    },
    mirrorOf,
    usedMb: room.usedMb,
    removeOld: (organizationIds, idleMs, signal) =>
      removeOldMirrors({ git, folder, lock }, organizationIds, idleMs, untilClosed(signal)),
    demandRoom: (source, signal) => room.during(mirrorOf(source), signal, async () => {}),
    ...createContent({ git, remote, lfs, limits, lock, mirrorOf, untilClosed }),
    withStored: createStoredAccess({ lock, mirrorOf, ...upkeep, untilClosed }),
    close: async () => closing.abort(new Error('the server is stopping')),
  }
}
