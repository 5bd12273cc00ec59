/**
 * Submodules of a commit. Each is fetched into the mirror of the repository itself, under the same limits and checks as
 * any repository, and a commit is made whose tree has their files in place. Its id follows from its content, so a
 * process that dies here begins again and makes the same one.
 */
import { DeploymentError } from '../../lib/errors.ts'
import type { GitSource } from '../builder.ts'
import { committedAt, maxCommitBytes } from '../git/commit.ts'
import { credentialsFor } from '../git/credential-reach.ts'
import { askedHost, explainGit, isMissingRef, refMissing, refused } from '../git/errors.ts'
import { isCommitId } from '../git/names.ts'
import { type Objects, withObjects } from '../git/objects.ts'
import type { Git } from '../git/process.ts'
import type { createRemote } from '../git/remote.ts'
import {
  branchesFor,
  isInside,
  maxSubmodules,
  parseModules,
  type Submodule,
  submoduleUrl,
} from '../git/submodule-names.ts'
import type { Owner } from '../lfs/fetch.ts'
import { treeWith } from './tree-with.ts'

const readMs = 30_000
const maxDepth = 4
const maxFileBytes = 65_536
const skipSetting = 'build.skip_git_submodules'

export interface SubmoduleParts {
  git: Git
  remote: ReturnType<typeof createRemote>
  /** For asking whether a repository may still be read. */
  askMs: number
}

type Say = (text: string) => void

/** Position of a repository in the whole tree. */
interface Position {
  depth: number
  folder: string
}

interface Work {
  parts: SubmoduleParts
  mirror: string
  say: Say
  signal: AbortSignal
  /** On all levels. */
  count: number
  owners: Map<string, Owner>
}

/** A file at the top of a commit; '' without one, null if it is too large. */
const textOf = async (objects: Objects, commitId: string, name: string): Promise<string | null> => {
  const [found] = await objects.look([`${commitId}:${name}`])
  if (found === undefined || found.kind !== 'blob' || !('size' in found)) return ''
  return found.size > maxFileBytes ? null : (await objects.read(found)).toString('utf8')
}

const hasModules = async (objects: Objects, commitId: string): Promise<boolean> => {
  const text = await textOf(objects, commitId, '.gitmodules')
  if (text === null) throw refused('The file .gitmodules has more than 64 KB, which is not read: shorten it.')
  return text !== ''
}

/** Runs git to its end; returns its output, or the sentence of its failure. `none` is the code for nothing found. */
const run = async (git: Git, args: string[], none = 0): Promise<string> => {
  const { code, stdout, stderr } = await git.run(args, { timeoutMs: readMs, maxOutput: 1 << 20 })
  if (code !== none && code !== 0)
    throw refused(`git could not read the submodules: ${stderr.trim().split('\n')[0]?.slice(0, 200)}`)
  return stdout
}

const listed = async ({ parts: { git }, mirror }: Work, commitId: string): Promise<Submodule[]> => {
  const keys = '^submodule\\..*\\.(path|url|branch)$'
  const blob = `${commitId}:.gitmodules`
  return parseModules(
    await run(git, ['--git-dir', mirror, 'config', '-z', '--no-includes', '--blob', blob, '--get-regexp', keys], 1),
  )
}

/** The commit that the tree has at a path, if that is a submodule. */
const commitAt = async ({ parts: { git }, mirror }: Work, commitId: string, path: string): Promise<string | null> => {
  const args = ['--git-dir', mirror, '--literal-pathspecs', 'ls-tree', '-z', '--full-tree', '--end-of-options']
  const id = /^160000 commit ([0-9a-f]+)\t/.exec(await run(git, [...args, commitId, '--', path]))?.[1]
  return id !== undefined && isCommitId(id) ? id : null
}

const isThere = ({ parts: { git }, mirror }: Work, commitId: string): Promise<boolean> =>
  withObjects(git, mirror, readMs, async (objects) => (await objects.look([commitId]))[0]?.kind === 'commit')

