/** Connections to the address that a name was checked to have; name and certificate stay those of the host. */
import { isIP } from 'node:net'
import { buildConnector } from 'undici'

/** The address to connect to instead of a name: resolved, and allowed. Asked for every connection. */
export type Pin = (host: string, port: number) => Promise<{ address: string }>

interface PinnedPlace {
  host: string
  port: number
  /** Without, the system resolves the name and every address is allowed. */
  pin?: Pin | undefined
  /** Whose certificate is expected, if not the host's. */
  serverName?: string | undefined
  /** PEM. Without a CA, the certificate authorities of Node are trusted. */
  tls: { ca?: string | undefined; cert?: string | undefined; key?: string | undefined }
}

const connectMs = 5000

export const pinnedConnector = ({ host, port, pin, serverName, tls }: PinnedPlace): buildConnector.connector => {
  const connector = buildConnector({ ...tls, allowH2: false, timeout: connectMs })
  return (options, callback) => {
    const named = isIP(options.hostname.replace(/^\[|\]$/g, '')) === 0 ? options.hostname : undefined
    const servername = serverName ?? named
    if (pin === undefined) return connector({ ...options, servername }, callback)
    pin(host, port).then(
      ({ address }) => connector({ ...options, hostname: address, servername }, callback),
      (error: Error) => callback(error, null),
    )
  }
}
