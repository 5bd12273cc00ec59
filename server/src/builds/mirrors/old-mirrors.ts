/**
 * Removes mirrors that nothing has used for a while, and those of organizations that do not exist. All of them can be
 * fetched again. One that is in use is left alone: its last use is looked at again once it is locked.
 */
import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type KeyedLock, withLock } from '../../lib/concurrency/keyed-lock.ts'
import { ownerKey, ownerOf } from '../git/mirror-room.ts'
import type { Git } from '../git/process.ts'

/** An organization may be newer than the list that its caller has read. */
const newMs = 3_600_000
const mirrorName = /^[0-9a-f]{32}-/

interface OldMirrorsParts {
  git: Pick<Git, 'remove'>
  folder: string
  lock: KeyedLock
}

const idleMsOf = async (path: string): Promise<number> => {
  const found = await lstat(path).catch(() => null)
  return found === null ? 0 : Date.now() - found.mtimeMs
}

/** Resolves to the number of mirrors that are gone. */
export const removeOldMirrors = async (
  { git, folder, lock }: OldMirrorsParts,
  organizationIds: readonly string[],
  idleMs: number,
  signal: AbortSignal,
): Promise<number> => {
  const owners = new Set(organizationIds.map(ownerKey))
  let gone = 0
  for (const entry of (await readdir(folder)).filter((name) => mirrorName.test(name))) {
    const path = join(folder, entry)
    const mostMs = owners.has(ownerOf(entry)) ? idleMs : newMs
    if ((await idleMsOf(path)) <= mostMs) continue
    await withLock(lock, path, signal, async () => {
      if ((await idleMsOf(path)) <= mostMs) return
      await git.remove([path])
      gone += 1
    })
  }
  return gone
}
