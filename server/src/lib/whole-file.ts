/** Small files that are complete or absent, whenever a process dies, and that only we can read. */
import { randomBytes } from 'node:crypto'
import { link, open, readFile, rename, rm } from 'node:fs/promises'
import { ignoreExisting } from './placed-folder.ts'

export const readIfThere = async (file: string): Promise<string | null> => {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

/** A draft next to the file, synced to disk before `place` moves it to its final path. */
const writeDraft = async (file: string, text: string, place: (draft: string) => Promise<void>): Promise<void> => {
  const draft = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`
  const handle = await open(draft, 'wx', 0o600)
  try {
    await handle.writeFile(text)
    await handle.sync()
    await place(draft)
  } finally {
    await handle.close()
    await rm(draft, { force: true })
  }
}

/** Leaves a file that another process has made meanwhile. */
export const createWhole = (file: string, text: string): Promise<void> =>
  writeDraft(file, text, (draft) => link(draft, file).catch(ignoreExisting))

export const replaceWhole = (file: string, text: string): Promise<void> =>
  writeDraft(file, text, (draft) => rename(draft, file))
