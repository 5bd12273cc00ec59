/** The keys of a cluster of the tests: of its API server, of an administrator, and of its tokens for accounts. */
import { generateKeyPairSync, webcrypto } from 'node:crypto'
import {
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509'
import type { Pair } from '../../support/tls/test-ca.ts'

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
const day = 86_400_000

export interface ClusterKeys {
  /** PEM; signs the two others. */
  ca: Pair
  server: Pair
  /** Of the group system:masters. */
  admin: Pair
  /** PEM, private; the API server takes the public part from it. */
  accounts: string
}

const createKeys = () =>
  webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']) as Promise<webcrypto.CryptoKeyPair>

const pairOf = async (certificate: string, key: webcrypto.CryptoKey): Promise<Pair> => ({
  certificate: `${certificate}\n`,
  key: PemConverter.encode(await webcrypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY'),
})

export const createClusterKeys = async (addresses: string[], names: string[]): Promise<ClusterKeys> => {
  const keys = await createKeys()
  const issuer = 'CN=Test cluster'
  const life = { notBefore: new Date(Date.now() - day), notAfter: new Date(Date.now() + 30 * day) }
  const root = await X509CertificateGenerator.createSelfSigned({
    ...{ serialNumber: '01', name: issuer, keys, signingAlgorithm: algorithm, ...life },
    extensions: [
      new BasicConstraintsExtension(true, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
    ],
  })
  const issue = async (
    serialNumber: string,
    subject: string,
    usage: ExtendedKeyUsage,
    sans: SubjectAlternativeNameExtension[],
  ) => {
    const own = await createKeys()
    const made = await X509CertificateGenerator.create({
      ...{ serialNumber, issuer, subject, ...life },
      ...{ publicKey: own.publicKey, signingKey: keys.privateKey, signingAlgorithm: algorithm },
      extensions: [new ExtendedKeyUsageExtension([usage]), ...sans],
    })
    return pairOf(made.toString('pem'), own.privateKey)
  }
  const sans = new SubjectAlternativeNameExtension([
    ...addresses.map((value) => ({ type: 'ip' as const, value })),
    ...names.map((value) => ({ type: 'dns' as const, value })),
  ])
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  return {
    ca: await pairOf(root.toString('pem'), keys.privateKey),
    server: await issue('02', 'CN=kube-apiserver', ExtendedKeyUsage.serverAuth, [sans]),
    admin: await issue('03', 'CN=admin, O=system:masters', ExtendedKeyUsage.clientAuth, []),
    accounts: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
}
