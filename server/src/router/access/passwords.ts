/** Whether a password has a hash, compared in constant time. */
import { createHash, hash as digest, timingSafeEqual } from 'node:crypto'
import { compareSync } from 'bcryptjs'

/** Takes so long that it must not block other requests. */
export const isSlow = (hash: string): boolean => hash.startsWith('$')

const equal = (made: Uint8Array, wanted: Uint8Array): boolean =>
  made.length === wanted.length && timingSafeEqual(made, wanted)

const md5 = (...parts: readonly (string | Uint8Array)[]): Buffer => {
  const whole = Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : part)))
  return digest('md5', whole, 'buffer')
}

const alphabet = './0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const order = [
  [0, 6, 12],
  [1, 7, 13],
  [2, 8, 14],
  [3, 9, 15],
  [4, 10, 5],
] as const

const encode = (value: number, count: number): string => {
  let text = ''
  for (let left = count, rest = value; left > 0; left--, rest >>>= 6) text += alphabet[rest & 63]
  return text
}

/** `$apr1$<salt>$…` of Apache, and `$1$<salt>$…` of crypt(3): the same but for their names. */
const md5Crypt = (magic: string, salt: string, password: string): string => {
  const key = Buffer.from(password)
  const inner = md5(key, salt, key)
  const parts: (string | Uint8Array)[] = [key, magic, salt]
  for (let left = key.length; left > 0; left -= 16) parts.push(inner.subarray(0, Math.min(16, left)))
  for (let left = key.length; left > 0; left >>>= 1) parts.push((left & 1) === 1 ? Buffer.alloc(1) : key.subarray(0, 1))
  let made = md5(...parts)
  for (let round = 0; round < 1000; round++) {
    const isOdd = (round & 1) === 1
    const mix = [round % 3 === 0 ? '' : salt, round % 7 === 0 ? '' : key]
    made = md5(isOdd ? key : made, ...mix, isOdd ? made : key)
  }
  const groups = order.map(([a, b, c]) => encode((made[a]! << 16) | (made[b]! << 8) | made[c]!, 4))
  return groups.join('') + encode(made[11]!, 2)
}

const sha1 = (...parts: readonly Uint8Array[]): Buffer => {
  const sum = createHash('sha1')
  for (const part of parts) sum.update(part)
  return sum.digest()
}

/** `hash` is one that `parseUsers` has accepted. */
export const matches = (hash: string, password: string): boolean => {
  if (hash.startsWith('{SHA}')) return equal(sha1(Buffer.from(password)), Buffer.from(hash.slice(5), 'base64'))
  if (hash.startsWith('{SSHA}')) {
    const kept = Buffer.from(hash.slice(6), 'base64')
    return equal(sha1(Buffer.from(password), kept.subarray(20)), kept.subarray(0, 20))
  }
  if (hash.startsWith('$2')) return compareSync(password, hash)
  const [, magic = '', salt = '', wanted = ''] = hash.split('$')
  return equal(Buffer.from(md5Crypt(`$${magic}$`, salt, password)), Buffer.from(wanted))
}
