/**
 * Bare mirrors of git repositories, one for each address and credentials. Promises that a commit it names is there with
 * all its files, and that git talks only to the address that was checked. Refuses to know organizations: who holds no
 * credentials for a private repository has another mirror. A killed fetch leaves locks and half packs, which the next
 * use of that mirror removes.
 */
import { createHash } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { readdir, rm } from 'node:fs/promises'
import { BlockList, isIP } from 'node:net'
import { join } from 'node:path'
import type { Clock } from '../lib/clock.ts'
import { DeploymentError } from '../lib/errors.ts'
import { ExecTimeout } from '../lib/exec.ts'
import { createKeyedLock } from '../lib/keyed-lock.ts'
import type { Log } from '../lib/log.ts'
import { OutboundFailed, OutboundRefused } from '../lib/outbound.ts'
import type { Commit, GitSource } from './builder.ts'
import { explainGit, isBroken, isLocked, isNotHandedOut, refMissing, refused, unreachable } from './git-errors.ts'
import { isCommitId, isValidBranch, isValidGitUrl } from './git-names.ts'
import type { Git, GitConfig } from './git-process.ts'
import { clearLeftovers, countPacks, ensureMirror, mirrorSize } from './mirror-folder.ts'
import { orAborted, withLock } from './waiting.ts'

/** Rejects for a host that must not be reached; answers the address to connect to, where the caller fixes one. */
export type CheckHost = (url: URL) => Promise<{ address: string } | undefined>

export interface GitLimits {
  lsRemoteMs: number
  fetchMs: number
  /** Of one mirror. */
  maxBytes: number
}

export interface MirrorParts {
  git: Git
  folder: string
  checkHost: CheckHost
  log: Log
  clock: Clock
  limits?: Partial<GitLimits>
}

export interface Mirrors {
  fetch(source: GitSource, signal: AbortSignal): Promise<Commit>
  head(source: GitSource, timeoutMs: number): Promise<string | null>
  /** Path of a mirror of `url` that holds the commit. */
  find(url: string, commitId: string): Promise<string>
  close(): Promise<void>
}

const usualLimits: GitLimits = { lsRemoteMs: 60_000, fetchMs: 600_000, maxBytes: 5 * 2 ** 30 }
const maxPacks = 20
const maxMessage = 4096
const format = '--format=%H%x00%ct%x00%an%x00%B'
const started = new Date(Date.now() - performance.now())

const near = new BlockList()
for (const [network, prefix] of [
  ['127.0.0.0', 8],
  ['10.0.0.0', 8],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
] as const)
  near.addSubnet(network, prefix, 'ipv4')
near.addAddress('::1', 'ipv6')
near.addSubnet('fc00::', 7, 'ipv6')

const isNear = (address: string): boolean => near.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')

const hash = (text: string): string => createHash('sha256').update(text).digest('hex')

const nameOf = ({ url, credentials }: GitSource): string => {
  const known = credentials?.reveal()
  return `${hash(url)}-${known === undefined ? 'public' : hash(`${known.username}\0${known.password}`)}`
}

const validate = ({ url, branch, commitId }: GitSource): void => {
  if (!isValidGitUrl(url)) throw refused('The address of the repository is not a plain https address.')
  if (!isValidBranch(branch)) throw refused('The name of the branch is not one that git allows.')
  if (commitId !== undefined && !isCommitId(commitId)) throw refused('The commit id is not 40 or 64 hex digits.')
}

const explainCheck = (error: unknown, host: string): unknown => {
  if (error instanceof OutboundRefused) return refused(`${host} may not be reached: ${error.message}.`, error)
  if (error instanceof OutboundFailed) return unreachable(`${host} cannot be reached: ${error.message}.`, error)
  return error
}

/** What git must know for one conversation: the checked address, and the credentials for this address only. */
const connectionConfig = (source: GitSource, address: string | undefined): GitConfig => {
  const url = new URL(source.url)
  const config: [string, string][] = []
  const port = url.port || (url.protocol === 'https:' ? '443' : '80')
  if (address !== undefined && isIP(url.hostname.replace(/^\[|\]$/g, '')) === 0)
    config.push(['http.curloptResolve', `${url.hostname}:${port}:${isIP(address) === 6 ? `[${address}]` : address}`])
  const known = source.credentials?.reveal()
  if (known === undefined) return config
  if (url.protocol === 'http:' && address !== undefined && !isNear(address))
    throw refused('A git token is not sent over plain http: use the https address of the repository.')
  const basic = Buffer.from(`${known.username}:${known.password}`).toString('base64')
  config.push([`http.${source.url}.extraHeader`, `Authorization: Basic ${basic}`])
  return config
}

const parseCommit = (text: string): Commit => {
  const [id = '', seconds = '', author = '', ...message] = text.split('\0')
  return {
    git_commit_id: id,
    message: message.join(' ').trim().slice(0, maxMessage),
    author_name: author.trim(),
    created_at: new Date(Number(seconds) * 1000).toISOString().replace('.000Z', 'Z'),
    tag: '',
  }
}

/** Lines of `ls-remote` as ref → commit id; an annotated tag counts as the commit it names. */
const parseRefs = (text: string): Map<string, string> => {
  const refs = new Map<string, string>()
  for (const line of text.split('\n')) {
    const [id, ref] = line.split('\t')
    if (id !== undefined && ref !== undefined && isCommitId(id)) refs.set(ref.replace(/\^\{\}$/, ''), id)
  }
  return refs
}

