/**
 * Reads from a kubeconfig how one cluster is reached. The text is untrusted: promises that reading it is short, opens
 * no file, starts no program, and that the resulting connection uses verified TLS.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import type { ParsedNode } from 'yaml'
import { Secret } from '../secret.ts'
import { refuseUnusualKey } from '../usual-key.ts'

/** How the API of a cluster is reached, and with which login. */
export interface KubernetesAccess {
  host: string
  port: number
  /** Path of the API at that host, without a trailing slash. */
  path: string
  /** Whose certificate is expected, if not the host's. */
  serverName: string | undefined
  /** PEM; without, the certificate authorities of Node are trusted. */
  ca: string | undefined
  cert: string | undefined
  key: Secret | undefined
  token: Secret | undefined
}

/** The message is the end of a sentence about the kubeconfig: `is not YAML`. It contains none of its values. */
export class KubeconfigRefused extends Error {}

export const longestKubeconfig = 65_536
/** Characters that may have a meaning in YAML, line ends included: they, and not the length, make reading slow. */
const mostMarks = 5000
const marks = /[-?:,[\]{}#&*!|>'"%@`\n]/g
const deepest = 12

const flatten = 'give what `kubectl config view --minify --flatten --raw` prints'

const refuse = (message: string): never => {
  throw new KubeconfigRefused(message)
}

type Plain = string | Plain[] | Map<string, Plain>

/** A document of texts, lists and maps: aliases and tags are not needed, and would let a short one expand. */
const read = async (text: string): Promise<Plain> => {
  if (text.length > longestKubeconfig) refuse(`is longer than ${longestKubeconfig} characters: ${flatten}`)
  if ((text.match(marks)?.length ?? 0) > mostMarks) refuse(`has too many entries: ${flatten}`)
  const { parseDocument, isMap, isScalar, isSeq } = await import('yaml')
  const plainOf = (node: ParsedNode | null | undefined, depth: number): Plain => {
    if (depth > deepest) refuse('is nested too deeply')
    if (node === null || node === undefined) return ''
    if (node.tag !== undefined) refuse('must not have YAML tags')
    if (isScalar(node)) return String(node.value ?? '')
    if (isSeq(node)) return node.items.map((item) => plainOf(item as ParsedNode, depth + 1))
    if (!isMap(node)) return refuse('must not have YAML aliases')
    const found = new Map<string, Plain>()
    for (const { key, value } of node.items) {
      const name = plainOf(key as ParsedNode, depth + 1)
      if (typeof name !== 'string') return refuse('has a name that is not a text')
      if (found.has(name)) refuse('names the same field twice')
      found.set(name, plainOf(value as ParsedNode, depth + 1))
    }
    return found
  }
  try {
    const options = { schema: 'failsafe', uniqueKeys: false, logLevel: 'error', prettyErrors: false } as const
    const document = parseDocument(text, options)
    if (document.errors.length > 0) refuse('is not valid YAML')
    return plainOf(document.contents, 0)
  } catch (error) {
    if (error instanceof KubeconfigRefused) throw error
    return refuse('is not valid YAML')
  }
}

type Fields = Map<string, Plain>

const mapIn = (value: Plain | undefined): Fields | null => (value instanceof Map ? value : null)

/** Empty for a field that is missing, or is not text. */
const textIn = (fields: Fields, name: string): string => {
  const value = fields.get(name)
  return typeof value === 'string' ? value.trim() : ''
}

const entryOf = (fields: Fields, list: string, inner: string, name: string): Fields => {
  const all = fields.get(list)
  const entries = (Array.isArray(all) ? all : []).flatMap((each) => mapIn(each) ?? [])
  const named = entries.filter((each) => textIn(each, 'name') === name)
  if (named.length > 1) refuse(`has two entries of one name in \`${list}\``)
  return mapIn(named[0]?.get(inner)) ?? refuse(`has no entry in \`${list}\` for its context`)
}

const contextOf = (fields: Fields): Fields => {
  const current = textIn(fields, 'current-context')
  if (current !== '') return entryOf(fields, 'contexts', 'context', current)
  const all = fields.get('contexts')
  const only = Array.isArray(all) && all.length === 1 ? mapIn(all[0]) : null
  if (only === null) return refuse('has no `current-context`')
  return mapIn(only.get('context')) ?? refuse('has no entry in `contexts` for its context')
}

const fileOf = (instead: string): string =>
  `names a file, which this server does not have: put its content into \`${instead}\` (${flatten})`
const impersonates = "must not use impersonation (`as`): use that user's own credentials"

const refusedOfCluster: Record<string, string> = {
  'certificate-authority': fileOf('certificate-authority-data'),
  'proxy-url': 'names a proxy (`proxy-url`): this server connects to the cluster directly',
}
const refusedOfUser: Record<string, string> = {
  exec: 'starts a program to log in (`exec`), which this server never does: give the token of a service account or a client certificate',
  'auth-provider':
    'logs in with a plugin (`auth-provider`), which this server does not have: give the token of a service account or a client certificate',
  tokenFile: fileOf('token'),
  'client-certificate': fileOf('client-certificate-data'),
  'client-key': fileOf('client-key-data'),
  username: 'logs in with a password, which Kubernetes no longer accepts: give the token of a service account',
  password: 'logs in with a password, which Kubernetes no longer accepts: give the token of a service account',
  as: impersonates,
  'as-uid': impersonates,
  'as-groups': impersonates,
  'as-user-extra': impersonates,
}

const refuseAll = (fields: Fields, refused: Record<string, string>): void => {
  for (const [name, why] of Object.entries(refused)) if ((fields.get(name) ?? '') !== '') refuse(why)
}

const decoded = (fields: Fields, name: string): string | undefined => {
  const text = textIn(fields, name).replaceAll(/\s/g, '')
  if (text === '') return undefined
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text)) refuse(`has no base64 in \`${name}\``)
  return Buffer.from(text, 'base64').toString()
}

