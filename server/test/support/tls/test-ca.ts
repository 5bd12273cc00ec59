/** A certificate authority of the tests' own. */
import { webcrypto } from 'node:crypto'
import {
  BasicConstraintsExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  Pkcs10CertificateRequest,
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
  /** The certificate that a request in PEM asks for. */
  sign(csr: string, life?: { notBefore?: Date; notAfter?: Date }): Promise<string>
}

const createKeys = () => webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']) as Promise<webcrypto.CryptoKeyPair>

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
  const certify = async (
    publicKey: webcrypto.CryptoKey | Pkcs10CertificateRequest['publicKey'],
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
      return { certificate: await certify(own.publicKey, host, life), key: await pemOf(own.privateKey) }
    },
    sign(csr, life) {
      const request = new Pkcs10CertificateRequest(csr)
      const { rawData } = request.extensions.find(({ type }) => type === '2.5.29.17')!
      const host = new SubjectAlternativeNameExtension(rawData).names.items[0]!.value
      return certify(request.publicKey, host, life)
    },
  }
}
