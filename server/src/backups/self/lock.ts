/**
 * Encryption of backups: age (age-encryption.org), so that other programs can open them too. Streams; what comes out of
 * `unlock` is authentic up to where it was read, and a stream that ends early fails.
 */
import { Decrypter, Encrypter, generateIdentity, identityToRecipient } from 'age-encryption'
import { Secret } from '../../lib/secret.ts'

/** What a backup is encrypted for: the owner of a passphrase, or of the private key to a public one. */
export type Lock = { passphrase: Secret } | { recipient: string }

export type Key = { passphrase: Secret } | { identities: Secret<readonly string[]> }

/** One sentence for the operator. */
export class CannotOpen extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'CannotOpen'
  }
}

export const isRecipient = (text: string): boolean => {
  try {
    new Encrypter().addRecipient(text)
    return true
  } catch {
    return false
  }
}

type Bytes = AsyncIterable<Uint8Array>

/** Through a stream of the web and back. */
const through = async (
  content: Bytes,
  change: (stream: ReadableStream<Uint8Array>) => Promise<ReadableStream<Uint8Array>>,
): Promise<Bytes> => (await change(ReadableStream.from(content) as ReadableStream<Uint8Array>)) as unknown as Bytes

/**
 * The encrypted stream, and a key that opens it here: for a public key a second one, which only this process has, so
 * that what was stored can be read back.
 */
export const lockUp = async (content: Bytes, lock: Lock): Promise<{ content: Bytes; key: Key }> => {
  const encrypter = new Encrypter()
  if ('passphrase' in lock) {
    encrypter.setPassphrase(lock.passphrase.reveal())
    return { content: await through(content, (stream) => encrypter.encrypt(stream)), key: lock }
  }
  const own = await generateIdentity()
  encrypter.addRecipient(lock.recipient)
  encrypter.addRecipient(await identityToRecipient(own))
  return {
    content: await through(content, (stream) => encrypter.encrypt(stream)),
    key: { identities: new Secret([own]) },
  }
}

const openWith = (key: Key): Decrypter => {
  const decrypter = new Decrypter()
  if ('passphrase' in key) decrypter.addPassphrase(key.passphrase.reveal())
  else for (const identity of key.identities.reveal()) decrypter.addIdentity(identity)
  return decrypter
}

export const unlock = async (content: Bytes, key: Key): Promise<Bytes> => {
  try {
    return await through(content, (stream) => openWith(key).decrypt(stream))
  } catch (error) {
    const isOtherKey = /no identity matched/.test((error as Error).message)
    if (isOtherKey) {
      const what = 'passphrase' in key ? 'passphrase' : 'identity'
      throw new CannotOpen(
        `this ${what} does not open it: it was made with another one, or its beginning is damaged`,
        error,
      )
    }
    throw error
  }
}

/** Whether it was made with a passphrase, by its first bytes; null if it is not a backup of ours. */
export const isByPassphrase = (first: Uint8Array): boolean | null => {
  const text = Buffer.from(first.subarray(0, 200)).toString('latin1')
  if (!text.startsWith('age-encryption.org/v1\n')) return null
  return /\n-> scrypt /.test(text)
}

/** The identities in a file of age's own tools: a line each; `#` begins a comment. */
export const parseIdentities = (text: string): Secret<readonly string[]> => {
  const lines = text
    .slice(0, 65_536)
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
  if (lines.length === 0 || lines.some((line) => !/^AGE-SECRET-KEY-[0-9A-Z-]+$/.test(line)))
    throw new CannotOpen('the identity file must have lines that begin with AGE-SECRET-KEY-, as age-keygen writes them')
  return new Secret(lines)
}
