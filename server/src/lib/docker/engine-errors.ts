/** Explains to a user why a connection to a Docker engine failed: one plain sentence that says what to check. */
import { ForeignTextError } from '../foreign-text/foreign-text-error.ts'
import { causesOf, explainCause, isCertificateError } from '../net/connection-errors.ts'
import { SshError } from './ssh-tunnel.ts'

const sockets: Record<string, string> = {
  EACCES: 'This server is not allowed to open the socket of the engine.',
  EPERM: 'This server is not allowed to open the socket of the engine.',
  ENOENT: 'The socket of the engine does not exist.',
}

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

/** Whether the machine was reached, but refused the login or is not the same machine as before. */
export const isRefusedLogin = (error: unknown): boolean =>
  [...causesOf(error)].some((each) =>
    each instanceof SshError ? ['host-key', 'login', 'key'].includes(each.problem) : isCertificateError(each),
  )

export const explainEngine = (error: unknown): string => {
  for (const each of causesOf(error)) {
    if (each instanceof ForeignTextError)
      return 'The answer is not from a Docker engine, or too large: check the address.'
    const found =
      each instanceof SshError ? ssh(each) : (sockets[String(each.code)] ?? explainCause(each, 'the engine'))
    if (found !== null) return found
  }
  return 'The Docker engine does not answer.'
}
