/**
 * The build context: a tar of a commit's folder straight from the mirror, never checked out and without .git. Links stay
 * links: they only ever resolve inside the build's container.
 */
import { createHash } from 'node:crypto'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { extract, type Pack, pack } from 'tar-stream'
import type { Git } from './git-process.ts'
import { parseIgnoreFile } from './ignore-file.ts'
import type { SourceTree } from './source-tree.ts'

/** Part of every content key: another way to build makes other images. */
const recipe = 'slipway-build-1'

/** Name in the context of a Dockerfile that lies outside it or is reached through a link. */
const extraDockerfile = '.slipway.dockerfile'

export interface KeyParts {
  treeId: string
  dockerfileId: string
  dockerfilePath: string | null
  targetStage: string | null
  buildArgs: Record<string, string>
  /** Base image → its id on the engine, null where it is not there. */
  bases: [name: string, id: string | null][]
}

/** The same for the same content, whatever commit, service or repository it comes from. */
export const contentKey = (parts: KeyParts): string => {
  const { treeId, dockerfileId, dockerfilePath, targetStage } = parts
  const buildArgs = Object.entries(parts.buildArgs).sort(([a], [b]) => (a < b ? -1 : 1))
  const all = [recipe, treeId, dockerfileId, dockerfilePath, targetStage, buildArgs, parts.bases]
  return createHash('sha256').update(JSON.stringify(all)).digest('hex')
}

/** True when the path in the tree is a file as it stands, without links. */
const isPlainFile = async (git: Git, { mirror, treeId }: SourceTree, path: string): Promise<boolean> => {
  const { stdout } = await git.run(['--git-dir', mirror, '--literal-pathspecs', 'ls-tree', '-z', treeId, '--', path])
  return /^100\d\d\d blob /.test(stdout)
}

interface Entry {
  name: string
  type: string | null | undefined
  size: number
  mode: number
  linkname: string
  mtime: Date
}

const addEntry = async (target: Pack, header: Entry, body: Readable): Promise<void> => {
  const { type } = header
  if (type === 'file') return pipeline(body, target.entry({ ...header, type }) as unknown as Writable)
  if (type === 'directory') target.entry({ ...header, type, size: 0 })
  if (type === 'symlink') target.entry({ ...header, type, size: 0 })
  body.resume()
}

const copyEntries = async (archive: Readable, target: Pack, tree: SourceTree, keep: Set<string>): Promise<void> => {
  const isIgnored = parseIgnoreFile(tree.ignoreFile)
  const source = archive.pipe(extract())
  archive.on('error', (error) => source.destroy(error))
  for await (const entry of source) {
    const { name, type, size, mode, linkname } = entry.header
    const path = name.replace(/\/+$/, '')
    if (isIgnored(path) && !keep.has(path)) entry.resume()
    else await addEntry(target, { name, type, size, mode, linkname, mtime: tree.committedAt }, entry as never)
  }
}

export interface Context {
  tar: Readable
  /** Where the Dockerfile is in it. */
  dockerfile: string
}

/** Opens the context; the stream fails when the archive cannot be read to its end. */
export const openContext = async (git: Git, tree: SourceTree): Promise<Context> => {
  const { dockerfilePath: path, mirror, treeId } = tree
  const plain = path !== null && (await isPlainFile(git, tree, path))
  const target = pack()
  const archive = git.open(['--git-dir', mirror, 'archive', '--format=tar', treeId])
  const fill = async (): Promise<void> => {
    await copyEntries(archive, target, tree, new Set([path ?? extraDockerfile, '.dockerignore']))
    if (!plain) target.entry({ name: extraDockerfile, mtime: tree.committedAt }, tree.dockerfile)
    target.finalize()
  }
  target.on('close', () => archive.destroy())
  fill().catch((error: Error) => target.destroy(error))
  return { tar: target as unknown as Readable, dockerfile: plain ? path : extraDockerfile }
}
