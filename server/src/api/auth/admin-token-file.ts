/** Files in the data directory that hold this server's id and the admin token it generated. */
import { randomBytes } from 'node:crypto'
import { link, open, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { newId } from '../../lib/ids.ts'

const readIfThere = async (path: string): Promise<string | null> => {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

/** Written atomically and readable only by us; `place` moves the draft to its final path. */
const writeWhole = async (path: string, text: string, place: (draft: string) => Promise<void>): Promise<void> => {
  const draft = `${path}.${randomBytes(4).toString('hex')}`
  const handle = await open(draft, 'wx', 0o600)
  try {
    await handle.writeFile(`${text}\n`)
    await handle.sync()
    await place(draft)
  } finally {
    await handle.close()
    await rm(draft, { force: true })
  }
}

export const tokenFileOf = (dataDir: string): string => join(dataDir, 'admin-token')

export const readTokenFile = (dataDir: string): Promise<string | null> => readIfThere(tokenFileOf(dataDir))

export const writeTokenFile = (dataDir: string, text: string): Promise<void> =>
  writeWhole(tokenFileOf(dataDir), text, (draft) => rename(draft, tokenFileOf(dataDir)))

/** Distinguishes this data directory from all others on the same database; created on first use. */
export const readServerId = async (dataDir: string): Promise<string> => {
  const file = join(dataDir, 'server-id')
  for (;;) {
    const kept = await readIfThere(file)
    if (kept !== null) return kept
    await writeWhole(file, newId(), (draft) =>
      link(draft, file).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'EEXIST') throw error
      }),
    )
  }
}
