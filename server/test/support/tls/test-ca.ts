/** A certificate authority of the tests' own. */
import { createPublicKey, webcrypto } from 'node:crypto'
import {
  BasicConstraintsExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509'

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
const day = 86_400_000

export interface Pair {
  certificate: string
  key: string
}

export interface TestCa {
  /** PEM. */
  certificate: string
  issue(host: string, life?: { notBefore?: Date; notAfter?: Date }): Promise<Pair>
  /** A certificate for a key of somebody else. */
  certify(host: string, key: string, life?: { notBefore?: Date; notAfter?: Date }): Promise<string>
}

const createKeys = () =>
  webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']) as Promise<webcrypto.CryptoKeyPair>

const pemOf = async (key: webcrypto.CryptoKey): Promise<string> =>
  PemConverter.encode(await webcrypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY')

export const createTestCa = async (): Promise<TestCa> => {
  const keys = await createKeys()
  const name = 'CN=Test CA'
  const root = await X509CertificateGenerator.createSelfSigned({
    ...{ serialNumber: '01', name, keys, signingAlgorithm: algorithm },
    ...{ notBefore: new Date(Date.now() - day), notAfter: new Date(Date.now() + 365 * day) },
    extensions: [
      new BasicConstraintsExtension(true, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
    ],
  })
  let serial = 1
  const make = async (
    publicKey: webcrypto.CryptoKey,
    host: string,
    { notBefore = new Date(Date.now() - day), notAfter = new Date(Date.now() + 30 * day) } = {},
  ): Promise<string> => {
    serial += 1
    const made = await X509CertificateGenerator.create({
      ...{ serialNumber: `0${serial.toString(16).padStart(5, '0')}`, issuer: name, subject: `CN=${host.slice(0, 60)}` },
      ...{ notBefore, notAfter, publicKey, signingKey: keys.privateKey, signingAlgorithm: algorithm },
      extensions: [new SubjectAlternativeNameExtension([{ type: 'dns', value: host }])],
    })
    return `${made.toString('pem')}\n`
  }
  return {
    certificate: root.toString('pem'),
    async issue(host, life) {
      const own = await createKeys()
      return { certificate: await make(own.publicKey, host, life), key: await pemOf(own.privateKey) }
    },
    async certify(host, key, life) {
      const spki = createPublicKey(key).export({ type: 'spki', format: 'der' })
      return make(await webcrypto.subtle.importKey('spki', spki, algorithm, true, ['verify']), host, life)
    },
  }
}
