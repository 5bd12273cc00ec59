/**
 * Access to the embedded PostgreSQL requires the password in the data directory's `postgres-password`, which only we
 * can read. An older server without one is migrated once; each step first checks whether it is done, and the last one
 * (`pg_hba.conf`) marks all as done, so a migration that is killed is simply repeated.
 */
import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto'
import { lstatSync } from 'node:fs'
import { lchown, lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { exec } from '../../lib/exec.ts'
import type { Log } from '../../lib/log.ts'
import { readIfThere } from '../../lib/whole-file.ts'
import { type DatabaseUser, formerUid, postgresEnv } from './binaries.ts'
import { type PostgresPlace, removeFormerSocketDir, replaceFile } from './place.ts'
import { clearStaleLocks, stopAt } from './process.ts'

/**
 * The verifier that PostgreSQL stores for a password, so that the password itself appears in no statement and no log.
 */
const verifierOf = (password: string): string => {
  const salt = randomBytes(16)
  const salted = pbkdf2Sync(password, salt, 4096, 32, 'sha256')
  const keyOf = (name: string): Buffer => createHmac('sha256', salted).update(name).digest()
  const stored = createHash('sha256').update(keyOf('Client Key')).digest('base64')
  return `SCRAM-SHA-256$4096:${salt.toString('base64')}$${stored}:${keyOf('Server Key').toString('base64')}`
}

const rules = '# Written by Slipway: everybody needs the password.\nlocal all all scram-sha-256\n'
const rulesOf = (data: string): string => join(data, 'pg_hba.conf')

/** Whether access is possible without the password, or the data still belongs to the former user. */
export const isOpen = async ({ data, user }: PostgresPlace): Promise<boolean> => {
  const found = lstatSync(data, { throwIfNoEntry: false })
  if (found === undefined) return false
  return (user.uid !== undefined && found.uid !== user.uid) || (await readIfThere(rulesOf(data))) !== rules
}

export const writeRules = (data: string, user: DatabaseUser): Promise<void> => replaceFile(rulesOf(data), rules, user)

/**
 * Changes the owner of a folder and of everything in it that belonged to `nobody`. Each folder comes before its
 * contents, so that its former owner can no longer put anything there. Links themselves change owner; files of other
 * users are left alone.
 */
const chownTree = async (path: string, { uid, gid }: Required<DatabaseUser>): Promise<void> => {
  const found = await lstat(path)
  if (found.uid === formerUid()) await lchown(path, uid, gid)
  else if (found.uid !== uid) return
  if (!found.isDirectory()) return
  for (const name of await readdir(path)) await chownTree(join(path, name), { uid, gid })
}

/** For a moment children of a killed server still hold the data. */
const mostTries = 25
const retryMs = 100

/** Runs a statement in a server that accepts no connections. */
const runSingleUser = async (bin: string, { data, user }: PostgresPlace, statement: string): Promise<void> => {
  const args = ['--single', '-D', data, 'postgres']
  const options = { env: postgresEnv, cwd: '/', input: `${statement}\n`, timeoutMs: 60_000, ...user }
  for (let tries = 1; ; tries += 1) {
    const { code, stderr } = await exec(join(bin, 'postgres'), args, options)
    if (code === 0 && !/\b(ERROR|FATAL):/.test(stderr)) return
    if (tries === mostTries) throw new Error(`the database's password cannot be set: ${stderr.trim().slice(-500)}`)
    await pause(retryMs)
  }
}

/** Stops the server and makes it require the password; the data is kept. Call it under the start lock. */
export const close = async (bin: string, place: PostgresPlace, log: Log): Promise<void> => {
  const { data, socketDir, user } = place
  await stopAt(place, log)
  if (user.uid !== undefined)
    for (const folder of [socketDir, data]) await chownTree(folder, user as Required<DatabaseUser>)
  await clearStaleLocks(place)
  await runSingleUser(bin, place, `alter role slipway password '${verifierOf(place.password)}'`)
  await removeFormerSocketDir(data)
  await writeRules(data, user)
}