const findTag = (refs: Map<string, string>, commitId: string): string => {
  for (const [ref, id] of refs)
    if (id === commitId && ref.startsWith('refs/tags/')) return ref.slice('refs/tags/'.length)
  return ''
}

export const createMirrors = (parts: MirrorParts): Mirrors => {
  const { git, folder, log, clock } = parts
  const limits = { ...usualLimits, ...parts.limits }
  const lock = createKeyedLock()
  const closing = new AbortController()
  const clean = new Map<string, Promise<void>>()
  const tags = new Map<string, string>()
  mkdirSync(folder, { recursive: true, mode: 0o700 })

  const check = async (source: GitSource, signal: AbortSignal): Promise<GitConfig> => {
    const url = new URL(source.url)
    try {
      return connectionConfig(source, (await orAborted(parts.checkHost(url), signal))?.address)
    } catch (error) {
      throw explainCheck(error, url.hostname)
    }
  }

  /** Runs git against the network; only the caller's own abort passes as it is. */
  const talk = async (source: GitSource, args: string[], timeoutMs: number, config: GitConfig, signal: AbortSignal) => {
    try {
      return await git.run(args, { config, signal, timeoutMs, maxOutput: 1 << 24 })
    } catch (error) {
      if (!(error instanceof ExecTimeout)) throw error
      throw unreachable(
        `${new URL(source.url).hostname} did not answer within ${Math.ceil(timeoutMs / 1000)} s.`,
        error,
      )
    }
  }

  const listRefs = async (source: GitSource, timeoutMs: number, withTags: boolean, signal: AbortSignal) => {
    const kinds = withTags ? ['--heads', '--tags'] : ['--heads']
    const patterns = [`refs/heads/${source.branch}`, ...(withTags ? ['refs/tags/*'] : [])]
    const args = ['ls-remote', '--quiet', ...kinds, '--end-of-options', source.url, ...patterns]
    const result = await talk(source, args, timeoutMs, await check(source, signal), signal)
    if (result.code !== 0) throw explainGit(result.stderr, new URL(source.url).hostname)
    return parseRefs(result.stdout)
  }

  const readCommit = async (mirror: string, commitId: string): Promise<Commit | null> => {
    const args = ['--git-dir', mirror, 'show', '--no-patch', format, `${commitId}^{commit}`, '--']
    const { code, stdout } = await git.run(args, { timeoutMs: 30_000 })
    return code === 0 ? { ...parseCommit(stdout), tag: tags.get(commitId) ?? '' } : null
  }

  const remember = (commitId: string, tag: string): void => {
    tags.delete(commitId)
    if (tag !== '') tags.set(commitId, tag)
    if (tags.size > 1000) tags.delete(tags.keys().next().value!)
  }

  /** Ends a fetch whose mirror grows too large. */
  const watchSize = (mirror: string, tooLarge: AbortController) => {
    const timer = setInterval(async () => {
      if ((await mirrorSize(mirror)) <= limits.maxBytes) return
      tooLarge.abort(refused(`The repository is larger than ${Math.round(limits.maxBytes / 2 ** 20)} MB.`))
    }, 250)
    return { [Symbol.dispose]: () => clearInterval(timer) }
  }

  const download = async (source: GitSource, mirror: string, args: string[], signal: AbortSignal) => {
    const tooLarge = new AbortController()
    using _ = watchSize(mirror, tooLarge)
    const config = await check(source, signal)
    const both = AbortSignal.any([signal, tooLarge.signal])
    const fixed = ['--quiet', '--no-tags', '--no-write-fetch-head', '--no-recurse-submodules', '--force']
    const all = ['--git-dir', mirror, 'fetch', ...fixed, ...args]
    try {
      return await talk(source, all, limits.fetchMs, config, both)
    } catch (error) {
      await clearLeftovers(mirror, new Date(Date.now() + 60_000))
      if (tooLarge.signal.aborted) await rm(mirror, { recursive: true, force: true })
      throw error
    }
  }

  const isShallow = async (mirror: string): Promise<boolean> => (await readdir(mirror)).includes('shallow')

  /** Its own ref each, by hash: branches `a` and `a/b` can follow one another. */
  const fetchCommit = async (source: GitSource, mirror: string, commitId: string, signal: AbortSignal) => {
    const ref = `refs/slipway/${hash(source.commitId ?? source.branch).slice(0, 32)}`
    const one = ['--depth=1', '--end-of-options', source.url, `+${commitId}:${ref}`]
    const result = await download(source, mirror, one, signal)
    if (result.code === 0 || !isNotHandedOut(result.stderr)) return result
    const whole = (await isShallow(mirror)) ? ['--unshallow'] : []
    return download(
      source,
      mirror,
      [...whole, '--end-of-options', source.url, `+refs/heads/${source.branch}:${ref}`],
      signal,
    )
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
    const refs = await listRefs(source, limits.lsRemoteMs, true, signal)
    const commitId = source.commitId ?? refs.get(`refs/heads/${source.branch}`)
    if (commitId === undefined) throw refMissing(`The repository has no branch ${source.branch}.`)
    remember(commitId, findTag(refs, commitId))
    return (await readCommit(mirror, commitId)) ?? bring(source, mirror, commitId, signal)
  }

  return {
    fetch: (source, signal) => fetch(source, AbortSignal.any([signal, closing.signal])),
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