const certificateIn = (fields: Fields, name: string): string | undefined => {
  const pem = decoded(fields, name)
  if (pem === undefined) return undefined
  try {
    new X509Certificate(pem)
    return pem
  } catch {
    return refuse(`has no certificate in PEM in \`${name}\``)
  }
}

const readKey = (pem: string): KeyObject => {
  try {
    return createPrivateKey(pem)
  } catch {
    return refuse('has no private key in PEM without a passphrase in `client-key-data`')
  }
}

const keyIn = (user: Fields, cert: string | undefined): Secret | undefined => {
  const pem = decoded(user, 'client-key-data')
  if ((pem === undefined) !== (cert === undefined))
    refuse('must have both `client-certificate-data` and `client-key-data`, or neither')
  if (pem === undefined || cert === undefined) return undefined
  const key = readKey(pem)
  const unusual = refuseUnusualKey(key)
  if (unusual !== null) refuse(`has a \`client-key-data\` that is not used: ${unusual}`)
  if (new X509Certificate(cert).checkPrivateKey(key)) return new Secret(pem)
  return refuse('has a `client-key-data` that does not belong to its `client-certificate-data`')
}

const tokenIn = (user: Fields): Secret | undefined => {
  const token = textIn(user, 'token')
  if (token !== '' && !/^[\x21-\x7e]+$/.test(token)) refuse('has a `token` that is not one')
  return token === '' ? undefined : new Secret(token)
}

const placeIn = (cluster: Fields): Pick<KubernetesAccess, 'host' | 'port' | 'path'> => {
  const url = URL.parse(textIn(cluster, 'server'))
  if (url?.protocol !== 'https:') return refuse('must have an address that begins with https:// as its `server`')
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '' || url.port === '0')
    refuse('must have nothing but a host, a port and a path in its `server`')
  return { host: url.hostname, port: Number(url.port || 443), path: url.pathname.replace(/\/+$/, '') }
}

/** Rejects with `KubeconfigRefused`. Loads the package yaml. */
export const parseKubeconfig = async (text: string): Promise<KubernetesAccess> => {
  const fields =
    mapIn(await read(text)) ?? refuse('is not a kubeconfig: `clusters`, `users` and `contexts` are missing')
  const context = contextOf(fields)
  const cluster = entryOf(fields, 'clusters', 'cluster', textIn(context, 'cluster'))
  const user = entryOf(fields, 'users', 'user', textIn(context, 'user'))
  refuseAll(cluster, refusedOfCluster)
  refuseAll(user, refusedOfUser)
  if (!['', 'false'].includes(textIn(cluster, 'insecure-skip-tls-verify')))
    refuse('must not turn the check of the certificate off (`insecure-skip-tls-verify`)')
  const serverName = textIn(cluster, 'tls-server-name') || undefined
  if (serverName !== undefined && !/^(?=.*[a-z])[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/i.test(serverName))
    refuse('has a `tls-server-name` that is not a host name')
  const cert = certificateIn(user, 'client-certificate-data')
  const [key, token] = [keyIn(user, cert), tokenIn(user)]
  if (key === undefined && token === undefined) refuse('has neither a token nor a client certificate')
  return { ...placeIn(cluster), serverName, ca: certificateIn(cluster, 'certificate-authority-data'), cert, key, token }
}
