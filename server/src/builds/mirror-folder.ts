/** A bare repository on disk as a mirror: made whole or not at all, freed of what a killed git left, measured. */
import { mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Git } from './git-process.ts'

/** Strongest of all attributes: archives hold what a checkout would. */
const attributes = '* -export-ignore -export-subst\n'

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  )

/** Makes the bare repository `path` unless it is there. */
export const ensureMirror = async (git: Git, path: string): Promise<void> => {
  if (await exists(path)) return
  await mkdir(join(path, '..'), { recursive: true })
  const fresh = await mkdtemp(`${path}.new-`)
  const { code, stderr } = await git.run(['init', '--quiet', '--bare', '--template=', fresh])
  if (code !== 0) throw new Error(`git init failed: ${stderr.trim()}`)
  await mkdir(join(fresh, 'info'), { recursive: true })
  await writeFile(join(fresh, 'info/attributes'), attributes)
  try {
    await rename(fresh, path)
  } catch (error) {
    await rm(fresh, { recursive: true, force: true })
    if (!(await exists(path))) throw error
  }
}

/** Removes locks and half packs last touched before `before`. Only for who is alone in the mirror. */
export const clearLeftovers = async (path: string, before: Date): Promise<void> => {
  const entries = await readdir(path, { recursive: true }).catch(() => [])
  const leftovers = entries.filter((entry) => entry.endsWith('.lock') || /(^|\/)tmp_[^/]*$/.test(entry))
  for (const entry of leftovers) {
    const found = await stat(join(path, entry)).catch(() => null)
    if (found !== null && found.mtime < before) await rm(join(path, entry), { recursive: true, force: true })
  }
}

/** Bytes of its objects. */
export const mirrorSize = async (path: string): Promise<number> => {
  const folder = join(path, 'objects')
  const entries = await readdir(folder, { recursive: true }).catch(() => [])
  const sizes = entries.map((entry) =>
    stat(join(folder, entry)).then(
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