/** An existing commit is reused only if its repository may still be read. */
const bring = async (work: Work, source: GitSource, commitId: string): Promise<void> => {
  const { parts, mirror, signal } = work
  const { remote, askMs } = parts
  if (await isThere(work, commitId)) {
    try {
      await remote.listRefs(source, askMs, false, signal)
      return
    } catch (error) {
      if (error instanceof DeploymentError && error.code === 'git_unreachable') return
      throw error
    }
  }
  const { code, stderr } = await remote.fetchCommit(source, mirror, commitId, signal)
  if (isMissingRef(stderr)) throw refMissing(`It has no branch ${source.branch}.`)
  if (code === 0 && (await isThere(work, commitId))) return
  throw code === 0
    ? refused(`Commit ${commitId.slice(0, 12)} is not in its repository.`)
    : explainGit(stderr, askedHost(source))
}

const tooMany = (): DeploymentError =>
  refused(
    `At most ${maxSubmodules} submodules, nested ${maxDepth} deep, are fetched: skip them with the setting ${skipSetting}.`,
  )

const failed = (path: string, error: unknown): unknown =>
  error instanceof DeploymentError
    ? new DeploymentError(
        error.code,
        `The submodule ${path} could not be fetched: ${error.message} Or skip submodules with the setting ${skipSetting}.`,
        { next: error.next, cause: error },
      )
    : error

/** A branch is named only where the host serves no commit by its id. */
const bringFrom = async (work: Work, source: GitSource, module: Submodule, commitId: string): Promise<void> => {
  const branches = branchesFor(module)
  for (const [index, branch] of branches.entries())
    try {
      return await bring(work, { ...source, branch, commitId }, commitId)
    } catch (error) {
      const isLast = index === branches.length - 1
      if (isLast || !(error instanceof DeploymentError) || error.code === 'git_denied') throw failed(module.path, error)
      if (error.code === 'git_unreachable') throw failed(module.path, error)
    }
}

/** `folder`: the parent's folder in the whole tree, with a trailing slash unless it is the top. */
const fetchOne = async (
  work: Work,
  parent: GitSource,
  module: Submodule,
  commitId: string,
  { depth, folder }: Position,
) => {
  const { path } = module
  const url = submoduleUrl(parent.url, module.url)
  if (url === null)
    throw refused(
      `The URL of the submodule ${path} is neither a plain https address nor one of git@host: change it in .gitmodules, or skip submodules with the setting ${skipSetting}.`,
    )
  work.count += 1
  if (work.count > maxSubmodules || depth >= maxDepth) throw tooMany()
  const { organizationId } = parent
  const source: GitSource = { organizationId, url, branch: 'main', ...credentialsFor(parent, url) }
  work.say(`Fetching the submodule ${path} at ${commitId.slice(0, 12)}.\n`)
  await bringFrom(work, source, module, commitId)
  work.owners.set(folder + path, { source, commitId })
  return treeOf(work, source, commitId, { depth: depth + 1, folder: `${folder}${path}/` })
}

/** The tree of a commit with the files of its submodules; null if it has none to add. */
const addedTree = async (
  work: Work,
  source: GitSource,
  commitId: string,
  position: Position,
): Promise<string | null> => {
  const { parts, mirror } = work
  const added = new Map<string, string>()
  const modules = await listed(work, commitId)
  if (modules.length > maxSubmodules) throw tooMany()
  for (const module of modules) {
    if (!isInside(module.path)) throw refused('A path in .gitmodules is outside the repository: change it.')
    const wanted = await commitAt(work, commitId, module.path)
    if (wanted !== null) added.set(module.path, await fetchOne(work, source, module, wanted, position))
  }
  return added.size === 0 ? null : treeWith(parts.git, mirror, `${commitId}^{tree}`, added)
}

