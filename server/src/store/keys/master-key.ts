/**
 * The file with the master keys: one base64 key of 32 bytes a line, `#` begins a comment. The first key encrypts, all
 * decrypt. A new file is linked into place when complete, so a process that dies here leaves either no key or a
 * complete one.
 */
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { createWhole, readIfThere, replaceWhole } from '../../lib/whole-file.ts'

export interface MasterKey {
  /** Derived from the key itself, so that a record says which key it needs. */
  id: string
  key: Buffer
}

const keyId = (key: Buffer): string =>
  createHash('sha256').update('slipway master key').update(key).digest('base64url').slice(0, 10)

const parseLine = (line: string, file: string): MasterKey => {
  const key = /^[A-Za-z0-9+/_-]{43}=?$/.test(line) ? Buffer.from(line, 'base64') : Buffer.alloc(0)
  if (key.length !== 32) throw new Error(`the master key file ${file} has a line that is not a base64 key of 32 bytes`)
  return { id: keyId(key), key }
}

/** The keys of the file, the encrypting one first; null when there is no file. Throws one clear line on a bad file. */
export const readMasterKeys = async (file: string): Promise<MasterKey[] | null> => {
  const text = await readIfThere(file).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`the master key file ${file} cannot be read (${error.code})`, { cause: error })
  })
  if (text === null) return null
  const lines = text.split('\n').map((line) => line.replace(/#.*$/, '').trim())
  const keys = lines.filter((line) => line !== '').map((line) => parseLine(line, file))
  if (keys.length === 0) throw new Error(`the master key file ${file} has no key`)
  return keys
}

const newLine = (): string => `${randomBytes(32).toString('base64')}\n`

/** Makes the file with one new key, mode 0600; leaves a file that another process has made meanwhile. */
export const createMasterKey = async (file: string): Promise<void> => {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 })
  await createWhole(file, newLine())
}

export const addMasterKey = async (file: string): Promise<void> =>
  replaceWhole(file, newLine() + (await readFile(file, 'utf8')))
