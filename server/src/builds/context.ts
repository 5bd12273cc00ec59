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
import { ignoreFileWith } from './own-dockerfile.ts'
import type { SourceTree } from './source-tree.ts'

/** Part of every content key: another way to build makes other images. */
const recipe = 'slipway-build-2'

export interface KeyParts {
  organizationId: string
  treeId: string
  dockerfileId: string
  dockerfilePath: string | null
  targetStage: string | null
  buildArgs: Record<string, string>
  /** Base image → its id on the engine, null where it is not there. */
  bases: [name: string, id: string | null][]
}

/** The same for the same content of an organization, whatever commit, service or repository it comes from. */
export const contentKey = (parts: KeyParts): string => {
  const { organizationId, treeId, dockerfileId, dockerfilePath, targetStage } = parts
  const buildArgs = Object.entries(parts.buildArgs).sort(([a], [b]) => (a < b ? -1 : 1))
  const all = [recipe, organizationId, treeId, dockerfileId, dockerfilePath, targetStage, buildArgs, parts.bases]
  return createHash('sha256').update(JSON.stringify(all)).digest('hex')
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

const copyEntries = async (archive: Readable, target: Pack, tree: SourceTree, skip: Set<string>): Promise<void> => {
  const isIgnored = parseIgnoreFile(tree.ignoreFile)
  const source = archive.pipe(extract())
  archive.on('error', (error) => source.destroy(error))
  for await (const entry of source) {
    const { name, type, size, mode, linkname } = entry.header
    const path = name.replace(/\/+$/, '')
    if (skip.has(path) || isIgnored(path)) entry.resume()
    else await addEntry(target, { name, type, size, mode, linkname, mtime: tree.committedAt }, entry as never)
  }
}

export interface OwnDockerfile {
  name: string
  text: string
}

/** Opens the context, with a Dockerfile of ours in it; the stream fails when the archive cannot be read to its end. */
export const openContext = (git: Git, tree: SourceTree, own: OwnDockerfile): Readable => {
  const target = pack()
  const archive = git.open(['--git-dir', tree.mirror, 'archive', '--format=tar', tree.treeId])
  const fill = async (): Promise<void> => {
    const mtime = tree.committedAt
    await copyEntries(archive, target, tree, new Set([own.name, '.dockerignore']))
    target.entry({ name: '.dockerignore', mtime }, ignoreFileWith(tree.ignoreFile, own.name))
    target.entry({ name: own.name, mtime }, own.text)
    target.finalize()
  }
  target.on('close', () => archive.destroy())
  fill().catch((error: Error) => target.destroy(error))
  return target as unknown as Readable
}
