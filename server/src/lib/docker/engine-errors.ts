/** What to tell a user of a connection to an engine that failed: one plain sentence, which says what to look at. */
import { OutboundFailed, OutboundRefused } from '../net/outbound-errors.ts'
import { SshError } from './ssh-tunnel.ts'

const untrusted = 'The certificate of the engine is not signed by the given certificate authority (CA).'
const noClient = 'The engine did not accept the client certificate: it must be signed by the CA that the engine trusts.'
const unreachable = 'The machine cannot be reached from this server: check the address and the network.'
const silent = 'Nothing answered in time: check the address, and that the firewall allows this server.'
const closed =
  'The engine closed the connection before it answered: over TLS, check that the CA it trusts signed the client certificate.'
const unresolved = 'The host name could not be resolved.'

const sentences: [RegExp, string][] = [
  [/^(ENOTFOUND|EAI_AGAIN|EAI_NODATA|EAI_NONAME)$/, unresolved],
  [/^ECONNREFUSED$/, 'The connection was refused: no program listens at this address and port.'],
  [/^(EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL)$/, unreachable],
  [/TIMEOUT|^ETIMEDOUT$|^ABORT_ERR$/, silent],
  [/^(CERT_HAS_EXPIRED|CERT_NOT_YET_VALID)$/, 'The certificate of the engine has expired, or is not valid yet.'],
  [/^ERR_TLS_CERT_ALTNAME_INVALID$/, 'The certificate of the engine is not for this host name or address.'],
  [/SELF_SIGNED|UNABLE_TO_|CERT_SIGNATURE_FAILURE|CERT_UNTRUSTED|INVALID_PURPOSE|INVALID_CA/, untrusted],
  [/^ERR_SSL_.*ALERT/, noClient],
  [
    /^(ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG|EPROTO)$/,
    'The engine does not use TLS at this address.',
  ],
  [/^(ERR_OSSL|ERR_SSL|ERR_CRYPTO)/, 'The certificate or the key for the connection could not be used.'],
  [/^(UND_ERR_SOCKET|ECONNRESET|EPIPE)$/, closed],
  [/^(EACCES|EPERM)$/, 'This server is not allowed to open the socket of the engine.'],
  [/^ENOENT$/, 'The socket of the engine does not exist.'],
]

const ssh = ({ problem }: SshError): string =>
  ({
    'host-key':
      'The SSH host key is not one of those given: if the machine was reinstalled, add its new public key; otherwise the connection may be intercepted.',
    login: 'The machine refused the login: check the user and that its authorized_keys has the public key.',
    key: 'The private SSH key could not be used.',
    socket:
      "The SSH user is not allowed to open the engine's socket, or no engine listens on it: check the path, and that the user is in the group docker.",
    protocol: 'The machine closed the SSH connection, or no SSH server listens on this port.',
  })[problem]

function* chain(error: unknown): Generator<Error & { code?: unknown }> {
  for (let each = error; each instanceof Error; each = each.cause) yield each
}

/** Whether the machine was reached and did not let us in, or is not the one it was. */
export const isRefusedLogin = (error: unknown): boolean =>
  [...chain(error)].some(
    (each) =>
      (each instanceof SshError && ['host-key', 'login', 'key'].includes(each.problem)) ||
      /^(CERT_|ERR_TLS_CERT|ERR_SSL_.*ALERT)|SELF_SIGNED|UNABLE_TO_/.test(String(each.code)),
  )

export const explainEngine = (error: unknown): string => {
  for (const each of chain(error)) {
    if (each instanceof SshError) return ssh(each)
    if (each instanceof OutboundRefused) return `${each.message.replace(/^t/, 'T')}.`
    if (each instanceof OutboundFailed && each.code === 'unresolved') return unresolved
    const code = String(each.code ?? each.name)
    const found = sentences.find(([pattern]) => pattern.test(code))
    if (found !== undefined) return found[1]
    if (each.name === 'TimeoutError' || each.name === 'AbortError' || /deadline passed/.test(each.message))
      return silent
  }
  return 'The Docker engine does not answer.'
}
