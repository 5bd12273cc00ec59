/**
 * Where the embedded PostgreSQL of a data directory lives: folders, socket and owner, created so that both we and
 * PostgreSQL's user can reach them. Does not know whether a server runs. Every step first checks whether it is done, so
 * a start that was killed is simply repeated.
 */
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, lstatSync, realpathSync, statSync } from 'node:fs'
import { chmod, chown, lchown, mkdir, rename, rmdir, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { canReach, ignoreExisting, placeFolder } from '../../lib/placed-folder.ts'
import { type DatabaseUser, databaseUser, formerUid } from './binaries.ts'
import { putWhereReached, takeFromRoot } from './copied.ts'
import { ensurePassword } from './password.ts'

/** Where the server of one data directory lives. */
export interface PostgresPlace {
  data: string
  socketDir: string
  logFile: string
  user: DatabaseUser
  /** The password of the only role. */
  password: string
}

export const socketName = '.s.PGSQL.5432'
/** sun_path has 108 bytes including the terminating zero, on BSD and macOS 104. */
const longestSocketDir = 103 - socketName.length - 1

/** Lets only the database's user traverse our own folder. */
const allowTraversal = async (dataDir: string, user: DatabaseUser): Promise<void> => {
  if (canReach(dataDir, user) || !canReach(dirname(dataDir), user)) return
  await chown(dataDir, -1, user.gid!)
  await chmod(dataDir, (statSync(dataDir).mode & 0o777) | 0o010)
}

/** The folder with everything of the server: `<dataDir>/postgres`, or the target if that is a link. */
const settle = async (dataDir: string, user: DatabaseUser): Promise<string> => {
  const folder = await placeFolder(dataDir, 'postgres', 'database', user)
  if (user.uid !== undefined) await chown(folder, user.uid, user.gid!)
  return folder
}

/** Replaces a file of the database atomically; also replaces a link. */
export const replaceFile = async (file: string, text: string, { uid, gid }: DatabaseUser): Promise<void> => {
  const draft = `${file}.${randomBytes(4).toString('hex')}`
  await writeFile(draft, text, { flag: 'wx', mode: 0o600 })
  if (uid !== undefined) await lchown(draft, uid, gid!)
  await rename(draft, file)
}

const shortName = (text: string): string =>
  `/tmp/slipway-${createHash('sha256').update(text).digest('hex').slice(0, 16)}`

/** Removes the folder that an earlier version left in /tmp, if any. */
export const removeFormerSocketDir = (data: string): Promise<void> =>
  rmdir(shortName(dirname(data))).catch(() => undefined)

/**
 * In the data directory or, if that path is too long for a socket, in /tmp under a name derived from it and its owner.
 */
const placeSocket = async (folder: string, user: DatabaseUser): Promise<string> => {
  const near = join(folder, 'run')
  const owner = user.uid ?? process.getuid?.() ?? 0
  const socketDir = Buffer.byteLength(near) <= longestSocketDir ? near : shortName(`${folder}\0${owner}`)
  await mkdir(socketDir, { mode: 0o700 }).then(
    () => (user.uid === undefined ? undefined : lchown(socketDir, user.uid, user.gid!)),
    ignoreExisting,
  )
  // Anyone may have created something with that name in /tmp.
  const { uid, mode } = lstatSync(socketDir)
  const isKnown = uid === owner || uid === 0 || (uid === formerUid() && socketDir === near)
  const isOurs = lstatSync(socketDir).isDirectory() && isKnown && (mode & 0o077) === 0
  if (!isOurs) throw new Error(`${socketDir} belongs to another user: remove it or choose another SLIPWAY_DATA_DIR`)
  if (user.uid !== undefined && uid !== user.uid) await lchown(socketDir, user.uid, user.gid!)
  return socketDir
}

/**
 * A server can run only as the owner of its data, even if root starts what another user created. Data of the user
 * `nobody`, which other programs run as too, comes from an earlier version and changes owner.
 */
const ownerOf = (data: string): DatabaseUser | undefined => {
  if (process.getuid?.() !== 0) return undefined
  const { uid, gid } = statSync(data, { throwIfNoEntry: false }) ?? { uid: 0, gid: 0 }
  return uid === 0 || uid === formerUid() ? undefined : { uid, gid }
}

/** Creates what is missing. Rejects if the socket's folder belongs to another user. */
export const locate = async (dataDir: string): Promise<PostgresPlace> => {
  const user = ownerOf(join(dataDir, 'postgres', 'data')) ?? (await databaseUser())
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  const root = realpathSync(resolve(dataDir))
  if (user.uid !== undefined) await allowTraversal(root, user)
  await putWhereReached(root, user)
  if (existsSync(join(root, 'postgres'))) await takeFromRoot(realpathSync(join(root, 'postgres')), user)
  const folder = await settle(root, user)
  return {
    data: join(folder, 'data'),
    socketDir: await placeSocket(folder, user),
    logFile: join(folder, 'postgres.log'),
    user,
    password: await ensurePassword(root),
  }
}

/** For the `pg` client: user slipway, database postgres, through the socket. Contains the password. */
export const connectionStringOf = ({ socketDir, password }: PostgresPlace): string =>
  `postgresql://slipway:${password}@localhost/postgres?host=${encodeURIComponent(socketDir)}`
