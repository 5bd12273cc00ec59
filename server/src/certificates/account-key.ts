import { generateKeyPair } from 'node:crypto'
import { promisify } from 'node:util'

/** PEM, ECDSA P-256. */
export const createAccountKey = async (): Promise<string> => {
  const { privateKey } = await promisify(generateKeyPair)('ec', { namedCurve: 'P-256' })
  return String(privateKey.export({ type: 'pkcs8', format: 'pem' }))
}
