/** Brings the contents of files that are stored with Git LFS into the mirror of their repository. */
import { DeploymentError } from '../../lib/errors.ts'
import type { OutboundStream, StreamRequest } from '../../lib/net/outbound.ts'
import type { GitSource } from '../builder.ts'
import { explainLimits, refMissing, refused } from '../git/errors.ts'
import { mirrorSize } from '../git/mirror-folder.ts'
import type { MirrorRoom } from '../git/mirror-room.ts'
import { internalIdIn, isValidGitUrl } from '../git/names.ts'
import { withObjects } from '../git/objects.ts'
import { type Git, GitFailed } from '../git/process.ts'
import { webAddress } from '../git/submodule-names.ts'
import { askBatch, type LfsServer, mostPerBatch } from './client.ts'
import type { LfsFile } from './scan.ts'
import { findObjects, storeObjects } from './store.ts'

const beside = (repository: string): string => {
  const plain = repository.replace(/\/+$/, '')
  return `${plain}${plain.endsWith('.git') ? '' : '.git'}/info/lfs`
}

/** Https, or http for a repository that is itself read by http. */
const isAllowed = (repository: string, url: string): boolean =>
  isValidGitUrl(url) && (url.startsWith('https:') || repository.startsWith('http:'))

/**
 * The address of the LFS API. `configured` is `lfs.url` of `.lfsconfig`, null without. Null: the repository has none,
 * because it is on this server; `refused`: `.lfsconfig` names an address that cannot be used.
 */
export const lfsEndpoint = (repository: string, configured: string | null): string | null | 'refused' => {
  if (configured === null) return internalIdIn(repository) === null ? beside(repository) : null
  const web = webAddress(repository, configured)
  if (web !== null) return beside(web)
  return isAllowed(repository, configured) ? configured.replace(/\/+$/, '') : 'refused'
}

export interface LfsParts {
  git: Git
  open(request: StreamRequest): Promise<OutboundStream>
  /** Headers with the source's credentials for another address; none if they may not be sent there. */
  authorize(source: GitSource, url: string, signal: AbortSignal): Promise<Record<string, string>>
  maxMirrorBytes: number
  room: Pick<MirrorRoom, 'during'>
  /** Mirrors that were just emptied for a commit: emptying them again would not make more room. */
  emptied: { get(key: string): string | undefined; set(key: string, text: string): void }
}

/** A repository whose files are in the tree of a build: itself, or one of its submodules. */
export interface Owner {
  source: GitSource
  commitId: string
}

const readMs = 30_000
const maxConfigBytes = 65_536

const plainCodes: ReadonlySet<string> = new Set(['git_ref_missing', 'limit_reached', 'disk_full'])

const megabytes = (bytes: number): string =>
  `${(bytes / 2 ** 20).toFixed(bytes < 10 * 2 ** 20 ? 1 : 0).replace(/\.0$/, '')} MB`

const show = (path: string): string => JSON.stringify(path.length > 200 ? `${path.slice(0, 197)}...` : path)

/** A failure in one sentence that names the file. */
const failedFor = (file: LfsFile, error: unknown): unknown => {
  if (error instanceof GitFailed)
    return failedFor(file, explainLimits(error.stderr) ?? refused('git could not keep its content.', error))
  if (!(error instanceof DeploymentError)) return error
  const message = `The file ${show(file.path)} is stored with Git LFS and could not be fetched: ${error.message}`
  return new DeploymentError(error.code, message, { next: error.next, cause: error })
}

/** `lfs.url` of the commit's `.lfsconfig`; null without one. */
const configuredUrl = async (git: Git, mirror: string, commitId: string): Promise<string | null> => {
  const name = `${commitId}:.lfsconfig`
  const [found] = await withObjects(git, mirror, readMs, (objects) => objects.look([name]))
  if (found === undefined || found.kind !== 'blob' || !('size' in found)) return null
  if (found.size > maxConfigBytes) throw refused('The file .lfsconfig has more than 64 KB, which is not read.')
  const args = ['--git-dir', mirror, 'config', '-z', '--no-includes', '--blob', found.id, '--get', 'lfs.url']
  const { code, stdout } = await git.run(args, { timeoutMs: readMs, maxOutput: 1 << 20 })
  if (code > 1) throw refused('The file .lfsconfig cannot be read.')
  return code === 1 ? null : (stdout.split('\0')[0] ?? null)
}

