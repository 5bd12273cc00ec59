/**
 * Recognizes connections of a certificate authority (TLS-ALPN-01): Node chooses a certificate before it reports which
 * protocols a client offers, so the client's first message is read here. Pure, and strict about lengths.
 */

const handshake = 22
const clientHello = 1
const alpn = 16
export const acmeProtocol = 'acme-tls/1'

/** The bytes of the first message; 'more' if they are incomplete, null if it is something else. */
const messageIn = (bytes: Buffer): Buffer | 'more' | null => {
  if (bytes.length < 9) return bytes.length > 0 && bytes[0] !== handshake ? null : 'more'
  if (bytes[0] !== handshake || bytes[5] !== clientHello) return null
  const record = bytes.readUInt16BE(3)
  const length = bytes.readUIntBE(6, 3)
  // One that is spread over several records is not a CA's.
  if (record < length + 4) return null
  return bytes.length < 9 + length ? 'more' : bytes.subarray(9, 9 + length)
}

/** The part after a vector whose length precedes it in `size` bytes. */
const skip = (bytes: Buffer, size: number): Buffer => bytes.subarray(size + bytes.readUIntBE(0, size))

const alpnOf = (message: Buffer): Buffer | null => {
  // Version and random; then session id, ciphers, compression methods.
  let rest = skip(skip(skip(message.subarray(34), 1), 2), 1).subarray(2)
  while (rest.length >= 4) {
    const length = rest.readUInt16BE(2)
    if (rest.readUInt16BE(0) === alpn) return rest.subarray(4, 4 + length)
    rest = rest.subarray(4 + length)
  }
  return null
}

/** True if the client offers `acme-tls/1` and nothing else; 'more' if too few bytes have arrived. */
export const isAcmeHello = (bytes: Buffer): boolean | 'more' => {
  const message = messageIn(bytes)
  if (message === 'more') return 'more'
  try {
    const offered = message === null ? null : alpnOf(message)
    return offered?.subarray(2).equals(Buffer.from([acmeProtocol.length, ...Buffer.from(acmeProtocol)])) === true
  } catch {
    return false
  }
}
