/**
 * The commit that a build reads: that of the repository, with the contents of its LFS files in place of their
 * pointers. Only files that the build's folder needs are fetched. Its id follows from its content, so a process that
 * dies here begins again and makes the same one.
 */
import { createHash } from 'node:crypto'
import { isCommitId } from '../git/names.ts'
import type { Git } from '../git/process.ts'
import { readSourceTree, resolvePath } from '../git/source-tree.ts'
import { parseIgnoreFile } from '../preparation/ignore-file.ts'
import { contextTooLarge, type PreparationLimits } from '../preparation-limits.ts'
import { fetchLfsObjects, type LfsParts, type Owner } from './fetch.ts'
import { findLfsFiles, type LfsFile, usesLfs } from './scan.ts'
import { runImport } from './store.ts'

export interface ContentPart {
  rootPath: string
  dockerfilePath: string
  /** The whole repository, whatever its root path and ignore file. */
  isWhole: boolean
  skipSubmodules: boolean
}

export interface CompleteParts extends LfsParts {
  preparation: PreparationLimits
}

/** The commit with its submodules in place, and the owners of its files: the deepest path of an owner counts. */
interface Base {
  mirror: string
  commitId: string
  committedAt: Date
  owners: ReadonlyMap<string, Owner>
}

export const refForPart = (baseId: string, part: ContentPart): string => {
  const { rootPath, dockerfilePath, isWhole } = part
  const name = JSON.stringify(isWhole ? [] : [rootPath, dockerfilePath])
  return `refs/slipway/complete/${baseId}/${createHash('sha256').update(name).digest('hex').slice(0, 32)}`
}

/** At most a moment of work on this thread; files that are not compared by then are fetched. */
const maxComparisons = 5_000_000

const createIsIgnored = (text: string): ((path: string) => boolean) => {
  const isIgnored = parseIgnoreFile(text, maxComparisons)
  let isSpent = false
  return (path) => {
    if (isSpent) return false
    try {
      return isIgnored(path)
    } catch {
      isSpent = true
      return false
    }
  }
}

/** Whether the folder is a real one, and not behind a link. */
const isPlainFolder = async (git: Git, mirror: string, commitId: string, path: string): Promise<boolean> => {
  const args = ['--git-dir', mirror, '--literal-pathspecs', 'ls-tree', '-z', '--full-tree', '--end-of-options']
  const { code, stdout } = await git.run([...args, commitId, '--', path])
  return code === 0 && stdout.startsWith('040000 tree ')
}

const needOf = async (
  { git, preparation }: CompleteParts,
  { mirror, commitId }: Base,
  { rootPath, dockerfilePath, isWhole }: ContentPart,
): Promise<(path: string) => boolean> => {
  if (isWhole) return () => true
  const reading = { git, mirror, commitId, limits: preparation }
  const { ignoreFile } = await readSourceTree(reading, rootPath, dockerfilePath)
  const root = resolvePath(rootPath) ?? ''
  if (root !== '' && !(await isPlainFolder(git, mirror, commitId, root))) return () => true
  const isIgnored = createIsIgnored(ignoreFile)
  const prefix = root === '' ? '' : `${root}/`
  const dockerfile = resolvePath(root, dockerfilePath)
  return (path) => path === dockerfile || (path.startsWith(prefix) && !isIgnored(path.slice(prefix.length)))
}

const ownerOf = (owners: Base['owners'], path: string): Owner => {
  for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) {
    const owner = owners.get(path.slice(0, at))
    if (owner !== undefined) return owner
  }
  return owners.get('')!
}

const quoted = (rawPath: Buffer): string =>
  `"${Array.from(rawPath, (byte) =>
    byte < 0x20 || byte > 0x7e || byte === 0x22 || byte === 0x5c
      ? `\\${byte.toString(8).padStart(3, '0')}`
      : String.fromCharCode(byte),
  ).join('')}"`

const treeIdOf = async (git: Git, mirror: string, commitId: string): Promise<string> => {
  const args = ['--git-dir', mirror, 'rev-parse', '--verify', '--quiet', '--end-of-options', `${commitId}^{tree}`]
  const id = (await git.run(args)).stdout.trim()
  if (!isCommitId(id)) throw new Error('git rev-parse answered no id')
  return id
}

const writeCommit = async (
  git: Git,
  { mirror, commitId, committedAt }: Base,
  ref: string,
  files: readonly LfsFile[],
  blobs: ReadonlyMap<string, string>,
  signal: AbortSignal,
): Promise<void> => {
  const tree = await treeIdOf(git, mirror, commitId)
  const date = `${Math.floor(committedAt.getTime() / 1000)} +0000`
  async function* script(): AsyncGenerator<string> {
    yield `commit ${ref}\ncommitter Slipway <slipway@localhost> ${date}\ndata 8\nWith LFS\nM 040000 ${tree} ""\n`
    for (const { mode, oid, rawPath } of files) yield `M ${mode} ${blobs.get(oid)} ${quoted(rawPath)}\n`
  }
  await runImport(git, mirror, script, signal, { force: true })
}

/** The needed files that are stored in Git LFS, and their blobs by LFS id. `check` gets the size of each. */
const fetchNeeded = async (
  parts: LfsParts,
  { mirror, commitId, owners }: Omit<Base, 'committedAt'>,
  isNeeded: (path: string) => boolean,
  check: (bytes: number) => void,
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<{ files: LfsFile[]; blobs: Map<string, string> }> => {
  const files = await findLfsFiles(parts.git, mirror, commitId, isNeeded)
  for (const { size } of files) check(size)
  const blobs = new Map<string, string>()
  for (const [owner, own] of Map.groupBy(files, ({ path }) => ownerOf(owners, path)))
    for (const [oid, id] of await fetchLfsObjects(parts, owner, mirror, own, say, signal)) blobs.set(oid, id)
  return { files, blobs }
}

/**
 * The blobs of a commit's files that are stored with Git LFS, by path. Only with exclusive access to the mirror.
 * Rejects with a `DeploymentError`, or with the error that `check` throws for the size of a file.
 */
export const lfsBlobs = async (
  parts: LfsParts,
  base: Omit<Base, 'committedAt'>,
  isNeeded: (path: string) => boolean,
  check: (bytes: number) => void,
  signal: AbortSignal,
): Promise<Map<string, string>> => {
  if (!(await usesLfs(parts.git, base.mirror, base.commitId))) return new Map()
  const { files, blobs } = await fetchNeeded(parts, base, isNeeded, check, () => {}, signal)
  return new Map(files.map(({ path, oid }) => [path, blobs.get(oid)!]))
}

/**
 * Makes the commit of a part unless its files are all in the repository itself; false if there is none to make. Only
 * with exclusive access to the mirror. Rejects with a `DeploymentError`.
 */
export const completeWithLfs = async (
  parts: CompleteParts,
  base: Base,
  part: ContentPart,
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<boolean> => {
  const { git, preparation } = parts
  const { mirror, commitId } = base
  if (!(await usesLfs(git, mirror, commitId))) return false
  let bytes = 0
  const check = (size: number): void => {
    bytes += size
    if (bytes > preparation.contextBytes) throw contextTooLarge(preparation)
  }
  const { files, blobs } = await fetchNeeded(parts, base, await needOf(parts, base, part), check, say, signal)
  if (files.length === 0) return false
  await writeCommit(git, base, refForPart(commitId, part), files, blobs, signal)
  return true
}
