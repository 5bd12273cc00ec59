/**
 * Checks whether a certificate and its key can be served. They are untrusted: sizes are checked before anything is
 * computed with them, and the one signature that proves the key is made in a thread.
 */
import {
  createPrivateKey,
  sign as cryptoSign,
  verify as cryptoVerify,
  type KeyObject,
  X509Certificate,
} from 'node:crypto'
import { promisify } from 'node:util'
import { refuseUnusualKey } from '../../lib/usual-key.ts'

export interface KeyPair {
  /** PEM, the host's own first, then those of its issuers. */
  certificate: string
  /** PEM. */
  key: string
}

const mostChainBytes = 65_536
const mostKeyBytes = 8192
const mostCertificates = 10
const pemBlock = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g

const sign = promisify(cryptoSign)
const verify = promisify(cryptoVerify)

const parse = <T>(read: () => T): T | null => {
  try {
    return read()
  } catch {
    return null
  }
}

const proof = Buffer.from('the key of this certificate')

const proves = async (key: KeyObject, certificate: X509Certificate): Promise<boolean> => {
  try {
    return await verify('sha256', proof, certificate.publicKey, await sign('sha256', proof, key))
  } catch {
    return false
  }
}

/** The certificates of a chain, the host's own first; null if it cannot be read. */
export const readChain = (certificate: string): X509Certificate[] | null => {
  const blocks = certificate.length > mostChainBytes ? [] : (certificate.match(pemBlock) ?? [])
  if (blocks.length === 0 || blocks.length > mostCertificates) return null
  return parse(() => blocks.map((block) => new X509Certificate(block)))
}

/** Checking a signature with a key of an issuer must cost little: it may be of any size. */
const isModest = ({
  publicKey: { asymmetricKeyType: type, asymmetricKeyDetails: details },
}: X509Certificate): boolean =>
  type !== 'rsa' || ((details?.modulusLength ?? 0) <= 8192 && (details?.publicExponent ?? 0n) < 1n << 32n)

/** Why a chain is not in order, as the end of a sentence about the certificate; null if each is signed by the next. */
export const refuseOrder = (chain: readonly X509Certificate[]): string | null => {
  for (const [index, issuer] of chain.slice(1).entries()) {
    const issued = chain[index]!
    if (parse(() => issued.checkIssued(issuer)) !== true)
      return `number ${index + 2} of its chain has not issued number ${index + 1}: the host's own comes first, then those of its issuers in order`
    if (parse(() => isModest(issuer)) !== true) return `the key of number ${index + 2} of its chain is not supported`
    if (parse(() => issued.verify(issuer.publicKey)) !== true)
      return `number ${index + 1} of its chain is not signed by number ${index + 2}`
  }
  return null
}

/** The error in a pair, as the end of a sentence about the certificate; null if it can be served for the host. */
export const refuseCertificate = async (host: string, pair: KeyPair): Promise<string | null> => {
  const chain = readChain(pair.certificate)
  if (chain === null) return 'it cannot be read as a chain of PEM certificates'
  if (pair.key.length > mostKeyBytes) return 'its key is too large'
  // Never with a password: trying one can take as long as the creator of the key wants.
  const key = parse(() => createPrivateKey({ key: pair.key, format: 'pem' }))
  if (key === null) return 'its key cannot be read as a PEM key without a password'
  // Clients know no certificates with any other.
  if (!['rsa', 'ec'].includes(key.asymmetricKeyType ?? '')) return 'its key must be RSA or ECDSA'
  const refusal = refuseUnusualKey(key)
  if (refusal !== null) return refusal
  const own = chain[0]!
  if (parse(() => own.checkPrivateKey(key)) !== true) return 'its key belongs to another certificate'
  if (own.checkHost(host) === undefined) return 'it is for another host'
  return (await proves(key, own)) ? null : 'its key is not consistent'
}
