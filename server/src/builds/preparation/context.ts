/**
 * The build context: a tar of a commit's folder straight from the mirror, never checked out and without .git. Links
 * stay links: they only ever resolve inside the build's container.
 */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { PassThrough, type Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { extract, type Pack, pack } from 'tar-stream'
import { readableOf, writableOf } from '../../lib/tar-streams.ts'
import type { Git } from '../git/process.ts'
import type { SourceTree } from '../git/source-tree.ts'
import type { PreparationLimits } from '../preparation-limits.ts'
import { createKeptCount, type Names, scanContext } from './context-scan.ts'
import { type ContextShape, createRename, nothingFolder, ownFolder } from './context-shape.ts'
import { changeMode } from './file-modes.ts'
import { ignoreFileWith } from './own-dockerfile.ts'

/** Part of every content key: a different way to build makes different images. */
const recipe = 'slipway-build-3'

interface KeyParts {
  organizationId: string
  cacheScope: string
  treeId: string
  dockerfileId: string
  dockerfilePath: string | null
  targetStage: string | null
  buildArgs: Record<string, string>
  /** Base image → its id on the engine, null if the engine does not have it. */
  bases: [name: string, id: string | null][]
}

/** The same for the same content in one scope of an organization, whatever commit, service or repository it comes from. */
export const contentKey = (parts: KeyParts): string => {
  const { organizationId, cacheScope, treeId, dockerfileId, dockerfilePath, targetStage } = parts
  const buildArgs = Object.entries(parts.buildArgs).sort(([a], [b]) => (a < b ? -1 : 1))
  const all = [
    recipe,
    organizationId,
    cacheScope,
    treeId,
    dockerfileId,
    dockerfilePath,
    targetStage,
    buildArgs,
    parts.bases,
  ]
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
  if (type === 'file') return pipeline(body, writableOf(target.entry({ ...header, type })))
  if (type === 'directory') target.entry({ ...header, type, size: 0 })
  if (type === 'symlink') target.entry({ ...header, type, size: 0 })
  body.resume()
}

/** Our own Dockerfile under a name in the context, whatever the tree has there. */
export interface OwnDockerfile {
  name: string
  text: string
  /** Default: the files as they are. */
  shape?: ContextShape
}

interface Copying {
  archive: Readable
  target: Pack
  /** The source of the tar: it signals backpressure, which entries without content do not. */
  out: PassThrough
  kept: Names
  count: (entry: { size: number }) => void
}

const isOwnName = (path: string): boolean => [ownFolder, nothingFolder].includes(path.split('/', 1)[0]!)

const addOwn = (target: Pack, { files, mode, parents, hasNothing }: ContextShape, mtime: Date): void => {
  if (hasNothing) target.entry({ name: nothingFolder, type: 'directory', mtime })
  if (parents || files.length > 0) target.entry({ name: ownFolder, type: 'directory', mtime })
  const fileMode = mode === null ? 0o644 : changeMode(mode, 0o644, false)
  for (const { name, text } of files) target.entry({ name: `${ownFolder}/${name}`, mode: fileMode, mtime }, text)
}

const copyEntries = async ({ archive, target, out, kept, count }: Copying, tree: SourceTree, own: OwnDockerfile) => {
  const source = archive.pipe(extract())
  archive.on('error', (error) => source.destroy(error))
  const { shape } = own
  const rename = shape === undefined ? (path: string) => path : createRename(shape)
  for await (const entry of source) {
    const { name, type, size, mode, linkname } = entry.header
    const path = name.replace(/\/+$/, '')
    const isOurs = path === own.name || path === '.dockerignore' || (shape !== undefined && isOwnName(path))
    const to = !kept.has(path) || isOurs ? null : rename(path, type === 'directory')
    if (to === null) {
      entry.resume()
      continue
    }
    count({ size: size ?? 0 })
    const header = {
      name: type === 'directory' ? `${to}/` : to,
      type,
      size,
      mode: shape?.mode == null ? mode : changeMode(shape.mode, mode ?? 0, type === 'directory'),
      linkname,
      mtime: tree.committedAt,
    }
    await addEntry(target, header, entry as never)
    if (out.writableNeedDrain) await once(out, 'drain')
  }
  const mtime = tree.committedAt
  if (shape !== undefined) addOwn(target, shape, mtime)
  target.entry({ name: '.dockerignore', mtime }, ignoreFileWith(tree.ignoreFile, own.name))
  target.entry({ name: own.name, mtime }, own.text)
}

/**
 * The context as a tar. Scans it first and rejects with `build_refused` when it is too large; the stream fails with
 * that too if more arrives than was scanned, and when the archive cannot be read to its end.
 */
export const openContext = async (
  git: Git,
  tree: SourceTree,
  own: OwnDockerfile,
  limits: PreparationLimits,
): Promise<Readable> => {
  const kept = await scanContext(git, tree, new Set(['.dockerignore']), limits)
  const target = pack()
  const out = new PassThrough()
  pipeline(readableOf(target), out).catch(() => {})
  const args = ['--git-dir', tree.mirror, 'archive', '--format=tar', '--end-of-options', tree.treeId]
  const archive = git.open(args, { timeoutMs: limits.contextMs })
  const fill = async (): Promise<void> => {
    await copyEntries({ archive, target, out, kept, count: createKeptCount(limits) }, tree, own)
    target.finalize()
  }
  out.on('close', () => archive.destroy())
  fill().catch((error: Error) => {
    archive.destroy()
    target.destroy(error)
  })
  return out
}
