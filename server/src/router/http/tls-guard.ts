/**
 * Checks of TLS that come before all others: a CA's challenge, a request for another host than its connection is for,
 * and one that must come over HTTPS.
 */
import type { IncomingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import { plainAddress } from '../sources.ts'
import { normalizeHost } from '../table/table.ts'
import { isEncrypted, type Secure } from '../tls/secure.ts'
import type { Traffic } from '../traffic/traffic.ts'

type Verdict =
  | { kind: 'challenge'; answer: string }
  | { kind: 'unanswered' }
  | { kind: 'misdirected' }
  | { kind: 'redirect'; to: string }

const challengeFolder = '/.well-known/acme-challenge/'
const tokenForm = /^[\w-]{1,512}$/

interface Asked {
  host: string
  path: string
  headers: IncomingHttpHeaders
  socket: Pick<Socket, 'remoteAddress'> | undefined
}

/** One connection is for one host: each has its own certificate, and perhaps its own rules. */
const isMisdirected = ({ tlsStore }: Secure, { host, socket }: Asked): boolean => {
  const { servername } = socket as { servername?: string | false }
  return typeof servername !== 'string' || normalizeHost(servername) !== host || !tlsStore.has(host)
}

const isWantedPlain = ({ table, isTrusted }: Traffic, { host, path, headers, socket }: Asked): boolean => {
  const entry = table.find(host, path)
  if (entry !== null && typeof entry === 'object' && entry.route.policy?.keepsHttp === true) return true
  return headers['x-forwarded-proto'] === 'https' && isTrusted(plainAddress(socket?.remoteAddress))
}

/**
 * Only the router may answer a CA's challenge about a name of the platform: the one that answers gets a certificate
 * for it, and still has it when the name is another service's. A CA follows redirects to HTTPS, too.
 */
const isOurQuestion = ({ ownDomain }: Secure, { host, path }: Asked): boolean =>
  ownDomain !== '' && path.startsWith(challengeFolder) && host.endsWith(`.${ownDomain}`)

const answerIn = ({ tlsStore }: Secure, { host, path }: Asked): string | undefined => {
  const token = path.startsWith(challengeFolder) ? path.slice(challengeFolder.length) : ''
  return tokenForm.test(token) ? tlsStore.answerTo(host, token) : undefined
}

/** Null: the request may continue. */
export const judgeTls = (traffic: Traffic, asked: Asked): Verdict | null => {
  const { secure } = traffic
  const { host, path } = asked
  if (secure === undefined) return null
  const encrypted = isEncrypted(asked.socket)
  if (encrypted && isMisdirected(secure, asked)) return { kind: 'misdirected' }
  const answer = encrypted ? undefined : answerIn(secure, asked)
  if (answer !== undefined) return { kind: 'challenge', answer }
  if (isOurQuestion(secure, asked)) return { kind: 'unanswered' }
  if (encrypted) return null
  if (!secure.tlsStore.has(host) || isWantedPlain(traffic, asked)) return null
  return { kind: 'redirect', to: `https://${host}${secure.port === 443 ? '' : `:${secure.port}`}${path}` }
}
