/** RSA keys of any sizes, in PEM: their numbers are drawn, and nobody has to have computed them. */
import { randomBytes } from 'node:crypto'

const lengthOf = (size: number): number[] => (size < 128 ? [size] : [0x82, size >> 8, size & 255])

const der = (tag: number, content: Buffer): Buffer =>
  Buffer.concat([Buffer.from([tag, ...lengthOf(content.length)]), content])

const number = (bytes: number): Buffer => {
  const drawn = randomBytes(bytes)
  drawn[0] = 0x7f
  drawn[bytes - 1]! |= 1
  return der(2, drawn)
}

/** Bytes of the modulus, the private exponent, each prime and what belongs to it, and the public exponent. */
export const hostileKey = (n: number, d: number, p: number, e = 3): string => {
  const parts = [number(n), number(e), number(d), ...Array.from({ length: 5 }, () => number(p))]
  const text = der(0x30, Buffer.concat([Buffer.from([2, 1, 0]), ...parts])).toString('base64')
  return `-----BEGIN RSA PRIVATE KEY-----\n${text.match(/.{1,64}/g)!.join('\n')}\n-----END RSA PRIVATE KEY-----\n`
}
