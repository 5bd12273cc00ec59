/**
 * A bare repository on disk as a mirror: created atomically, cleaned of leftovers of a killed git, measured. It
 * belongs to git's user, so everything in it is created and removed by that user; we only read, and never follow a
 * link.
 */
import { randomBytes } from 'node:crypto'
import { lstat, lutimes, readdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import type { Git } from './process.ts'

const isFolder = (path: string): Promise<boolean> =>
  lstat(path).then(
    (found) => found.isDirectory(),
    () => false,
  )

export const ensureMirror = async (git: Git, path: string, template: string): Promise<void> => {
  if (await isFolder(path)) return
  const fresh = `${path}.new-${randomBytes(6).toString('hex')}`
  const { code, stderr } = await git.run(['init', '--quiet', '--bare', `--template=${template}`, fresh])
  if (code !== 0) throw new Error(`git init failed: ${stderr.trim()}`)
  try {
    await rename(fresh, path)
  } catch (error) {
    await git.remove([fresh])
    if (!(await isFolder(path))) throw error
  }
}

/** Marks it as used: unused mirrors are removed after some weeks. */
export const noteUse = (path: string): Promise<void> => {
  const now = new Date()
  return lutimes(path, now, now)
}

/** Removes locks and half packs last touched before `before`. Only with exclusive access to the mirror. */
export const clearLeftovers = async (git: Git, path: string, before: Date): Promise<void> => {
  const entries = await readdir(path, { recursive: true }).catch(() => [])
  const leftovers = entries.filter((entry) => entry.endsWith('.lock') || /(^|\/)tmp_[^/]*$/.test(entry))
  const old: string[] = []
  for (const entry of leftovers) {
    const found = await lstat(join(path, entry)).catch(() => null)
    if (found !== null && found.mtime < before) old.push(join(path, entry))
  }
  await git.remove(old)
}

export const mirrorSize = async (path: string): Promise<number> => {
  const folder = join(path, 'objects')
  const entries = await readdir(folder, { recursive: true }).catch(() => [])
  const sizes = entries.map((entry) =>
    lstat(join(folder, entry)).then(
      (found) => found.size,
      () => 0,
    ),
  )
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}

export const countPacks = async (path: string): Promise<number> => {
  const entries = await readdir(join(path, 'objects/pack')).catch(() => [])
  return entries.filter((entry) => entry.endsWith('.pack')).length
}
