/** How a Docker engine is reached. Plain values; secrets are `Secret`, so that a connection can be logged. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Pin } from '../net/pinned-connector.ts'
import { Secret } from '../secret.ts'

interface LocalConnection {
  kind: 'local'
  socketPath: string
}

interface Distant {
  host: string
  port: number
  /** Without, the system resolves the name and every address is allowed. */
  pin?: Pin
}

/** PEM. Without a CA, the certificate authorities of Node are trusted. */
interface ClientCertificate {
  ca?: string
  cert?: string
  key?: Secret
}

export interface TcpConnection extends Distant {
  kind: 'tcp'
  /** Null for plain HTTP, which only the operator chooses. */
  tls: ClientCertificate | null
}

export interface SshConnection extends Distant {
  kind: 'ssh'
  user: string
  /** PEM or OpenSSH's own format, without a passphrase. */
  key: Secret
  /** Public keys of that machine as in known_hosts; any other is refused. */
  hostKeys: string
  /** The engine's socket on that machine. */
  socketPath: string
}

export type EngineConnection = LocalConnection | TcpConnection | SshConnection

export const defaultSocketPath = '/var/run/docker.sock'

/** Reads `host`, `port` and the rest of a URL whose scheme the URL parser does not know. */
export const parseEngineUrl = (text: string): URL | null => URL.parse(text.replace(/^(tcp|ssh):\/\//, 'http://'))

const isLoopback = (host: string): boolean => /^(localhost|127\.\d+\.\d+\.\d+|\[?::1\]?)$/.test(host)

/** Whether the engine may be this machine's: a socket of it, or an address of its loopback. */
export const isLocalEngine = (connection: EngineConnection): boolean =>
  connection.kind === 'local' || (connection.kind === 'tcp' && isLoopback(connection.host))

const readCertificates = (folder: string | undefined): ClientCertificate => {
  if (folder === undefined) return {}
  const [ca, cert, key] = ['ca.pem', 'cert.pem', 'key.pem'].map((name) => readFileSync(join(folder, name), 'utf8'))
  return { ca, cert, key: new Secret(key!) }
}

/**
 * The engine of this machine, as docker's own tools find it: by DOCKER_HOST, DOCKER_CERT_PATH and DOCKER_TLS_VERIFY.
 * This is the one place that reads them.
 */
export const defaultConnection = (dockerHost = process.env.DOCKER_HOST): EngineConnection => {
  if (!dockerHost) return { kind: 'local', socketPath: defaultSocketPath }
  if (dockerHost.startsWith('unix://')) return { kind: 'local', socketPath: dockerHost.slice('unix://'.length) }
  const url = /^(tcp|https?):\/\//.test(dockerHost) ? parseEngineUrl(dockerHost) : null
  if (url === null) throw new Error('DOCKER_HOST must begin with unix:// or tcp://.')
  const isSecure = url.protocol === 'https:' || process.env.DOCKER_TLS_VERIFY === '1'
  return {
    kind: 'tcp',
    host: url.hostname,
    port: Number(url.port || (isSecure ? 2376 : 2375)),
    tls: isSecure ? readCertificates(process.env.DOCKER_CERT_PATH) : null,
  }
}