const serverOf = async (
  parts: LfsParts,
  { source, commitId }: Owner,
  mirror: string,
  signal: AbortSignal,
): Promise<LfsServer> => {
  const endpoint = lfsEndpoint(source.url, await configuredUrl(parts.git, mirror, commitId))
  if (endpoint === null)
    throw refused('this server keeps no LFS objects. Commit the file itself, or name an LFS server in .lfsconfig.')
  if (endpoint === 'refused') throw refused('the address in .lfsconfig is not a plain https address.')
  return {
    endpoint,
    open: parts.open,
    authorize: (url) => parts.authorize(source, url, signal),
  }
}

/** A mirror has everything ever fetched into it: one without room is emptied once, and its commit fetched again. */
const refuseWithoutRoom = async (
  { git, maxMirrorBytes, emptied }: LfsParts,
  mirror: string,
  { source, commitId }: Owner,
  bytes: number,
): Promise<void> => {
  const key = `${mirror} ${commitId}`
  const wasEmptied = emptied.get(key) !== undefined
  // The next deployment of this commit may find the mirror full of others again.
  emptied.set(key, '')
  if ((await mirrorSize(mirror)) + bytes <= maxMirrorBytes) return
  if (bytes > maxMirrorBytes || wasEmptied || internalIdIn(source.url) !== null)
    throw refused(
      `with what else is fetched of the repository it has more than ${megabytes(maxMirrorBytes)}, which is the limit.`,
    )
  emptied.set(key, 'emptied')
  await git.remove([mirror])
  throw refMissing(`Commit ${commitId.slice(0, 12)} has to be fetched again.`)
}

const refuseExtensions = (files: readonly LfsFile[]): void => {
  const extended = files.find(({ hasExtensions }) => hasExtensions)
  if (extended !== undefined) throw failedFor(extended, refused('it was changed by an extension of Git LFS.'))
}

/**
 * Fetches the missing contents of these files of one repository into the mirror. Only with exclusive access to the
 * mirror. Returns the blobs by LFS id. Rejects with a `DeploymentError` that names a file, or with `git_ref_missing`
 * if the commit has to be fetched again first.
 */
export const fetchLfsObjects = async (
  parts: LfsParts,
  owner: Owner,
  mirror: string,
  files: readonly LfsFile[],
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<Map<string, string>> => {
  refuseExtensions(files)
  const byId = new Map(files.map((file) => [file.oid, file]))
  const blobs = await findObjects(parts.git, mirror, [...byId.keys()])
  const missing = [...byId.values()].filter(({ oid }) => !blobs.has(oid))
  if (missing.length === 0) return blobs
  const bytes = missing.reduce((sum, { size }) => sum + size, 0)
  let current = missing[0]!
  try {
    const server = await serverOf(parts, owner, mirror, signal)
    await refuseWithoutRoom(parts, mirror, owner, bytes)
    say(`Fetching ${missing.length} ${missing.length === 1 ? 'file' : 'files'} of Git LFS (${megabytes(bytes)}).\n`)
    await parts.room.during(mirror, signal, async (within) => {
      for (let at = 0; at < missing.length; at += mostPerBatch) {
        const part = missing.slice(at, at + mostPerBatch)
        current = part[0]!
        const openObject = await askBatch(server, part, within)
        const open = (object: { oid: string; size: number }) => {
          current = byId.get(object.oid)!
          return openObject(object)
        }
        for (const [oid, id] of await storeObjects(parts.git, mirror, part, open, within)) blobs.set(oid, id)
      }
    })
    return blobs
  } catch (error) {
    signal.throwIfAborted()
    const isPlain = error instanceof DeploymentError && plainCodes.has(error.code)
    throw isPlain ? error : failedFor(current, error)
  }
}
