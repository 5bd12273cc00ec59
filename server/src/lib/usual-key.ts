/**
 * Private keys that users send. Promises that the cost of one signature is known before anything is computed: a key of
 * the usual form can have numbers with which a single one takes a thread seconds.
 */
import type { KeyObject } from 'node:crypto'

/** A signature with RSA-4096 costs 4 ms; with 16384 it would be 220. */
const mostRsaBits = 4096
const leastRsaBits = 2048
const curves: ReadonlySet<unknown> = new Set(['prime256v1', 'secp384r1', 'secp521r1'])

const lengthOf = (part: string | undefined): number => Buffer.byteLength(part ?? '', 'base64url')

const numberOf = (part: string | undefined): bigint => {
  const hex = Buffer.from(part ?? '', 'base64url').toString('hex')
  return hex === '' ? 0n : BigInt(`0x${hex}`)
}

/** An exponent or a prime that is longer than the modulus makes one signature take seconds. */
const isPlainRsa = (key: KeyObject): boolean => {
  const { n, e, d, p, q, dp, dq, qi } = key.export({ format: 'jwk' })
  const bytes = lengthOf(n)
  const areShort = [d, p, q, dp, dq, qi].every((part) => lengthOf(part) <= bytes) && lengthOf(e) <= 4
  return areShort && lengthOf(p) + lengthOf(q) <= bytes + 1 && numberOf(p) * numberOf(q) === numberOf(n)
}

const judge = (key: KeyObject): string | null => {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key
  if (type === 'ed25519') return null
  if (type === 'ec') return curves.has(details?.namedCurve) ? null : 'the curve of its key is not supported'
  if (type !== 'rsa') return 'its key must be RSA, ECDSA or Ed25519'
  const bits = details?.modulusLength ?? 0
  if (bits < leastRsaBits || bits > mostRsaBits)
    return `its RSA key has ${bits} bits; ${leastRsaBits} to ${mostRsaBits} are supported`
  return isPlainRsa(key) ? null : 'its RSA key is not consistent'
}

/** Why a private key is not used, as the end of a sentence about its owner; null if it is used. */
export const refuseUnusualKey = (key: KeyObject): string | null => {
  try {
    return judge(key)
  } catch {
    return 'its key cannot be used'
  }
}
