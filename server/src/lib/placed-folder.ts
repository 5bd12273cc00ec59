/**
 * Folders below the data directory that belong to another user. If that user cannot reach the data directory (a
 * checkout in root's home), the folder is in /var/lib/slipway and a link points to it.
 */
import { randomBytes } from 'node:crypto'
import { lstatSync, readlinkSync, realpathSync, statSync } from 'node:fs'
import { chmod, mkdir, rmdir, symlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { SystemUser } from './system-user.ts'

/** The place for files of another user that cannot reach the data directory or the checkout. */
export const sharedFolder = '/var/lib/slipway'

/** Whether the user can traverse every folder of `path`. Only checked for a user other than ours. */
export const canReach = (path: string, { uid, gid }: SystemUser): boolean => {
  for (let folder = path; ; folder = dirname(folder)) {
    const { mode, uid: owner, gid: group } = statSync(folder)
    const bit = owner === uid ? 0o100 : group === gid ? 0o010 : 0o001
    if ((mode & bit) === 0) return false
    if (folder === dirname(folder)) return true
  }
}

export const ignoreExisting = (error: NodeJS.ErrnoException): void => {
  if (error.code !== 'EEXIST') throw error
}

/**
 * The real path of `<dataDir>/<name>`, created if missing: there, or linked from there to
 * `/var/lib/slipway/<elsewhere>-<random>`. New folders are ours only (0700); the caller may change their owner.
 */
export const placeFolder = async (
  dataDir: string,
  name: string,
  elsewhere: string,
  user: SystemUser,
): Promise<string> => {
  const home = join(dataDir, name)
  const found = lstatSync(home, { throwIfNoEntry: false })
  if (found?.isSymbolicLink()) await mkdir(readlinkSync(home), { recursive: true, mode: 0o700 })
  else if (found === undefined && (user.uid === undefined || canReach(dataDir, user))) {
    await mkdir(home, { mode: 0o700 }).catch(ignoreExisting)
  } else if (found === undefined) {
    const target = join(sharedFolder, `${elsewhere}-${randomBytes(6).toString('hex')}`)
    await mkdir(target, { recursive: true, mode: 0o700 })
    await chmod(sharedFolder, 0o755)
    await symlink(target, home).catch(async (error: NodeJS.ErrnoException) => {
      ignoreExisting(error)
      await rmdir(target)
    })
  }
  return realpathSync(home)
}
