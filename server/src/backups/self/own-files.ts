/**
 * The files of a data directory that nothing can make again: settings, master keys, the operator's token, and what this
 * server is. Everything else in it is the database's, or is made again: mirrors of git, routes, addresses, logs.
 */
import { mkdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { replaceWhole } from '../../lib/whole-file.ts'
import type { FileName } from './manifest.ts'

export interface OwnFile {
  name: FileName
  bytes: Buffer
}

const mostBytes = 1 << 20

const readSmall = async (path: string): Promise<Buffer | null> => {
  const bytes = await readFile(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw new Error(`${path} cannot be read (${error.code ?? error.message})`)
  })
  if (bytes !== null && bytes.length > mostBytes) throw new Error(`${path} is larger than ${mostBytes} bytes`)
  return bytes
}

/** The key file may be anywhere; without it no secret could be opened, so it must be there. */
export const readOwnFiles = async (dataDir: string, masterKeyFile: string): Promise<OwnFile[]> => {
  const places: [FileName, string][] = [
    ['slipway.env', join(dataDir, 'slipway.env')],
    ['keys/master', masterKeyFile],
    ['admin-token', join(dataDir, 'admin-token')],
    ['server-id', join(dataDir, 'server-id')],
    ['runtime', join(dataDir, 'runtime')],
  ]
  const found = await Promise.all(places.map(async ([name, path]) => ({ name, path, bytes: await readSmall(path) })))
  if (found.some(({ name, bytes }) => name === 'keys/master' && bytes === null))
    throw new Error(`the master key file ${masterKeyFile} is missing`)
  return found.flatMap(({ name, bytes }) => (bytes === null ? [] : [{ name, bytes }]))
}

/** Settings of the first machine that do not fit the second: they become comments. */
const replaced = ['SLIPWAY_MASTER_KEY_FILE', 'DATABASE_URL']

/**
 * The settings for the restored data directory, whose key is in it, and whose database is the given one or its own. Pure.
 */
export const settingsAfterRestore = (text: string, databaseUrl: string | undefined): string => {
  const lines = (text === '' ? [] : text.replace(/\n$/, '').split('\n')).map((line) =>
    replaced.some((name) => new RegExp(`^\\s*${name}\\s*=`).test(line)) ? `# before the restore: ${line}` : line,
  )
  if (databaseUrl !== undefined) lines.push(`DATABASE_URL=${databaseUrl}`)
  return `${lines.join('\n')}\n`
}

/** Each file is whole or absent, and only we can read it. */
export const writeOwnFiles = async (
  dataDir: string,
  files: readonly OwnFile[],
  databaseUrl: string | undefined,
): Promise<void> => {
  const settings = files.find(({ name }) => name === 'slipway.env')?.bytes.toString('utf8')
  const others = files.filter(({ name }) => name !== 'slipway.env')
  for (const { name, bytes } of others) {
    const path = join(dataDir, name)
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    await replaceWhole(path, bytes.toString('utf8'))
  }
  if (settings === undefined && databaseUrl === undefined) return
  await replaceWhole(join(dataDir, 'slipway.env'), settingsAfterRestore(settings ?? '', databaseUrl))
}

/** `NAME=value` of settings whose value is a path: those files are not in a backup. Pure. */
export const pathsInSettings = (text: string): { name: string; path: string }[] =>
  text.split('\n').flatMap((line) => {
    const [, name, path] = /^\s*([A-Z_0-9]+)\s*=\s*["']?(\/[^"'\s]*)["']?\s*$/.exec(line) ?? []
    return name === undefined || replaced.includes(name) ? [] : [{ name, path: path! }]
  })

const notOfTheServer = ['SLIPWAY_BACKUP_PASSPHRASE', 'SLIPWAY_DATA_DIR']

/** Names of the settings in an environment: they are in no file, so a restored server does not have them. Pure. */
export const settingsInEnvironment = (env: Readonly<Record<string, string | undefined>>): string[] =>
  Object.keys(env)
    .filter(
      (name) => /^(SLIPWAY_[A-Z_0-9]{1,70}|DATABASE_URL|DOCKER_HOST)$/.test(name) && !notOfTheServer.includes(name),
    )
    .sort()
    .slice(0, 200)
