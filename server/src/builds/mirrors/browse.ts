/** Browsing a repository (see `Browser`), using the mirrors of git.ts. */
import { DeploymentError } from '../../lib/errors.ts'
import type { Browser, Commit, GitSource } from '../builder.ts'
import { maxCommitBytes, parseCommit, unreadCommit } from '../git/commit.ts'
import { askedHost, explainGit, refMissing } from '../git/errors.ts'
import { isCommitId } from '../git/names.ts'
import { withObjects } from '../git/objects.ts'
import type { Git } from '../git/process.ts'
import { type createRemote, findTag, validate } from '../git/remote.ts'
import { type CompleteParts, lfsBlobs } from '../lfs/complete.ts'

interface BrowserParts {
  git: Git
  lfs: CompleteParts
  remote: ReturnType<typeof createRemote>
  /** For listing branches and tags. */
  timeoutMs: number
  fetch(source: GitSource, signal: AbortSignal): Promise<Commit>
  mirrorOf(source: GitSource): string
  locked<T>(mirror: string, signal: AbortSignal, work: () => Promise<T>): Promise<T>
}

const maxFiles = 50
const maxFileBytes = 64 * 1024

const tooLarge = (message: string): DeploymentError => new DeploymentError('git_too_large', message)

const limits = { timeoutMs: 30_000, maxOutput: 1 << 24 }
const maxChanges = 1 << 22

/** The paths in which two commits of a mirror differ; null for too many, or if one of them is missing. */
export const changedPaths = async (git: Git, mirror: string, from: string, to: string): Promise<string[] | null> => {
  const args = ['--git-dir', mirror, 'diff-tree', '-r', '-z', '--name-only', '--no-renames']
  args.push('--end-of-options', from, to)
  const { code, stdout } = await git.run(args, { ...limits, maxOutput: maxChanges, overflow: 'front' })
  if (code !== 0 || stdout.length >= maxChanges) return null
  return stdout.split('\0').filter((path) => path !== '')
}

interface Row {
  id: string
  path: string
  isLink: boolean
}

/** Throws for too many or too large files, before any of them is read. */
type CheckSize = (bytes: number) => void

const createFolders = ({ git, lfs, fetch, mirrorOf, locked }: Omit<BrowserParts, 'remote' | 'timeoutMs'>) => {
  /** Lists a folder at the branch's head, at any depth. */
  const listFiles = async (source: GitSource, folder: string, signal: AbortSignal) => {
    const { git_commit_id: head } = await fetch(source, signal)
    const mirror = mirrorOf(source)
    const args = ['--git-dir', mirror, 'ls-tree', '-r', '-z', '--end-of-options', `${head}:${folder}`]
    const { code, stdout } = await git.run(args, limits)
    if (code !== 0) throw refMissing('The folder does not exist in the repository.')
    const rows = stdout.split('\0').flatMap((row): Row[] => {
      const [, mode, id, path] = /^(\d+) \w+ ([0-9a-f]+)\t(.+)$/s.exec(row) ?? []
      return id === undefined ? [] : [{ id, path: path!, isLink: !/^100(644|755)$/.test(mode!) }]
    })
    return { mirror, head, rows }
  }

  const readBlobs = (
    mirror: string,
    found: readonly Pick<Row, 'id' | 'path'>[],
    check: CheckSize,
  ): Promise<{ path: string; content: Buffer }[]> =>
    withObjects(git, mirror, limits.timeoutMs, async (objects) => {
      const sizes = await objects.look(found.map(({ id }) => id))
      const files: { path: string; content: Buffer }[] = []
      for (const [index, { path }] of found.entries()) {
        const object = sizes[index]!
        if (!('size' in object)) continue
        check(object.size)
        files.push({ path, content: await objects.read(object) })
      }
      return files
    })

  /** The contents of files of a folder, including Git LFS files. `createCheck` makes a fresh check. */
  const readFiles = async (
    source: GitSource,
    folder: string,
    { mirror, head, rows }: { mirror: string; head: string; rows: readonly Row[] },
    createCheck: () => CheckSize,
    signal: AbortSignal,
  ) => {
    const prefix = folder === '' ? '' : `${folder.replace(/\/+$/, '')}/`
    const wanted = new Set(rows.map(({ path }) => prefix + path))
    const base = { mirror, commitId: head, owners: new Map([['', { source, commitId: head }]]) }
    const check = createCheck()
    const isNeeded = (path: string) => wanted.has(path)
    const blobs = await locked(mirror, signal, () => lfsBlobs(lfs, base, isNeeded, check, signal))
    const found = rows.map((row) => ({ ...row, id: blobs.get(prefix + row.path) ?? row.id }))
    return readBlobs(mirror, found, createCheck())
  }

  return { listFiles, readFiles }
}

