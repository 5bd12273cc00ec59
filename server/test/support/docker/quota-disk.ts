/** A disk of the test's own, in a file, whose folders can have quotas: Docker limits the volumes that it keeps there. */
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exec } from '../../../src/lib/exec.ts'

export interface QuotaDisk {
  folder: string
  /** Nothing may use it any more. */
  close(): Promise<void>
}

const sizeBytes = 4 * 2 ** 30

const run = async (program: string, ...args: string[]): Promise<string | null> => {
  const env = { PATH: `${process.env.PATH ?? ''}:/usr/sbin:/sbin` }
  const failed = (error: Error) => ({ code: 1, stderr: error.message })
  const { code, stderr } = await exec(program, args, { env, timeoutMs: 30_000 }).catch(failed)
  return code === 0 ? null : `${program}: ${stderr.trim().split('\n')[0]}`
}

/** Or why this machine cannot have one, in a sentence. */
export const mountQuotaDisk = async (): Promise<QuotaDisk | string> => {
  if (process.getuid?.() !== 0) return 'a disk with quotas needs root'
  const base = mkdtempSync(join(tmpdir(), 'quota-disk-'))
  const [image, folder] = [join(base, 'image'), join(base, 'disk')]
  mkdirSync(folder)
  writeFileSync(image, '')
  truncateSync(image, sizeBytes)
  const missing = (await run('mkfs.xfs', '-q', image)) ?? (await run('mount', '-o', 'loop,pquota', image, folder))
  const remove = () => rmSync(base, { recursive: true, force: true })
  if (missing === null)
    return {
      folder,
      async close() {
        const busy = await run('umount', folder)
        if (busy !== null) throw new Error(busy)
        remove()
      },
    }
  remove()
  return `this machine cannot mount XFS with quotas: ${missing}`
}
