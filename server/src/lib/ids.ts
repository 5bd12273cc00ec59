import { createHash, randomUUID } from 'node:crypto'

/**
 * A random UUID (version 4). Not a time-ordered one: the first eight digits identify a service in other services'
 * variable names, and services created within a minute of each other would share them.
 */
export const newId = (): string => randomUUID()

/** A UUID (version 8) that is always the same for the same words. */
export const idOf = (...words: readonly string[]): string => {
  const bytes = createHash('sha256').update(words.join(' ')).digest().subarray(0, 16)
  bytes[6] = 0x80 | (bytes[6]! & 0x0f)
  bytes[8] = 0x80 | (bytes[8]! & 0x3f)
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

export const isUuid = (text: string): boolean => uuid.test(text)
