/** What a build needs to know of a commit, read from its mirror by one run of git; links are followed inside the repository only. */
import { createHash } from 'node:crypto'
import { DeploymentError } from '../lib/errors.ts'
import type { Git } from './git-process.ts'

export interface SourceTree {
  mirror: string
  /** Id of the tree at the root path. */
  treeId: string
  committedAt: Date
  /** Path of the Dockerfile in that tree; null when it lies beside or above it. */
  dockerfilePath: string | null
  dockerfile: Buffer
  dockerfileId: string
  /** Text of .dockerignore, '' without one. */
  ignoreFile: string
}

const maxBytes = 16 * 2 ** 20

/** A path from the repository's top without `.`, `..` and outer slashes; null when it leaves the repository. */
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
  new DeploymentError('path_outside', `The ${what} ${path} leaves the repository.`)

const missing = (message: string): DeploymentError => new DeploymentError('dockerfile_missing', message)

/** `outside` also stands for links that lead to nothing or in circles. */
type Found = { kind: 'missing' | 'outside' } | { kind: string; id: string; content: Buffer }

const readLine = (bytes: Buffer, at: number): { line: string; next: number } => {
  const end = bytes.indexOf(10, at)
  if (end === -1) throw new Error('git cat-file ended early')
  return { line: bytes.toString('utf8', at, end), next: end + 1 }
}

/** One answer of `cat-file --follow-symlinks` from `at` on. */
const readAnswer = (bytes: Buffer, at: number, withContent: boolean): { found: Found; next: number } => {
  const { line, next } = readLine(bytes, at)
  const link = /^(symlink|dangling|loop|notdir) (\d+)$/.exec(line)
  if (link !== null) {
    const kind = link[1] === 'notdir' ? 'missing' : 'outside'
    return { found: { kind }, next: next + Number(link[2]) + 1 }
  }
  const object = /^([0-9a-f]+) (\w+) (\d+)$/.exec(line)
  if (object === null) return { found: { kind: 'missing' }, next }
  const size = withContent ? Number(object[3]) : 0
  const content = bytes.subarray(next, next + size)
  return { found: { kind: object[2]!, id: object[1]!, content }, next: withContent ? next + size + 1 : next }
}

const collect = async (stream: AsyncIterable<Buffer>): Promise<Buffer> => {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of stream) {
    chunks.push(chunk)
    size += chunk.length
    if (size > maxBytes) throw missing('The Dockerfile is larger than 16 MB.')
  }
  return Buffer.concat(chunks)
}

const ask = async (git: Git, mirror: string, questions: { name: string; content: boolean }[]): Promise<Found[]> => {
  const input = questions.map(({ name, content }) => `${content ? 'contents' : 'info'} ${name}\n`).join('')
  const bytes = await collect(
    git.open(['--git-dir', mirror, 'cat-file', '--batch-command', '--follow-symlinks'], input),
  )
  let at = 0
  return questions.map(({ content }) => {
    const { found, next } = readAnswer(bytes, at, content)
    at = next
    return found
  })
}

const committedAt = (commit: Buffer): Date =>
  new Date(Number(/^committer .* (\d+) [-+]\d{4}$/m.exec(commit.toString('utf8'))?.[1] ?? 0) * 1000)

const demand = (found: Found, kind: string, what: string, path: string): { id: string; content: Buffer } => {
  if (found.kind === 'outside') throw outside(what, path)
  if (found.kind !== kind || !('id' in found)) throw missing(`The repository has no ${what} ${path}.`)
  return found
}

/** The folder of a commit with a Dockerfile of ours; `path` names a file of it that `make` is given the text of. */
export const readTreeFor = async (
  git: Git,
  mirror: string,
  commitId: string,
  path: string | null,
  make: (text: string | null) => string,
): Promise<SourceTree> => {
  const file = path === null ? null : resolvePath(path)
  if (path !== null && file === null) throw outside('file', path)
  const [commit, tree, own] = await ask(git, mirror, [
    { name: commitId, content: true },
    { name: `${commitId}^{tree}`, content: false },
    ...(file === null ? [] : [{ name: `${commitId}:${file}`, content: true }]),
  ])
  const text = file === null ? null : demand(own!, 'blob', 'file', `/${file}`).content.toString('utf8')
  const dockerfile = Buffer.from(make(text))
  return {
    mirror,
    treeId: demand(tree!, 'tree', 'folder', '/').id,
    committedAt: committedAt(demand(commit!, 'commit', 'commit', commitId).content),
    dockerfilePath: null,
    dockerfile,
    dockerfileId: createHash('sha256').update(dockerfile).digest('hex'),
    ignoreFile: '',
  }
}

/** Rejects with `path_outside` or `dockerfile_missing`. */
export const readSourceTree = async (
  git: Git,
  mirror: string,
  commitId: string,
  rootPath: string,
  dockerfilePath: string,
): Promise<SourceTree> => {
  const root = resolvePath(rootPath)
  if (root === null) throw outside('folder', rootPath)
  const file = resolvePath(root, dockerfilePath)
  if (file === null) throw outside('Dockerfile', dockerfilePath)
  const ignore = resolvePath(root, '.dockerignore')
  const [commit, tree, dockerfile, ignoreFile] = await ask(git, mirror, [
    { name: commitId, content: true },
    { name: root === '' ? `${commitId}^{tree}` : `${commitId}:${root}`, content: false },
    { name: `${commitId}:${file}`, content: true },
    { name: `${commitId}:${ignore}`, content: true },
  ])
  const { id: treeId } = demand(tree!, 'tree', 'folder', rootPath)
  const { id: dockerfileId, content } = demand(dockerfile!, 'blob', 'Dockerfile', `/${file}`)
  const prefix = root === '' ? '' : `${root}/`
  return {
    mirror,
    treeId,
    committedAt: committedAt(demand(commit!, 'commit', 'commit', commitId).content),
    dockerfilePath: file.startsWith(prefix) ? file.slice(prefix.length) : null,
    dockerfile: content,
    dockerfileId,
    ignoreFile: ignoreFile!.kind === 'blob' && 'content' in ignoreFile! ? ignoreFile.content.toString('utf8') : '',
  }
}