export const createBrowser = (parts: BrowserParts): Browser => {
  const { git, remote, timeoutMs, fetch, mirrorOf, locked } = parts
  const readHistory = async (mirror: string, commitId: string, count: number): Promise<Commit[]> => {
    const args = ['--git-dir', mirror, 'rev-list', `--max-count=${count}`, '--end-of-options', commitId, '--']
    const { code, stdout, stderr } = await git.run(args, limits)
    if (code !== 0) throw new Error(`git rev-list failed: ${stderr.trim()}`)
    const ids = stdout.split('\n').filter(isCommitId)
    return withObjects(git, mirror, limits.timeoutMs, async (objects) => {
      const commits: Commit[] = []
      for (const found of await objects.look(ids)) {
        if (!('size' in found)) continue
        const isRead = found.size <= maxCommitBytes
        commits.push(isRead ? parseCommit(found.id, await objects.read(found)) : unreadCommit(found.id))
      }
      return commits
    })
  }

  /** Mirrors contain single commits until their history is requested. */
  const deepen = async (source: GitSource, mirror: string, commitId: string, count: number, signal: AbortSignal) => {
    const known = await readHistory(mirror, commitId, count)
    if (known.length >= count || !(await remote.isShallow(mirror))) return known
    const { code, stderr } = await remote.fetchCommit(source, mirror, commitId, signal, count)
    if (code !== 0) throw explainGit(stderr, askedHost(source))
    return readHistory(mirror, commitId, count)
  }

  const isFetched = (source: GitSource, signal: AbortSignal): Promise<boolean> =>
    fetch(source, signal).then(
      () => true,
      (error: unknown) => {
        // A commit removed by a force push may be gone at its host.
        if (error instanceof DeploymentError && error.code === 'git_ref_missing') return false
        throw error
      },
    )

  const { listFiles, readFiles } = createFolders(parts)

  return {
    async branches(source, signal) {
      validate(source)
      return remote.listBranches(source, timeoutMs, signal)
    },
    async commits(source, count, signal) {
      const { git_commit_id: head } = await fetch(source, signal)
      const mirror = mirrorOf(source)
      const found = await locked(mirror, signal, () => deepen(source, mirror, head, count, signal))
      const refs = await remote.listRefs(source, timeoutMs, true, signal)
      return found.map((commit) => ({ ...commit, tag: findTag(refs, commit.git_commit_id, source.branch) }))
    },
    async heads(source, branches, signal) {
      for (const branch of branches) validate({ ...source, branch })
      return remote.listHeads(source, branches, timeoutMs, signal)
    },
    async changes(source, from, signal) {
      const { git_commit_id: to } = await fetch(source, signal)
      if (!isCommitId(from) || !(await isFetched({ ...source, commitId: from }, signal))) return null
      return changedPaths(git, mirrorOf(source), from, to)
    },
    async folders(source, folder, signal) {
      const { git_commit_id: head } = await fetch(source, signal)
      const args = ['--git-dir', mirrorOf(source), 'ls-tree', '-d', '-z', '--name-only', '--end-of-options']
      args.push(`${head}:${folder}`)
      const { code, stdout } = await git.run(args, limits)
      if (code !== 0) throw refMissing('The folder does not exist in the repository.')
      return stdout.split('\0').filter((name) => name !== '')
    },
    async files(source, folder, isWanted, signal) {
      const listed = await listFiles(source, folder, signal)
      const rows = listed.rows.filter(({ path, isLink }) => !isLink && isWanted(path))
      if (rows.length > maxFiles) throw tooLarge(`There are more than ${maxFiles} such files in the folder.`)
      const check: CheckSize = (size) => {
        if (size > maxFileBytes) throw tooLarge(`A file is larger than ${maxFileBytes / 1024} KB.`)
      }
      const files = await readFiles(source, folder, { ...listed, rows }, () => check, signal)
      return files.map(({ path, content }) => ({ path, text: content.toString('utf8') }))
    },
    async folder(source, folder, most, signal) {
      const listed = await listFiles(source, folder, signal)
      const { rows } = listed
      const link = rows.find(({ isLink }) => isLink)
      if (link !== undefined)
        throw new DeploymentError(
          'git_refused',
          `The folder has a link or a submodule (${link.path.slice(0, 200)}): replace it by files.`,
        )
      if (rows.length > most.files) throw tooLarge(`There are more than ${most.files} files in the folder.`)
      const createCheck = (): CheckSize => {
        let bytes = 0
        return (size) => {
          bytes += size
          if (bytes > most.bytes) throw tooLarge(`The files of the folder are larger than ${most.bytes >> 20} MiB.`)
        }
      }
      return readFiles(source, folder, listed, createCheck, signal)
    },
  }
}
