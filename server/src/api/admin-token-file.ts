/** Files of the data directory that say which server this is, and what the token is that it made. */
import { randomBytes } from 'node:crypto'
import { link, open, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { newId } from '../lib/ids.ts'

const readIfThere = async (path: string): Promise<string | null> => {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

/** Whole or not at all, for our own eyes; `place` puts the draft where it belongs. */
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

/** Tells this data directory from every other on the same database; made when it is first asked for. */
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
