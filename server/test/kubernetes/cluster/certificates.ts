/** The keys of a cluster of the tests: of its API server, of an administrator, and of its tokens for accounts. */
import { generateKeyPairSync } from 'node:crypto'
import { ExtendedKeyUsage } from '@peculiar/x509'
import { createTestCa, type Pair } from '../../support/tls/test-ca.ts'

export interface ClusterKeys {
  /** Signs the two others. */
  ca: Pair
  server: Pair
  /** A user of the group system:masters. */
  admin: Pair
  /** PEM, private; the API server takes the public part from it. */
  accounts: string
}

export const createClusterKeys = async (addresses: string[], names: string[]): Promise<ClusterKeys> => {
  const ca = await createTestCa()
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  return {
    ca,
    server: await ca.issueFor({ subject: 'CN=kube-apiserver', usage: ExtendedKeyUsage.serverAuth, addresses, names }),
    admin: await ca.issueFor({ subject: 'CN=admin, O=system:masters', usage: ExtendedKeyUsage.clientAuth }),
    accounts: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
}
