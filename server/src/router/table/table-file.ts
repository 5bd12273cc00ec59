/** The table on disk. A crash leaves either the old file or the new one, complete. */
import { open, readFile, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { AnyRoute } from '../router.ts'
import { checkRoutes } from './table.ts'

const syncFolder = async (path: string): Promise<void> => {
  const folder = await open(path)
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

export const saveRoutes = async (path: string, routes: readonly AnyRoute[]): Promise<void> => {
  const temporary = `${path}.new`
  const file = await open(temporary, 'w', 0o600)
  try {
    await file.writeFile(`${JSON.stringify({ routes }, null, 1)}\n`)
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(temporary, path)
  await syncFolder(dirname(path))
}

/**
 * [] if there is no file. An invalid one is moved to `<path>.broken`, and `onBroken` is called: an empty table that the
 * control plane fills again is better than a router that does not start.
 */
export const loadRoutes = async (path: string, onBroken: (error: unknown) => void): Promise<AnyRoute[]> => {
  try {
    const text = await readFile(path, 'utf8')
    return checkRoutes((JSON.parse(text) as { routes?: unknown }).routes)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    onBroken(error)
    await rename(path, `${path}.broken`)
    return []
  }
}
