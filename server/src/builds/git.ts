/**
 * Bare mirrors of git repositories, one for each address and credentials. Promises that a commit it names is there with
 * all its files, and that git talks only to the address that was checked. Refuses to know organizations: who holds no
 * credentials for a private repository has another mirror. A killed fetch leaves locks and half packs, which the next
 * use of that mirror removes.
 */
import { mkdirSync } from 'node:fs'
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../lib/clock.ts'
import { DeploymentError } from '../lib/errors.ts'
import { createKeyedLock } from '../lib/keyed-lock.ts'
import type { Log } from '../lib/log.ts'
import type { Browser, Commit, GitSource } from './builder.ts'
import { createBrowser } from './git-browse.ts'
import { commitFormat, parseCommit } from './git-commit.ts'
import { explainGit, isBroken, isLocked, isNotHandedOut, refMissing } from './git-errors.ts'
import type { Git } from './git-process.ts'
import { type CheckHost, createRemote, findTag, type GitLimits, hash, usualLimits, validate } from './git-remote.ts'
import { clearLeftovers, countPacks, ensureMirror } from './mirror-folder.ts'
import { withLock } from './waiting.ts'

export interface MirrorParts {
  git: Git
  folder: string
  checkHost: CheckHost
  log: Log
  clock: Clock
  limits?: Partial<GitLimits>
}

export interface Mirrors extends Browser {
  fetch(source: GitSource, signal: AbortSignal): Promise<Commit>
  head(source: GitSource, timeoutMs: number): Promise<string | null>
  /** Path of a mirror of `url` that holds the commit. */
  find(url: string, commitId: string): Promise<string>
  close(): Promise<void>
}

const maxPacks = 20
const started = new Date(Date.now() - performance.now())

const nameOf = ({ url, credentials }: GitSource): string => {
  const known = credentials?.reveal()
  return `${hash(url)}-${known === undefined ? 'public' : hash(`${known.username}\0${known.password}`)}`
}

/** The texts set last; '' forgets one. */
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