const treeOf = async (work: Work, source: GitSource, commitId: string, position: Position): Promise<string> => {
  const { parts, mirror } = work
  const found = await withObjects(parts.git, mirror, readMs, async (objects) => {
    const [tree] = await objects.look([`${commitId}^{tree}`])
    if (tree === undefined || !('size' in tree)) throw refused(`Commit ${commitId.slice(0, 12)} has no files.`)
    return { id: tree.id, hasModules: await hasModules(objects, commitId) }
  })
  return (found.hasModules ? await addedTree(work, source, commitId, position) : null) ?? found.id
}

const refFor = (commitId: string): string => `refs/slipway/with-submodules/${commitId}`

const identity = { NAME: 'Slipway', EMAIL: 'slipway@localhost' }

/** A commit of a tree at the time of another one; the same whenever it is made. */
const commitTree = async (git: Git, mirror: string, treeId: string, at: Date): Promise<string> => {
  const date = `${Math.floor(at.getTime() / 1000)} +0000`
  const env = Object.fromEntries(
    ['AUTHOR', 'COMMITTER'].flatMap((who) => [
      ...Object.entries(identity).map(([field, value]) => [`GIT_${who}_${field}`, value]),
      [`GIT_${who}_DATE`, date],
    ]),
  )
  const args = ['--git-dir', mirror, 'commit-tree', '-m', 'With submodules', treeId]
  const { input, output } = git.talk(args, { timeoutMs: readMs, env })
  input.end()
  const id = Buffer.concat(await output.toArray())
    .toString('latin1')
    .trim()
  if (!isCommitId(id)) throw new Error('git commit-tree answered no id')
  return id
}

/** The commit made for another one, if that has submodules; null if none was made. */
export const madeFor = (git: Git, mirror: string, commitId: string): Promise<string | null> =>
  commitAtRef(git, mirror, refFor(commitId))

export const commitAtRef = async (git: Git, mirror: string, ref: string): Promise<string | null> => {
  const args = ['--git-dir', mirror, 'rev-parse', '--verify', '--quiet', '--end-of-options', ref]
  const { code, stdout } = await git.run(args, { timeoutMs: readMs })
  const id = stdout.trim()
  return code === 0 && isCommitId(id) ? id : null
}

export const readTop = (git: Git, mirror: string, commitId: string) =>
  withObjects(git, mirror, readMs, async (objects) => {
    const [commit] = await objects.look([commitId])
    if (commit === undefined || !('size' in commit) || commit.size > maxCommitBytes)
      throw refMissing(`Commit ${commitId.slice(0, 12)} was not fetched.`)
    return {
      committedAt: committedAt(await objects.read(commit)),
      hasModules: await hasModules(objects, commitId),
    }
  })

export interface WithSubmodules {
  /** With the files of the submodules; the commit itself if it has none. */
  commitId: string
  committedAt: Date
  /** The repositories of its files by their folders, itself at ''. */
  owners: ReadonlyMap<string, Owner>
}

/**
 * Fetches the submodules of a commit of this mirror, which the caller has locked. Rejects with a `DeploymentError` that
 * names the submodule.
 */
export const fetchSubmodules = async (
  parts: SubmoduleParts,
  source: GitSource,
  mirror: string,
  commitId: string,
  say: Say,
  signal: AbortSignal,
): Promise<WithSubmodules> => {
  const { git } = parts
  const owners = new Map<string, Owner>([['', { source, commitId }]])
  const top = await readTop(git, mirror, commitId)
  const { committedAt: at } = top
  const work: Work = { parts, mirror, say, signal, count: 0, owners }
  const treeId = top.hasModules ? await addedTree(work, source, commitId, { depth: 0, folder: '' }) : null
  if (treeId === null) return { commitId, committedAt: at, owners }
  const made = await commitTree(git, mirror, treeId, at)
  await run(git, ['--git-dir', mirror, 'update-ref', refFor(commitId), made])
  return { commitId: made, committedAt: at, owners }
}
