/** Explains to a user why a connection to another machine failed: one plain sentence that says what to check. */
import { OutboundFailed, OutboundRefused } from './outbound-errors.ts'

const unresolved = 'The host name could not be resolved.'
const silent = 'Nothing answered in time: check the address, and that the firewall allows this server.'

/** `%` is the target of the request, with its article. */
const sentences: [RegExp, string][] = [
  [/^(ENOTFOUND|EAI_AGAIN|EAI_NODATA|EAI_NONAME)$/, unresolved],
  [/^ECONNREFUSED$/, 'The connection was refused: no program listens at this address and port.'],
  [
    /^(EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL)$/,
    'The machine cannot be reached from this server: check the address and the network.',
  ],
  [/TIMEOUT|^ETIMEDOUT$|^ABORT_ERR$/, silent],
  [/^(CERT_HAS_EXPIRED|CERT_NOT_YET_VALID)$/, 'The certificate of % has expired, or is not valid yet.'],
  [/^ERR_TLS_CERT_ALTNAME_INVALID$/, 'The certificate of % is not for this host name or address.'],
  [
    /SELF_SIGNED|UNABLE_TO_|CERT_SIGNATURE_FAILURE|CERT_UNTRUSTED|INVALID_PURPOSE|INVALID_CA/,
    'The certificate of % is not signed by the given certificate authority (CA).',
  ],
  [/^ERR_SSL_.*ALERT/, '% did not accept the client certificate: it must be signed by the CA that is trusted there.'],
  [/^(ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG|EPROTO)$/, '% does not use TLS at this address.'],
  [/^(ERR_OSSL|ERR_SSL|ERR_CRYPTO)/, 'The certificate or the key for the connection could not be used.'],
  [
    /^(UND_ERR_SOCKET|ECONNRESET|EPIPE)$/,
    '% closed the connection before it answered: over TLS, check that the CA it trusts signed the client certificate.',
  ],
]

const upper = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1)

export function* causesOf(error: unknown): Generator<Error & { code?: unknown }> {
  for (let each = error; each instanceof Error; each = each.cause) yield each
}

/** Whether a code means that a certificate of either side was not accepted. */
export const isCertificateError = ({ code }: { code?: unknown }): boolean =>
  /^(CERT_|ERR_TLS_CERT|ERR_SSL_.*ALERT)|SELF_SIGNED|UNABLE_TO_/.test(String(code))

/**
 * The sentence about one cause; null if it has none. `what` is the target of the request, with its article: `the
 * engine`.
 */
export const explainCause = (cause: Error & { code?: unknown }, what: string): string | null => {
  if (cause instanceof OutboundRefused) return upper(`${cause.message}.`)
  if (cause instanceof OutboundFailed && cause.code === 'unresolved') return unresolved
  const code = String(cause.code ?? cause.name)
  const found = sentences.find(([pattern]) => pattern.test(code))
  if (found !== undefined) return upper(found[1].replace('%', what))
  const isLate = cause.name === 'TimeoutError' || cause.name === 'AbortError' || /deadline passed/.test(cause.message)
  return isLate ? silent : null
}