export const createMirrors = (parts: MirrorParts): Mirrors => {
  const { git, folder, log, clock } = parts
  const limits = { ...usualLimits, ...parts.limits }
  const remote = createRemote(git, parts.checkHost, limits)
  const { listRefs, fetchCommit } = remote
  const lock = createKeyedLock()
  const closing = new AbortController()
  const clean = new Map<string, Promise<void>>()
  const tags = createMemory()
  const heads = createMemory()
  mkdirSync(folder, { recursive: true, mode: 0o700 })

  const readCommit = async (mirror: string, commitId: string): Promise<Commit | null> => {
    const args = ['--git-dir', mirror, 'show', '--no-patch', commitFormat, `${commitId}^{commit}`, '--']
    const { code, stdout } = await git.run(args, { timeoutMs: 30_000 })
    return code === 0 ? { ...parseCommit(stdout), tag: tags.get(commitId) ?? '' } : null
  }

  /** The head of a branch as it was seen last, read while the host is asked whether it still is. */
  const readLastHead = async (mirror: string, branch: string): Promise<Commit | null> => {
    const last = heads.get(`${mirror} ${branch}`)
    return last === undefined ? null : readCommit(mirror, last).catch(() => null)
  }

  const fetchWithRepair = async (source: GitSource, mirror: string, commitId: string, signal: AbortSignal) => {
    const first = await fetchCommit(source, mirror, commitId, signal)
    if (first.code === 0) return first
    if (isLocked(first.stderr)) {
      await clock.sleep(1000, signal)
      await clearLeftovers(mirror, new Date(Date.now() + 60_000))
    } else if (isBroken(first.stderr)) {
      log.warn({ mirror }, 'a broken git mirror is made anew')
      await rm(mirror, { recursive: true, force: true })
    } else return first
    await ensureMirror(git, mirror)
    return fetchCommit(source, mirror, commitId, signal)
  }

  const tidy = async (mirror: string): Promise<void> => {
    if ((await countPacks(mirror)) <= maxPacks) return
    await git.run(['--git-dir', mirror, 'gc', '--quiet'], { timeoutMs: limits.fetchMs, signal: closing.signal })
  }

  const prepare = (mirror: string): Promise<void> => {
    let ready = clean.get(mirror)
    if (ready === undefined) {
      ready = clearLeftovers(mirror, started)
      clean.set(mirror, ready)
    }
    return ready.then(() => ensureMirror(git, mirror))
  }

  const bring = async (source: GitSource, mirror: string, commitId: string, signal: AbortSignal): Promise<Commit> =>
    withLock(lock, mirror, signal, async () => {
      await prepare(mirror)
      const there = await readCommit(mirror, commitId)
      if (there !== null) return there
      const result = await fetchWithRepair(source, mirror, commitId, signal)
      const commit = result.code === 0 ? await readCommit(mirror, commitId) : null
      if (commit !== null) {
        await tidy(mirror).catch((error: unknown) => log.warn({ err: error }, 'a git mirror could not be tidied'))
        return commit
      }
      if (result.code === 0 || isNotHandedOut(result.stderr))
        throw refMissing(`Commit ${commitId.slice(0, 12)} is not in branch ${source.branch} of the repository.`)
      throw explainGit(result.stderr, new URL(source.url).hostname)
    })

  const fetch = async (source: GitSource, signal: AbortSignal): Promise<Commit> => {
    validate(source)
    const mirror = join(folder, nameOf(source))
    await prepare(mirror)
    const pinned = source.commitId === undefined ? null : await readCommit(mirror, source.commitId)
    if (pinned !== null) return pinned
    const [refs, last] = await Promise.all([
      listRefs(source, limits.lsRemoteMs, true, signal),
      readLastHead(mirror, source.branch),
    ])
    const commitId = source.commitId ?? refs.get(`refs/heads/${source.branch}`)
    if (commitId === undefined) throw refMissing(`The repository has no branch ${source.branch}.`)
    tags.set(commitId, findTag(refs, commitId))
    if (source.commitId === undefined) heads.set(`${mirror} ${source.branch}`, commitId)
    if (last?.git_commit_id === commitId) return { ...last, tag: tags.get(commitId) ?? '' }
    return (await readCommit(mirror, commitId)) ?? bring(source, mirror, commitId, signal)
  }

  const browser = createBrowser({
    git,
    remote,
    timeoutMs: limits.lsRemoteMs,
    fetch,
    mirrorOf: (source) => join(folder, nameOf(source)),
    locked: (mirror, signal, work) => withLock(lock, mirror, signal, work),
  })
  const untilClosed = (signal: AbortSignal): AbortSignal => AbortSignal.any([signal, closing.signal])

  return {
    fetch: (source, signal) => fetch(source, untilClosed(signal)),
    branches: (source, signal) => browser.branches(source, untilClosed(signal)),
    commits: (source, count, signal) => browser.commits(source, count, untilClosed(signal)),
    folders: (source, path, signal) => browser.folders(source, path, untilClosed(signal)),
    async head(source, timeoutMs) {
      const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), closing.signal])
      try {
        validate(source)
        return (await listRefs(source, timeoutMs, false, signal)).get(`refs/heads/${source.branch}`) ?? null
      } catch {
        return null
      }
    },
    async find(url, commitId) {
      const mine = (await readdir(folder)).filter((name) => name.startsWith(`${hash(url)}-`) && !name.includes('.new-'))
      for (const name of mine) if ((await readCommit(join(folder, name), commitId)) !== null) return join(folder, name)
      throw new DeploymentError('git_ref_missing', `Commit ${commitId.slice(0, 12)} was not fetched.`)
    },
    async close() {
      closing.abort(new Error('the server is stopping'))
    },
  }
}
