/**
 * System users that our programs run as, so that neither root nor a user shared with other programs is at risk. Created
 * when first needed; only root can do that, and without root everything runs as the current user.
 */
import { readFile } from 'node:fs/promises'
import { exec } from './exec.ts'

/** The options for a child process. Empty if we are not root: it then runs as we do. */
export interface SystemUser {
  uid?: number
  gid?: number
}

const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' }
const timeoutMs = 10_000

const readUsers = async (): Promise<string[][]> =>
  (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'))

const find = async (name: string): Promise<SystemUser | null> => {
  const found = (await readUsers()).find(([user]) => user === name)
  return found === undefined ? null : { uid: Number(found[2]), gid: Number(found[3]) }
}

/** For sentences; the number where it has no name here. */
export const userName = async (uid: number): Promise<string> => {
  const users = await readUsers().catch(() => [])
  return users.find((user) => user[2] === String(uid))?.[0] ?? String(uid)
}

/** The two programs that distributions provide for this. */
const ways = (name: string): [file: string, args: string[]][] => [
  [
    'useradd',
    [
      '--system',
      '--user-group',
      '--no-create-home',
      '--home-dir',
      '/nonexistent',
      '--shell',
      '/usr/sbin/nologin',
      name,
    ],
  ],
  ['adduser', ['-S', '-D', '-H', '-h', '/nonexistent', '-s', '/sbin/nologin', name]],
]

/** Rejects if we are root and the user can neither be found nor created. Concurrent calls get the same user. */
export const ensureSystemUser = async (name: string): Promise<SystemUser> => {
  if (process.getuid?.() !== 0) return {}
  const known = await find(name)
  if (known !== null) return known
  let said = ''
  for (const [file, args] of ways(name)) {
    const result = await exec(file, args, { env, timeoutMs }).catch((error: Error) => ({ stderr: error.message }))
    said ||= result.stderr.trim()
    const made = await find(name)
    if (made !== null) return made
  }
  throw new Error(`the user ${name} cannot be created: ${said.slice(0, 300)}`)
}
