/**
 * A data directory that was copied to another place, or whose files were given to root: its database is put where its
 * user can reach it, and given to that user. Promises that no server works on what is moved, and that a move that was
 * killed loses nothing: the next start resumes it.
 */
import { randomBytes } from 'node:crypto'
import { lstatSync, readlinkSync } from 'node:fs'
import { chmod, cp, lchown, lstat, mkdir, readdir, rename, rm, symlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { canReach, ignoreExisting, sharedFolder } from '../../lib/placed-folder.ts'
import type { DatabaseUser } from './binaries.ts'
import { isServer, readPid } from './server-pid.ts'

/** Beside the database's folder while it is moved: a link to where it goes. */
const movingName = 'postgres.moving'

const isFolder = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true

const isThere = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined

const serverRuns = (folder: string): boolean => {
  const data = join(folder, 'data')
  const pid = readPid(join(data, 'postmaster.pid'))
  return pid !== undefined && isServer(pid, data)
}

/** To another disk too. After a kill in between the source is whole, or the target is. */
const move = async (source: string, target: string): Promise<void> => {
  await rm(target, { recursive: true, force: true })
  await rename(source, target).catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EXDEV') throw error
    const half = `${target}.half`
    await rm(half, { recursive: true, force: true })
    const filter = (path: string): boolean => !lstatSync(path).isSocket()
    await cp(source, half, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true, filter })
    await giveCopy(source, half)
    await rename(half, target)
    const left = `${source}.copied`
    await rename(source, left)
    await rm(left, { recursive: true, force: true })
  })
}

/** `cp` of Node does not keep owners. */
const giveCopy = async (source: string, copy: string): Promise<void> => {
  if (!isThere(copy)) return
  const { uid, gid, mode } = await lstat(source)
  if (isFolder(source)) for (const name of await readdir(source)) await giveCopy(join(source, name), join(copy, name))
  await lchown(copy, uid, gid)
  if (!(await lstat(copy)).isSymbolicLink()) await chmod(copy, mode & 0o7777)
}

/**
 * A real folder `postgres` that its user cannot reach, which `cp -aL` makes of a link to /var/lib/slipway, becomes that
 * link again. One that a server runs in is left: its user does reach it.
 */
export const putWhereReached = async (dataDir: string, user: DatabaseUser): Promise<void> => {
  if (user.uid === undefined) return
  const [home, link] = [join(dataDir, 'postgres'), join(dataDir, movingName)]
  const isMoving = isThere(link)
  if (!isMoving && (!isFolder(home) || canReach(dataDir, user) || serverRuns(home))) return
  if (!isMoving) {
    const target = join(sharedFolder, `database-${randomBytes(6).toString('hex')}`)
    await symlink(target, link).catch(ignoreExisting)
  }
  const target = readlinkSync(link)
  await mkdir(dirname(target), { recursive: true, mode: 0o755 })
  await chmod(dirname(target), 0o755)
  if (isFolder(home)) await move(home, target)
  await rename(link, home)
}

/** Contents first: until the folder itself is given away, no other user can put anything into it. */
const giveAway = async (path: string, user: Required<DatabaseUser>): Promise<void> => {
  const found = await lstat(path)
  if (found.isDirectory()) for (const name of await readdir(path)) await giveAway(join(path, name), user)
  if (found.uid === 0 || found.uid === user.uid) await lchown(path, user.uid, user.gid)
}

/**
 * A database that belongs to root, as after `chown -R root`: PostgreSQL refuses to run as root, so everything in
 * `folder` is given to its user. That user could put nothing there meanwhile: the folder is root's until the end.
 */
export const takeFromRoot = async (folder: string, user: DatabaseUser): Promise<void> => {
  const found = lstatSync(join(folder, 'data'), { throwIfNoEntry: false })
  if (user.uid === undefined || found === undefined || found.uid === user.uid) return
  const { uid } = lstatSync(folder)
  if (uid !== 0 && found.uid !== 0) return
  if (uid !== 0) await lchown(folder, 0, 0)
  await chmod(folder, 0o700)
  await giveAway(folder, user as Required<DatabaseUser>)
}
