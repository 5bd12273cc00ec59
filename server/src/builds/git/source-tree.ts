/** The facts about a commit that a build needs, read from its mirror; links are followed only inside the repository. */
import { createHash } from 'node:crypto'
import { DeploymentError } from '../../lib/errors.ts'
import {
  dockerfileTooLarge,
  ignoreFileTooLarge,
  type PreparationLimits,
  refusePreparation,
} from '../preparation-limits.ts'
import { committedAt, maxCommitBytes } from './commit.ts'
import { type Found, type Objects, withObjects } from './objects.ts'
import type { Git } from './process.ts'

export interface SourceTree {
  mirror: string
  /** Id of the tree at the root path. */
  treeId: string
  committedAt: Date
  /** The path of the Dockerfile in that tree; null if it is outside. */
  dockerfilePath: string | null
  /** Whether that path is a file directly, without links. */
  isPlain: boolean
  dockerfile: Buffer
  dockerfileId: string
  /** The text of `<Dockerfile>.dockerignore` or .dockerignore; '' without one. */
  ignoreFile: string
}

interface Reading {
  git: Git
  mirror: string
  commitId: string
  limits: PreparationLimits
}

/** A path from the repository's root without `.`, `..` and outer slashes; null if it leaves the repository. */
export const resolvePath = (...paths: string[]): string | null => {
  const parts: string[] = []
  for (const part of paths.flatMap((path) => path.split('/'))) {
    if (part === '..') {
      if (parts.pop() === undefined) return null
    } else if (part !== '' && part !== '.') parts.push(part)
  }
  const path = parts.join('/')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: git reads one name a line
  return /[\u0000-\u001f]/.test(path) ? null : path
}

const outside = (what: string, path: string): DeploymentError =>
  new DeploymentError('path_outside', `The ${what} ${path} is outside the repository.`)

const missing = (message: string): DeploymentError => new DeploymentError('dockerfile_missing', message)

interface Item {
  id: string
  size: number
}

const readTexts = async (objects: Objects, found: Found, most: number, tooLarge: (bytes: number) => Error) => {
  if (!('size' in found) || found.kind !== 'blob') return null
  if (found.size > most) throw tooLarge(found.size)
  return objects.read(found)
}

/** The time of the commit; rejects if it is not in the mirror. */
const readCommitDate = async (objects: Objects, found: Found, commitId: string): Promise<Date> => {
  if (!('size' in found) || found.kind !== 'commit')
    throw new DeploymentError('git_ref_missing', `Commit ${commitId.slice(0, 12)} was not fetched.`)
  if (found.size > maxCommitBytes)
    throw refusePreparation(`Commit ${commitId.slice(0, 12)} has a message of more than 1 MB: shorten it.`)
  return committedAt(await objects.read(found))
}

const demand = (found: Found, kind: string, what: string, path: string): Item => {
  if (found.kind === 'outside') throw outside(what, path)
  if (found.kind !== kind || !('size' in found)) throw missing(`The repository has no ${what} ${path}.`)
  return found
}

const demandId = (found: Found): string => ('id' in found ? found.id : '')

/** The source of a build around a tool: the whole repository, and one file, whose text `make` gets. */
export const readTreeFor = (
  { git, mirror, commitId, limits }: Reading,
  path: string | null,
  make: (text: string | null) => string,
): Promise<SourceTree> => {
  const file = path === null ? null : resolvePath(path)
  if (path !== null && file === null) throw outside('file', path)
  return withObjects(git, mirror, limits.readMs, async (objects) => {
    const names = [commitId, `${commitId}^{tree}`, ...(file === null ? [] : [`${commitId}:${file}`])]
    const [commit, tree, own] = await objects.look(names)
    const date = await readCommitDate(objects, commit!, commitId)
    if (file !== null) demand(own!, 'blob', 'file', `/${file}`)
    const tooLarge = (bytes: number) => dockerfileTooLarge(`/${file}`, bytes, limits)
    const text = file === null ? null : await readTexts(objects, own!, limits.dockerfileBytes, tooLarge)
    const dockerfile = Buffer.from(make(text === null ? null : text.toString('utf8')))
    return {
      mirror,
      treeId: demand(tree!, 'tree', 'folder', '/').id,
      committedAt: date,
      dockerfilePath: null,
      isPlain: false,
      dockerfile,
      dockerfileId: createHash('sha256').update(dockerfile).digest('hex'),
      ignoreFile: '',
    }
  })
}

/** True if the path in the tree is a file directly, without links. */
const isPlainFile = async (git: Git, mirror: string, treeId: string, path: string): Promise<boolean> => {
  const args = ['--git-dir', mirror, '--literal-pathspecs', 'ls-tree', '-z', '--end-of-options', treeId, '--', path]
  const [first] = await git.open(args).take(1).toArray()
  return /^100\d\d\d blob /.test((first as Buffer | undefined)?.toString('latin1', 0, 12) ?? '')
}

/** Rejects with `path_outside`, `dockerfile_missing`, or `build_refused` for something too large. */
export const readSourceTree = (reading: Reading, rootPath: string, dockerfilePath: string): Promise<SourceTree> => {
  const { git, mirror, commitId, limits } = reading
  const root = resolvePath(rootPath)
  if (root === null) throw outside('folder', rootPath)
  const file = resolvePath(root, dockerfilePath)
  if (file === null) throw outside('Dockerfile', dockerfilePath)
  const ignore = resolvePath(root, '.dockerignore')
  const prefix = root === '' ? '' : `${root}/`
  return withObjects(git, mirror, limits.readMs, async (objects) => {
    const [commit, tree, found, ignoreFile, ownIgnoreFile] = await objects.look([
      commitId,
      root === '' ? `${commitId}^{tree}` : `${commitId}:${root}`,
      `${commitId}:${file}`,
      `${commitId}:${ignore}`,
      `${commitId}:${file}.dockerignore`,
    ])
    const date = await readCommitDate(objects, commit!, commitId)
    const { id: treeId } = demand(tree!, 'tree', 'folder', rootPath)
    const { id: dockerfileId } = demand(found!, 'blob', 'Dockerfile', `/${file}`)
    const tooLarge = (bytes: number) => dockerfileTooLarge(`/${file}`, bytes, limits)
    const path = file.startsWith(prefix) ? file.slice(prefix.length) : null
    const [isPlain, dockerfile] = await Promise.all([
      path === null ? false : isPlainFile(git, mirror, treeId, path),
      readTexts(objects, found!, limits.dockerfileBytes, tooLarge),
    ])
    const readRules = (each: Found) =>
      readTexts(objects, each, limits.ignoreFileBytes, (bytes) => ignoreFileTooLarge(bytes, limits))
    const ownRules = await readRules(ownIgnoreFile!)
    const rules = ownRules ?? (await readRules(ignoreFile!))
    return {
      mirror,
      treeId,
      committedAt: date,
      dockerfilePath: path,
      isPlain,
      dockerfile: dockerfile!,
      // It may be outside of the tree.
      dockerfileId: ownRules === null ? dockerfileId : `${dockerfileId} ${demandId(ownIgnoreFile!)}`,
      ignoreFile: rules?.toString('utf8') ?? '',
    }
  })
}
