/**
 * Git's environment: a separate user, limits, and folders that this user can reach. Promises that nothing that ran as
 * that user can make root write, or change an owner, anywhere: the parent folder belongs to root, and the contents of
 * mirrors are only ever listed and removed. All of it can be recreated, so anything doubtful is removed.
 */
import { lstatSync } from 'node:fs'
import { chmod, chown, mkdir, readdir, readFile, readlink, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { findProgram } from '../../lib/exec.ts'
import type { Log } from '../../lib/log.ts'
import { canReach, placeFolder, sharedFolder } from '../../lib/placed-folder.ts'
import { ensureSystemUser, type SystemUser } from '../../lib/system-user.ts'
import { removeTrees } from './process.ts'

interface GitPlace {
  /** Empty if we are not root: git then runs as we do. */
  user: SystemUser
  /** The path of util-linux' prlimit; null if it is not installed. */
  prlimit: string | null
  home: string
  template: string
  /** Owned by the user. */
  mirrors: string
  /** Owned by us, and readable for the user. */
  samples: string
}

const name = 'git'
/** Folders of earlier versions; files that git created there as root are not used again. */
const formerNames = ['mirrors', 'git-home', 'samples']
/** Next to the folders of a place in /var/lib: the link that points there. */
const ownerFile = 'link'

/** Overrides all other attributes: archives contain what a checkout would. */
const attributes = '* -export-ignore -export-subst\n'

/** Removes places in /var/lib that no data directory links to any longer. */
const sweepPlaces = async (): Promise<void> => {
  for (const entry of await readdir(sharedFolder).catch(() => [])) {
    if (!entry.startsWith(`${name}-`)) continue
    const place = join(sharedFolder, entry)
    const link = await readFile(join(place, ownerFile), 'utf8').catch(() => null)
    // Without the file it is just being created.
    if (link === null || (await readlink(link).catch(() => null)) === place) continue
    await removeTrees([place])
  }
}

const settle = async (dataDir: string, user: SystemUser): Promise<string> => {
  const root = resolve(dataDir)
  await mkdir(root, { recursive: true, mode: 0o700 })
  const folder = await placeFolder(root, name, name, user)
  // One that was created when the data directory could be reached, or by another user, is recreated.
  if (user.uid !== undefined && (lstatSync(folder).uid !== 0 || !canReach(dirname(folder), user))) {
    await removeGitPlace(dataDir)
    return placeFolder(root, name, name, user)
  }
  return folder
}

/** Creates a folder in `place`, which only we can write to: no other user can create anything with its name. */
const makeFolder = async (place: string, entry: string, mode: number, user: SystemUser): Promise<string> => {
  const path = join(place, entry)
  await mkdir(path, { recursive: true })
  await chmod(path, mode)
  if (user.uid !== undefined) await chown(path, user.uid, user.gid!)
  return path
}

const makePlace = async (dataDir: string, log: Log): Promise<GitPlace> => {
  const user = await ensureSystemUser('slipway-git')
  const prlimit = await findProgram('prlimit')
  if (prlimit === null)
    log.warn('prlimit is not installed: git runs without limits on memory and processes (package util-linux)')
  const folder = await settle(dataDir, user)
  const others = user.uid === undefined ? 0o700 : 0o711
  await chmod(folder, others)
  if (folder.startsWith(`${sharedFolder}/`)) await writeFile(join(folder, ownerFile), join(resolve(dataDir), name))
  const template = await makeFolder(folder, 'template', others, {})
  const info = await makeFolder(template, 'info', 0o755, {})
  await chmod(template, 0o755)
  await writeFile(join(info, 'attributes'), attributes, { mode: 0o644 })
  const place = {
    user,
    prlimit,
    template,
    home: await makeFolder(folder, 'home', 0o700, user),
    mirrors: await makeFolder(folder, 'mirrors', 0o700, user),
    samples: await makeFolder(folder, 'samples', others, {}),
  }
  await removeTrees(formerNames.map((former) => join(resolve(dataDir), former)))
  if (user.uid !== undefined)
    await sweepPlaces().catch((error: unknown) => log.warn({ err: error }, 'old folders of git could not be removed'))
  return place
}

const opened = new Map<string, Promise<GitPlace>>()

/** Creates missing parts, once per process. Rejects if we are root and the user cannot be created. */
export const openGitPlace = (dataDir: string, log: Log): Promise<GitPlace> => {
  const path = resolve(dataDir)
  const place = opened.get(path) ?? makePlace(path, log)
  opened.set(path, place)
  return place
}

/** Permanently removes everything of git, also outside the data directory. */
export const removeGitPlace = async (dataDir: string): Promise<void> => {
  opened.delete(resolve(dataDir))
  const link = join(resolve(dataDir), name)
  const target = await readlink(link).catch(() => null)
  await removeTrees([...(target !== null && dirname(target) === sharedFolder ? [target] : []), link])
}
