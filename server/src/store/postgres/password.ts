/**
 * The password of the embedded PostgreSQL, in a file of the data directory that only we can read. Complete or absent,
 * whenever a process dies.
 */
import { randomBytes } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { createWhole, readIfThere } from '../../lib/whole-file.ts'

export const passwordFile = (dataDir: string): string => join(dataDir, 'postgres-password')

/**
 * The password of the data directory, created if there is none: complete or absent; of racing processes the first wins.
 */
export const ensurePassword = async (dataDir: string): Promise<string> => {
  const file = passwordFile(dataDir)
  for (;;) {
    const kept = (await readIfThere(file))?.trim()
    if (kept !== undefined && kept !== '') return kept
    if (kept === '') await rm(file, { force: true })
    await createWhole(file, `${randomBytes(24).toString('base64url')}\n`)
  }
}
