/**
 * Finds the files of a tree that are stored with Git LFS. Files that git itself would leave alone are left alone here
 * too.
 */

import { ExecTimeout } from '../../lib/exec.ts'
import { refused } from '../git/errors.ts'
import type { Objects } from '../git/objects.ts'
import { withObjects } from '../git/objects.ts'
import type { Git } from '../git/process.ts'
import { type Listed, listTree } from '../preparation/context-scan.ts'
import { type LfsPointer, parsePointer, pointerBytes } from './pointer.ts'

export interface LfsFile extends LfsPointer {
  path: string
  rawPath: Buffer
  mode: string
}

const timeoutMs = 60_000
/** For the search in a tree, which can name the same folders again and again. */
const searchMs = 15_000
const maxListed = 1_000_000
const maxAnswer = 1 << 26
/** In the folder of the mirror; the caller has locked that. */
const indexName = 'slipway-lfs-index'

const tooMany = (): Error =>
  refused('The repository has too many files and folders to find those of Git LFS among them.')

const runOrRefuse = async (git: Git, args: string[], options: { input?: Buffer; index?: string } = {}) => {
  const env: Record<string, string> = options.index === undefined ? {} : { GIT_INDEX_FILE: options.index }
  const { code, stdout, stderr } = await git.run(args, { timeoutMs, maxOutput: maxAnswer, env, input: options.input })
  if (code !== 0) throw refused(`git could not read the repository: ${stderr.trim().split('\n')[0]?.slice(0, 200)}`)
  return stdout
}

/** Whether a `.gitattributes` of the tree says that files are stored with LFS. */
export const usesLfs = async (git: Git, mirror: string, tree: string): Promise<boolean> => {
  const args = ['--git-dir', mirror, '-c', 'grep.threads=1', 'grep', '-q', '-F', '-e', 'filter=lfs', tree]
  const { code, stderr } = await git
    .run([...args, '--', ':(glob)**/.gitattributes'], { timeoutMs: searchMs })
    .catch((error: unknown) => {
      throw error instanceof ExecTimeout ? tooMany() : error
    })
  if (code > 1) throw refused(`git could not read the repository: ${stderr.trim().split('\n')[0]?.slice(0, 200)}`)
  return code === 0
}

const canBePointer = ({ mode, size }: Listed): boolean =>
  mode.startsWith('100') && size >= pointerBytes.least && size <= pointerBytes.most

const readPointers = async (objects: Objects, listed: readonly Listed[]): Promise<LfsFile[]> => {
  const known = new Map<string, LfsPointer | null>()
  const files: LfsFile[] = []
  for (const { id, size, path, rawPath, mode } of listed) {
    const pointer = known.get(id) ?? (known.has(id) ? null : parsePointer(await objects.read({ id, size })))
    known.set(id, pointer)
    if (pointer !== null) files.push({ ...pointer, path, rawPath, mode })
  }
  return files
}

/** Those files to which the attribute `filter=lfs` applies. */
const keepFiltered = async (git: Git, mirror: string, tree: string, files: LfsFile[]): Promise<LfsFile[]> => {
  const index = `${mirror}/${indexName}`
  try {
    await runOrRefuse(git, ['--git-dir', mirror, 'read-tree', '--end-of-options', tree], { index })
    const input = Buffer.concat(files.flatMap(({ rawPath }) => [rawPath, Buffer.of(0)]))
    const args = ['--git-dir', mirror, 'check-attr', '--cached', '-z', '--stdin', 'filter']
    // Three fields for each path, in the order of the paths.
    const fields = (await runOrRefuse(git, args, { index, input })).split('\0')
    return files.filter((_, place) => fields[3 * place + 2] === 'lfs')
  } finally {
    await git.remove([index, `${index}.lock`])
  }
}

/** Files of a tree (a commit or a tree id) whose path `isNeeded`. Only with exclusive access to the mirror. */
export const findLfsFiles = async (
  git: Git,
  mirror: string,
  tree: string,
  isNeeded: (path: string) => boolean,
): Promise<LfsFile[]> => {
  const small: Listed[] = []
  let count = 0
  for await (const listed of listTree(git, { mirror, treeId: tree }, timeoutMs)) {
    count += 1
    if (count > maxListed) throw tooMany()
    if (canBePointer(listed) && isNeeded(listed.path)) small.push(listed)
  }
  const files = await withObjects(git, mirror, timeoutMs, (objects) => readPointers(objects, small))
  return files.length === 0 ? files : keepFiltered(git, mirror, tree, files)
}
