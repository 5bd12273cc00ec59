/**
 * The password of the embedded PostgreSQL, in a file of the data directory that only we can read. Complete or absent,
 * whenever a process dies.
 */
import { randomBytes } from 'node:crypto'
import { link, open, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'

export const passwordFile = (dataDir: string): string => join(dataDir, 'postgres-password')

const readIfThere = async (file: string): Promise<string | null> => {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

/**
 * The password of the data directory, created if there is none: complete or absent; of racing processes the first wins.
 */
export const ensurePassword = async (dataDir: string): Promise<string> => {
  const file = passwordFile(dataDir)
  for (;;) {
    const kept = (await readIfThere(file))?.trim()
    if (kept !== undefined && kept !== '') return kept
    if (kept === '') await rm(file, { force: true })
    const draft = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`
    const handle = await open(draft, 'wx', 0o600)
    try {
      await handle.writeFile(`${randomBytes(24).toString('base64url')}\n`)
      await handle.sync()
      await link(draft, file).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'EEXIST') throw error
      })
    } finally {
      await handle.close()
      await rm(draft, { force: true })
    }
  }
}
