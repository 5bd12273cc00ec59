/**
 * Access to git hosts: which URLs and names are allowed, with which credentials, and with which limits on time and
 * size. Fetched objects go into a mirror managed by git.ts.
 */
import { readdir } from 'node:fs/promises'
import { isIP } from 'node:net'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import type { DeploymentError } from '../../lib/errors.ts'
import { type ExecResult, ExecTimeout } from '../../lib/exec.ts'
import type { Outbound } from '../../lib/net/outbound.ts'
import { isPrivateAddress } from '../../lib/net/private-host.ts'
import type { GitSource } from '../builder.ts'
import { credentialsFor, mayReceive } from './credential-reach.ts'
import { askedHost, explainOutbound, isMissingRef, isNotHandedOut, refused, tooSlow } from './errors.ts'
import { clearLeftovers } from './mirror-folder.ts'
import type { MirrorRoom } from './mirror-room.ts'
import { hash, internalIdIn, isCommitId, isValidBranch, isValidGitUrl } from './names.ts'
import type { Git, GitConfig } from './process.ts'
import { askedFor, createRefs, type Refs } from './refs.ts'

/**
 * `check` returns the only address that git may connect to; `open` connects by itself. Both reject addresses that are
 * not allowed.
 */
export type GitNetwork = Pick<Outbound, 'check' | 'open'>

/** The repositories on this server itself, by the ids of their applications: they are never read over the network. */
export interface StoredRepositories {
  refs(id: string): Promise<Refs>
  /**
   * Adds the missing objects of a repository to this mirror, each piece within `inRoom`. A code other than 0: the
   * mirror must be made anew.
   */
  restore(
    git: Git,
    mirror: string,
    id: string,
    inRoom: (work: () => Promise<void>) => Promise<void>,
  ): Promise<ExecResult>
}

export interface GitLimits {
  lsRemoteMs: number
  /** For checking whether the commit's repository still exists. */
  askAgainMs: number
  fetchMs: number
  maxBytes: number
}

export const usualLimits: GitLimits = {
  lsRemoteMs: 60_000,
  askAgainMs: 10_000,
  fetchMs: 600_000,
  maxBytes: 5 * 2 ** 30,
}

/** Rejects sources that must not be passed to git. */
export const validate = ({ url, branch, commitId }: GitSource): void => {
  if (internalIdIn(url) === null && !isValidGitUrl(url))
    throw refused('The URL of the repository is not a plain https URL.')
  if (!isValidBranch(branch)) throw refused('The branch name is not valid in git.')
  if (commitId !== undefined && !isCommitId(commitId))
    throw refused('The commit id must be 40 or 64 hexadecimal digits.')
}

/** The credentials, only for their own repository's URL; null if there are none. */
const authorization = (source: GitSource, address: string): string | null => {
  const known = source.credentials?.reveal()
  if (known === undefined) return null
  const url = new URL(source.url)
  if (!mayReceive(known, source.url, source.url))
    throw refused('The git token of this repository is not for its address.')
  if (url.protocol === 'http:' && !isPrivateAddress(address, url))
    throw refused('A git token cannot be sent over plain http: use the https URL of the repository.')
  return `Basic ${Buffer.from(`${known.username}:${known.password}`).toString('base64')}`
}

/** The configuration of git for one connection: the checked address, and the credentials for this URL only. */
const connectionConfig = (source: GitSource, address: string): GitConfig => {
  const url = new URL(source.url)
  const config: [string, string][] = []
  const port = url.port || (url.protocol === 'https:' ? '443' : '80')
  if (isIP(url.hostname.replace(/^\[|\]$/g, '')) === 0)
    config.push(['http.curloptResolve', `${url.hostname}:${port}:${isIP(address) === 6 ? `[${address}]` : address}`])
  const login = authorization(source, address)
  if (login !== null) config.push([`http.${source.url}.extraHeader`, `Authorization: ${login}`])
  return config
}

const [heads, tags] = ['refs/heads/', 'refs/tags/'] as const

/** The commit of the branch of this name, else of the tag of this name; undefined without either. */
export const headOf = (refs: Refs, name: string): string | undefined => refs.get(heads + name) ?? refs.get(tags + name)

/** `branch main` or `tag v1`: the kind of a name in the repository. */
export const describeRef = (refs: Refs, name: string): string =>
  `${!refs.has(heads + name) && refs.has(tags + name) ? 'tag' : 'branch'} ${name}`

/** The tag of a commit, the one called `preferred` first; '' if it has none. */
export const findTag = (refs: Refs, commitId: string, preferred = ''): string => {
  if (refs.get(tags + preferred) === commitId) return preferred
  for (const [ref, id] of refs) if (id === commitId && ref.startsWith(tags)) return ref.slice(tags.length)
  return ''
}

const notKept: StoredRepositories = {
  refs: async () => new Map(),
  restore: async () => {
    throw refused('This server keeps no repositories.')
  },
}

/** Runs git against the network; only the caller's own abort is passed on unchanged. */
const talk = async (
  git: Git,
  source: GitSource,
  args: string[],
  timeoutMs: number,
  { config, signal }: { config: GitConfig; signal: AbortSignal },
) => {
  try {
    return await git.run(args, { config, signal, timeoutMs })
  } catch (error) {
    if (!(error instanceof ExecTimeout)) throw error
    throw tooSlow(new URL(source.url).hostname, timeoutMs, error)
  }
}

