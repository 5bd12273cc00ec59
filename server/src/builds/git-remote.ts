/**
 * The conversation with a git host: which addresses and names are spoken to, with which credentials, and for how long
 * and how much. What it fetches goes into a mirror that git.ts looks after.
 */
import { createHash } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { isIP } from 'node:net'
import { ExecOverflow, ExecTimeout } from '../lib/exec.ts'
import { isNearAddress } from '../lib/near.ts'
import { OutboundFailed, OutboundRefused } from '../lib/outbound.ts'
import { untilAborted } from '../lib/waiting.ts'
import type { GitSource } from './builder.ts'
import { explainGit, isNotHandedOut, refused, unreachable } from './git-errors.ts'
import { isCommitId, isValidBranch, isValidGitUrl } from './git-names.ts'
import type { Git, GitConfig } from './git-process.ts'
import { clearLeftovers, mirrorSize } from './mirror-folder.ts'

/** Rejects for a host that must not be reached; answers the address to connect to, where the caller fixes one. */
export type CheckHost = (url: URL) => Promise<{ address: string } | undefined>

export interface GitLimits {
  lsRemoteMs: number
  /** For asking whether a repository is still there of which the commit is. */
  askAgainMs: number
  fetchMs: number
  /** Of one mirror. */
  maxBytes: number
}

export const usualLimits: GitLimits = {
  lsRemoteMs: 60_000,
  askAgainMs: 10_000,
  fetchMs: 600_000,
  maxBytes: 5 * 2 ** 30,
}

export const hash = (text: string): string => createHash('sha256').update(text).digest('hex')

/** Rejects what git must not be given. */
export const validate = ({ url, branch, commitId }: GitSource): void => {
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
  if (url.protocol === 'http:' && address !== undefined && !isNearAddress(address, url))
    throw refused('A git token is not sent over plain http: use the https address of the repository.')
  const basic = Buffer.from(`${known.username}:${known.password}`).toString('base64')
  config.push([`http.${source.url}.extraHeader`, `Authorization: Basic ${basic}`])
  return config
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

/** The tag of a commit, '' where it has none. */
export const findTag = (refs: Map<string, string>, commitId: string): string => {
  for (const [ref, id] of refs)
    if (id === commitId && ref.startsWith('refs/tags/')) return ref.slice('refs/tags/'.length)
  return ''
}

export const createRemote = (git: Git, checkHost: CheckHost, limits: GitLimits) => {
  const check = async (source: GitSource, signal: AbortSignal): Promise<GitConfig> => {
    const url = new URL(source.url)
    try {
      return connectionConfig(source, (await untilAborted(checkHost(url), signal))?.address)
    } catch (error) {
      throw explainCheck(error, url.hostname)
    }
  }

  /** Runs git against the network; only the caller's own abort passes as it is. */
  const talk = async (source: GitSource, args: string[], timeoutMs: number, config: GitConfig, signal: AbortSignal) => {
    try {
      return await git.run(args, { config, signal, timeoutMs, maxOutput: 1 << 24 })
    } catch (error) {
      if (error instanceof ExecOverflow)
        throw refused('The repository has more branches and tags than are read (16 MB of their names).', error)
      if (!(error instanceof ExecTimeout)) throw error
      throw unreachable(
        `${new URL(source.url).hostname} did not answer within ${Math.ceil(timeoutMs / 1000)} s.`,
        error,
      )
    }
  }

  const askRefs = async (source: GitSource, timeoutMs: number, words: string[], signal: AbortSignal) => {
    const [kinds, patterns] = [
      words.filter((word) => word.startsWith('--')),
      words.filter((word) => /^refs/.test(word)),
    ]
    const args = ['ls-remote', '--quiet', ...kinds, '--end-of-options', source.url, ...patterns]
    const result = await talk(source, args, timeoutMs, await check(source, signal), signal)
    if (result.code !== 0) throw explainGit(result.stderr, new URL(source.url).hostname)
    return parseRefs(result.stdout)
  }

  const listRefs = (source: GitSource, timeoutMs: number, withTags: boolean, signal: AbortSignal) => {
    const tags = withTags ? ['--tags', 'refs/tags/*'] : []
    return askRefs(source, timeoutMs, ['--heads', `refs/heads/${source.branch}`, ...tags], signal)
  }

  const listBranches = async (source: GitSource, timeoutMs: number, signal: AbortSignal): Promise<string[]> => {
    const refs = await askRefs(source, timeoutMs, ['--heads'], signal)
    return [...refs.keys()].map((ref) => ref.replace(/^refs\/heads\//, ''))
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
      await clearLeftovers(git, mirror, new Date(Date.now() + 60_000))
      if (tooLarge.signal.aborted) await git.remove([mirror])
      throw error
    }
  }

  const isShallow = async (mirror: string): Promise<boolean> => (await readdir(mirror)).includes('shallow')

  const refOf = (source: GitSource): string => `refs/slipway/${hash(source.commitId ?? source.branch).slice(0, 32)}`

  /** Its own ref each, by hash: branches `a` and `a/b` can follow one another. */
  const fetchCommit = async (
    source: GitSource,
    mirror: string,
    commitId: string,
    signal: AbortSignal,
    depth: number = 1,
  ) => {
    const ref = refOf(source)
    const some = [`--depth=${depth}`, '--end-of-options', source.url, `+${commitId}:${ref}`]
    const result = await download(source, mirror, some, signal)
    if (result.code === 0 || !isNotHandedOut(result.stderr)) return result
    const whole = (await isShallow(mirror)) ? ['--unshallow'] : []
    return download(
      source,
      mirror,
      [...whole, '--end-of-options', source.url, `+refs/heads/${source.branch}:${ref}`],
      signal,
    )
  }

  return { listRefs, listBranches, fetchCommit, isShallow }
}
