/**
 * Where the embedded PostgreSQL of a data directory lives: folders, socket and owner, made so that both we and the
 * user that PostgreSQL runs as can reach them. Refuses to know whether a server runs. Every step looks first whether it
 * is done, so a start that was killed is simply repeated.
 */
import { createHash, randomBytes } from 'node:crypto'
import { lstatSync, realpathSync, statSync } from 'node:fs'
import { chmod, chown, lchown, mkdir, rename, rmdir, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { canReach, ignoreExisting, placeFolder } from '../lib/placed-folder.ts'
import { type DatabaseUser, databaseUser, formerUid } from './postgres-binaries.ts'
import { ensurePassword } from './postgres-password.ts'

/** Where the server of one data directory lives. */
export interface Place {
  data: string
  socketDir: string
  logFile: string
  user: DatabaseUser
  /** Of the one role there is. */
  password: string
}

export const socketName = '.s.PGSQL.5432'
/** sun_path holds 108 bytes with its closing zero, on BSD and macOS 104. */
const longestSocketDir = 103 - socketName.length - 1

/** Opens our own folder to the database's user alone, for passing through. */
const letThrough = async (dataDir: string, user: DatabaseUser): Promise<void> => {
  if (canReach(dataDir, user) || !canReach(dirname(dataDir), user)) return
  await chown(dataDir, -1, user.gid!)
  await chmod(dataDir, (statSync(dataDir).mode & 0o777) | 0o010)
}

/** The folder that holds everything of the server: `<dataDir>/postgres`, or what stands there as a link. */
const settle = async (dataDir: string, user: DatabaseUser): Promise<string> => {
  const folder = await placeFolder(dataDir, 'postgres', 'database', user)
  if (user.uid !== undefined) await chown(folder, user.uid, user.gid!)
  return folder
}

/** Puts a file of the database's in the place of the one there, whole or not at all; a link there is replaced, too. */
export const replaceFile = async (file: string, text: string, { uid, gid }: DatabaseUser): Promise<void> => {
  const draft = `${file}.${randomBytes(4).toString('hex')}`
  await writeFile(draft, text, { flag: 'wx', mode: 0o600 })
  if (uid !== undefined) await lchown(draft, uid, gid!)
  await rename(draft, file)
}

const shortName = (text: string): string =>
  `/tmp/slipway-${createHash('sha256').update(text).digest('hex').slice(0, 16)}`

/** What an earlier version has left in /tmp; nothing where it needed none. */
export const removeFormerSocketDir = (data: string): Promise<void> =>
  rmdir(shortName(dirname(data))).catch(() => undefined)

/**
 * In the data directory, or where that path is too long for a socket, in /tmp under a name made from it and its owner.
 */
const placeSocket = async (folder: string, user: DatabaseUser): Promise<string> => {
  const near = join(folder, 'run')
  const owner = user.uid ?? process.getuid?.() ?? 0
  const socketDir = Buffer.byteLength(near) <= longestSocketDir ? near : shortName(`${folder}\0${owner}`)
  await mkdir(socketDir, { mode: 0o700 }).then(
    () => (user.uid === undefined ? undefined : lchown(socketDir, user.uid, user.gid!)),
    ignoreExisting,
  )
  // Anyone may have put something under that name in /tmp.
  const { uid, mode } = lstatSync(socketDir)
  const isKnown = uid === owner || uid === 0 || (uid === formerUid() && socketDir === near)
  const isOurs = lstatSync(socketDir).isDirectory() && isKnown && (mode & 0o077) === 0
  if (!isOurs) throw new Error(`${socketDir} belongs to another user: remove it or choose another SLIPWAY_DATA_DIR`)
  if (user.uid !== undefined && uid !== user.uid) await lchown(socketDir, user.uid, user.gid!)
  return socketDir
}

/**
 * A server only runs as the owner of its data: whoever that is, when root starts what another user made. Data of
 * `nobody`, which other programs run as, were made by an earlier version and are handed over.
 */
const ownerOf = (data: string): DatabaseUser | undefined => {
  if (process.getuid?.() !== 0) return undefined
  const { uid, gid } = statSync(data, { throwIfNoEntry: false }) ?? { uid: 0, gid: 0 }
  return uid === 0 || uid === formerUid() ? undefined : { uid, gid }
}

/** Makes all of it that is missing. Rejects when the socket's folder is somebody else's. */
export const locate = async (dataDir: string): Promise<Place> => {
  const user = ownerOf(join(dataDir, 'postgres', 'data')) ?? (await databaseUser())
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  const root = realpathSync(resolve(dataDir))
  if (user.uid !== undefined) await letThrough(root, user)
  const folder = await settle(root, user)
  return {
    data: join(folder, 'data'),
    socketDir: await placeSocket(folder, user),
    logFile: join(folder, 'postgres.log'),
    user,
    password: await ensurePassword(root),
  }
}

/** For the `pg` client: user slipway, database postgres, through the socket. It holds the password. */
export const connectionStringOf = ({ socketDir, password }: Place): string =>
  `postgresql://slipway:${password}@localhost/postgres?host=${encodeURIComponent(socketDir)}`
