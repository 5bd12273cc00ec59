/** A certificate authority of the tests' own. */
import { createPublicKey, webcrypto } from 'node:crypto'
import {
  BasicConstraintsExtension,
  type ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  type Extension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509'

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
const day = 86_400_000

/** PEM. */
export interface Pair {
  certificate: string
  key: string
}

export interface Life {
  notBefore?: Date
  notAfter?: Date
}

/** Who a certificate is for, and what for; nothing absent is in it. */
export interface Subject {
  /** `CN=…`. */
  subject: string
  names?: readonly string[]
  addresses?: readonly string[]
  usage?: ExtendedKeyUsage
}

export interface TestCa extends Pair {
  issue(host: string, life?: Life): Promise<Pair>
  issueFor(subject: Subject, life?: Life): Promise<Pair>
  /** A certificate for another key. */
  certify(host: string, key: string, life?: Life): Promise<string>
}

const createKeys = () =>
  webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']) as Promise<webcrypto.CryptoKeyPair>

const pemOf = async (key: webcrypto.CryptoKey): Promise<string> =>
  PemConverter.encode(await webcrypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY')

const ofHost = (host: string): Subject => ({ subject: `CN=${host.slice(0, 60)}`, names: [host] })

const extensionsOf = ({ names = [], addresses = [], usage }: Subject): Extension[] => {
  const all = [
    ...names.map((value) => ({ type: 'dns' as const, value })),
    ...addresses.map((value) => ({ type: 'ip' as const, value })),
  ]
  return [
    ...(usage === undefined ? [] : [new ExtendedKeyUsageExtension([usage])]),
    ...(all.length === 0 ? [] : [new SubjectAlternativeNameExtension(all)]),
  ]
}

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
    subject: Subject,
    { notBefore = new Date(Date.now() - day), notAfter = new Date(Date.now() + 30 * day) }: Life = {},
  ): Promise<string> => {
    serial += 1
    const made = await X509CertificateGenerator.create({
      ...{ serialNumber: `0${serial.toString(16).padStart(5, '0')}`, issuer: name, subject: subject.subject },
      ...{ notBefore, notAfter, publicKey, signingKey: keys.privateKey, signingAlgorithm: algorithm },
      extensions: extensionsOf(subject),
    })
    return `${made.toString('pem')}\n`
  }
  const issueFor = async (subject: Subject, life?: Life): Promise<Pair> => {
    const own = await createKeys()
    return { certificate: await make(own.publicKey, subject, life), key: await pemOf(own.privateKey) }
  }
  return {
    certificate: `${root.toString('pem')}\n`,
    key: await pemOf(keys.privateKey),
    issueFor,
    issue: (host, life) => issueFor(ofHost(host), life),
    async certify(host, key, life) {
      const spki = createPublicKey(key).export({ type: 'spki', format: 'der' })
      return make(await webcrypto.subtle.importKey('spki', spki, algorithm, true, ['verify']), ofHost(host), life)
    },
  }
}
