/** Keys in PEM that are meant to break their reader. */
import { randomBytes } from 'node:crypto'

const lengthOf = (size: number): number[] => {
  if (size < 128) return [size]
  return size < 256 ? [0x81, size] : [0x82, size >> 8, size & 255]
}

const der = (tag: number, content: Buffer): Buffer =>
  Buffer.concat([Buffer.from([tag, ...lengthOf(content.length)]), content])

const number = (bytes: number): Buffer => {
  const drawn = randomBytes(bytes)
  drawn[0] = 0x7f
  drawn[bytes - 1]! |= 1
  return der(2, drawn)
}

const sequence = (...parts: Buffer[]): Buffer => der(0x30, Buffer.concat(parts))

const pem = (name: string, bytes: Buffer): string =>
  `-----BEGIN ${name}-----\n${bytes
    .toString('base64')
    .match(/.{1,64}/g)!
    .join('\n')}\n-----END ${name}-----\n`

const oid = (hex: string): Buffer => der(6, Buffer.from(hex, 'hex'))

/** Behind a password that takes hours to try: PBES2 with two thousand million rounds of PBKDF2. */
export const lockedKey = (): string => {
  const rounds = der(2, Buffer.from('7fffffff', 'hex'))
  const prf = sequence(oid('2a864886f70d0209'), der(5, Buffer.alloc(0)))
  const derivation = sequence(oid('2a864886f70d01050c'), sequence(der(4, randomBytes(16)), rounds, prf))
  const cipher = sequence(oid('60864801650304012a'), der(4, randomBytes(16)))
  const algorithm = sequence(oid('2a864886f70d01050d'), sequence(derivation, cipher))
  return pem('ENCRYPTED PRIVATE KEY', sequence(algorithm, der(4, randomBytes(48))))
}

/**
 * RSA of any sizes: its numbers are random, not computed. Bytes of the modulus, the private
 * exponent, each prime and what belongs to it, and the public exponent.
 */
export const hostileKey = (n: number, d: number, p: number, e = 3): string => {
  const parts = [number(n), number(e), number(d), ...Array.from({ length: 5 }, () => number(p))]
  return pem('RSA PRIVATE KEY', sequence(Buffer.from([2, 1, 0]), ...parts))
}
