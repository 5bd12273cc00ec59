/**
 * Who gets into the embedded PostgreSQL: whoever knows the password in the data directory's `postgres-password`, which
 * only we can read. A server made before there was one is brought here once; each step looks first whether it is done, and
 * the last one (`pg_hba.conf`) says that all are, so that one who is killed in between is simply repeated.
 */
import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto'
import { lstatSync } from 'node:fs'
import { lchown, lstat, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { exec } from '../lib/exec.ts'
import type { Log } from '../lib/log.ts'
import { type DatabaseUser, formerUid, postgresEnv } from './postgres-binaries.ts'
import { type Place, removeFormerSocketDir, replaceFile } from './postgres-place.ts'
import { clearStaleLocks, stopAt } from './postgres-process.ts'

const readRules = async (file: string): Promise<string | null> => {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

/** What PostgreSQL keeps of a password: so the password itself stands in no statement and no log. */
const verifierOf = (password: string): string => {
  const salt = randomBytes(16)
  const salted = pbkdf2Sync(password, salt, 4096, 32, 'sha256')
  const keyOf = (name: string): Buffer => createHmac('sha256', salted).update(name).digest()
  const stored = createHash('sha256').update(keyOf('Client Key')).digest('base64')
  return `SCRAM-SHA-256$4096:${salt.toString('base64')}$${stored}:${keyOf('Server Key').toString('base64')}`
}

const rules = '# Written by Slipway: everybody needs the password.\nlocal all all scram-sha-256\n'
const rulesOf = (data: string): string => join(data, 'pg_hba.conf')

/** Whether somebody could get in without the password, or the data belong to the user that they once did. */
export const isOpen = async ({ data, user }: Place): Promise<boolean> => {
  const found = lstatSync(data, { throwIfNoEntry: false })
  if (found === undefined) return false
  return (user.uid !== undefined && found.uid !== user.uid) || (await readRules(rulesOf(data))) !== rules
}

export const writeRules = (data: string, user: DatabaseUser): Promise<void> => replaceFile(rulesOf(data), rules, user)

/**
 * Hands over a folder with all that was `nobody`'s in it. Each folder before what is in it: from then on its former owner
 * can put nothing there. Links are handed over themselves, what belongs to anybody else is left.
 */
const handOver = async (path: string, { uid, gid }: Required<DatabaseUser>): Promise<void> => {
  const found = await lstat(path)
  if (found.uid === formerUid()) await lchown(path, uid, gid)
  else if (found.uid !== uid) return
  if (!found.isDirectory()) return
  for (const name of await readdir(path)) await handOver(join(path, name), { uid, gid })
}

/** For a moment children of a killed server still hold the data. */
const mostTries = 25
const retryMs = 100

/** Runs a statement in a server that nobody else reaches. */
const runAlone = async (bin: string, { data, user }: Place, statement: string): Promise<void> => {
  const args = ['--single', '-D', data, 'postgres']
  const options = { env: postgresEnv, cwd: '/', input: `${statement}\n`, timeoutMs: 60_000, ...user }
  for (let tries = 1; ; tries += 1) {
    const { code, stderr } = await exec(join(bin, 'postgres'), args, options)
    if (code === 0 && !/\b(ERROR|FATAL):/.test(stderr)) return
    if (tries === mostTries) throw new Error(`the database's password cannot be set: ${stderr.trim().slice(-500)}`)
    await pause(retryMs)
  }
}

/** Ends the server, and makes it one that asks for the password; its data stay. To be called under the start lock. */
export const close = async (bin: string, place: Place, log: Log): Promise<void> => {
  const { data, socketDir, user } = place
  await stopAt(place, log)
  if (user.uid !== undefined)
    for (const folder of [socketDir, data]) await handOver(folder, user as Required<DatabaseUser>)
  await clearStaleLocks(place)
  await runAlone(bin, place, `alter role slipway password '${verifierOf(place.password)}'`)
  await removeFormerSocketDir(data)
  await writeRules(data, user)
}