export const createRemote = (
  git: Git,
  network: GitNetwork,
  limits: GitLimits,
  room: MirrorRoom,
  stored: StoredRepositories = notKept,
) => {
  const readRefs = createRefs((request) => network.open(request))

  const readStored = async (id: string, names: readonly string[]): Promise<Refs> => {
    const isAsked = askedFor(names)
    return new Map([...(await stored.refs(id))].filter(([ref]) => isAsked(ref)))
  }

  const addressOf = async (source: GitSource, signal: AbortSignal): Promise<string> => {
    const url = new URL(source.url)
    try {
      return (await untilAborted(network.check(url), signal)).address
    } catch (error) {
      throw signal.aborted ? error : explainOutbound(error, askedHost(source))
    }
  }

  const askRefs = async (
    source: GitSource,
    timeoutMs: number,
    names: readonly string[],
    signal: AbortSignal,
  ): Promise<Refs> => {
    const id = internalIdIn(source.url)
    if (id !== null) return readStored(id, names)
    const login = source.credentials === undefined ? null : authorization(source, await addressOf(source, signal))
    const headers: Record<string, string> = login === null ? {} : { authorization: login }
    return readRefs({ url: source.url, headers, names, timeoutMs, signal })
  }

  /** Headers with the source's credentials for another address; none if they may not be sent there. */
  const authorize = async (source: GitSource, url: string, signal: AbortSignal): Promise<Record<string, string>> => {
    const { organizationId, branch } = source
    const sent: GitSource = { organizationId, branch, url, ...credentialsFor(source, url) }
    if (sent.credentials === undefined) return {}
    const login = authorization(sent, await addressOf(sent, signal))
    return login === null ? {} : { authorization: login }
  }

  const listRefs = (source: GitSource, timeoutMs: number, withTags: boolean, signal: AbortSignal): Promise<Refs> =>
    askRefs(source, timeoutMs, [heads + source.branch, withTags ? tags : tags + source.branch], signal)

  const listBranches = async (source: GitSource, timeoutMs: number, signal: AbortSignal): Promise<string[]> => {
    const refs = await askRefs(source, timeoutMs, [heads], signal)
    return [...refs.keys()].map((ref) => ref.slice(heads.length))
  }

  const listHeads = async (
    source: GitSource,
    branches: readonly string[],
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<Map<string, string>> => {
    const names = branches.flatMap((branch) => [heads + branch, tags + branch])
    const refs = await askRefs(source, timeoutMs, names, signal)
    return new Map(
      branches.flatMap((branch) => {
        const id = headOf(refs, branch)
        return id === undefined ? [] : [[branch, id]]
      }),
    )
  }

  const tooLarge = (): DeploymentError =>
    refused(`The repository is larger than ${Math.round(limits.maxBytes / 2 ** 20)} MB.`)

  const download = async (source: GitSource, mirror: string, args: string[], signal: AbortSignal) => {
    let isTooLarge = false
    const checkSize = (bytes: number): void => {
      isTooLarge ||= bytes > limits.maxBytes
      if (isTooLarge) throw tooLarge()
    }
    const config = connectionConfig(source, await addressOf(source, signal))
    const fixed = ['--quiet', '--no-tags', '--no-write-fetch-head', '--no-recurse-submodules', '--force']
    const all = ['--git-dir', mirror, 'fetch', ...fixed, ...args]
    // It cleans up by itself, so that its mirror is measured without leftovers.
    const work = async (within: AbortSignal): Promise<ExecResult> => {
      try {
        return await talk(git, source, all, limits.fetchMs, { config, signal: within })
      } catch (error) {
        await clearLeftovers(git, mirror, new Date(Date.now() + 60_000))
        if (isTooLarge) await git.remove([mirror])
        throw error
      }
    }
    return room.during(mirror, signal, work, checkSize)
  }

  const isShallow = async (mirror: string): Promise<boolean> => (await readdir(mirror)).includes('shallow')

  const refOf = (source: GitSource): string => `refs/slipway/${hash(source.commitId ?? source.branch).slice(0, 32)}`

  /** A separate ref for each, by hash: branches `a` and `a/b` can replace one another. */
  const fetchCommit = async (
    source: GitSource,
    mirror: string,
    commitId: string,
    signal: AbortSignal,
    depth: number = 1,
  ): Promise<ExecResult> => {
    const id = internalIdIn(source.url)
    if (id !== null) return stored.restore(git, mirror, id, (work) => room.during(mirror, signal, work))
    const ref = refOf(source)
    const some = [`--depth=${depth}`, '--end-of-options', source.url, `+${commitId}:${ref}`]
    const result = await download(source, mirror, some, signal)
    if (result.code === 0 || !isNotHandedOut(result.stderr)) return result
    const whole = (await isShallow(mirror)) ? ['--unshallow'] : []
    const fetchAll = (kind: string) =>
      download(source, mirror, [...whole, '--end-of-options', source.url, `+${kind}${source.branch}:${ref}`], signal)
    const branch = await fetchAll(heads)
    return branch.code !== 0 && isMissingRef(branch.stderr) ? fetchAll(tags) : branch
  }

  return { authorize, listRefs, listBranches, listHeads, fetchCommit, isShallow }
}
