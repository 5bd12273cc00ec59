/**
 * Certificates of host names, and the answers to challenges of certificate authorities: one file each, so that they
 * are served after a restart without the control plane. Promises that a change is on disk before it is confirmed, that
 * invalid certificates are never accepted, and that only a bounded number of contexts is in memory.
 */
import { createHash } from 'node:crypto'
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { SecureContext } from 'node:tls'
import type { HostTls, KnownTls } from '../router.ts'
import { InvalidRoute, isHostName } from '../table/table.ts'
import { wildcardOf, withoutStar } from '../table/wildcard.ts'
import { refuseCertificate } from './check-certificate.ts'
import { contextOf } from './context.ts'
import { tlsDigest } from './digest.ts'

/** The data about a host that needs no read of its file. */
export interface TlsEntry {
  digest: string
  hasCertificate: boolean
  challenge: HostTls['challenge']
  alpn: HostTls['alpn']
}

export interface TlsStore {
  /** Whether HTTPS is served for this normalized host, by its own certificate or that of a wildcard. */
  has(host: string): boolean
  /** The answer to a CA over HTTP; undefined if the token is unknown. */
  answerTo(host: string, token: string): string | undefined
  /** The certificate for a CA's TLS-ALPN-01 connection. */
  challengeOf(host: string): { certificate: string; key: string } | undefined
  /** Whether any host has one of those. */
  hasChallenges(): boolean
  /** Undefined if there is none. */
  contextFor(host: string): Promise<SecureContext | undefined>
  entries(): readonly (readonly [string, TlsEntry])[]
  /** Another process has written this host's file; null: it was removed. */
  take(host: string, entry: TlsEntry | null): void
  /** The present value of each host, and whether it has a certificate. */
  known(): Record<string, KnownTls>
  /**
   * For a host or a wildcard (`*.a.example`). {} removes it. Throws `InvalidRoute` for a value that cannot be served.
   */
  set(host: string, value: unknown): Promise<void>
}

const mostHosts = 50_000
/** About 40 KB each. */
const mostContexts = 1000

const isText = (value: unknown, most: number): value is string => typeof value === 'string' && value.length <= most

const isPair = (value: unknown): value is { certificate: string; key: string } => {
  const { certificate, key } = (value ?? {}) as Record<string, unknown>
  return isText(certificate, 65_536) && isText(key, 65_536)
}

const isChallenge = (value: unknown): boolean => {
  const { token, answer } = (value ?? {}) as Record<string, unknown>
  return isText(token, 512) && /^[\w-]+$/.test(token) && isText(answer, 1024) && /^[\w.-]+$/.test(answer)
}

/** Checks a value from outside or from disk; throws `InvalidRoute`. */
const checkShape = (host: string, value: unknown): HostTls => {
  const { certificate, key, challenge, alpn } = (value ?? {}) as Record<string, unknown>
  const fail = (why: string): never => {
    throw new InvalidRoute(`certificate of ${JSON.stringify(host.slice(0, 253))}: ${why}`)
  }
  if (!isHostName(withoutStar(host))) fail('its host is not a lower-case host name')
  const pair = { certificate, key }
  if (certificate !== undefined && !isPair(pair)) fail('it is too large')
  if (challenge !== undefined && !isChallenge(challenge)) fail('its challenge is malformed')
  if (alpn !== undefined && !isPair(alpn)) fail('its challenge is malformed')
  return {
    ...(certificate === undefined ? {} : (pair as { certificate: string; key: string })),
    ...(challenge === undefined ? {} : { challenge: challenge as HostTls['challenge'] }),
    ...(alpn === undefined ? {} : { alpn: alpn as HostTls['alpn'] }),
  }
}

const fileOf = (folder: string, host: string): string =>
  join(folder, `${createHash('sha256').update(host).digest('hex').slice(0, 40)}.json`)

const syncFolder = async (folder: string): Promise<void> => {
  const handle = await open(folder)
  await handle.sync().finally(() => handle.close())
}

const save = async (folder: string, host: string, value: HostTls): Promise<void> => {
  const path = fileOf(folder, host)
  const file = await open(`${path}.new`, 'w', 0o600)
  try {
    await file.writeFile(JSON.stringify({ host, ...value }))
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(`${path}.new`, path)
  await syncFolder(folder)
}

const entryOf = (value: HostTls): TlsEntry => ({
  digest: tlsDigest(value),
  hasCertificate: value.certificate !== undefined,
  challenge: value.challenge,
  alpn: value.alpn,
})

const readOne = async (path: string): Promise<{ host: string; value: HostTls }> => {
  const { host, ...rest } = JSON.parse(await readFile(path, 'utf8')) as { host: string }
  return { host, value: checkShape(String(host), rest) }
}

/** A file that cannot be read is put aside: the control plane sends its host again. */
const loadAll = async (folder: string, report: (message: string) => void): Promise<Map<string, TlsEntry>> => {
  const entries = new Map<string, TlsEntry>()
  for (const name of await readdir(folder)) {
    const path = join(folder, name)
    if (!name.endsWith('.json')) continue
    try {
      const { host, value } = await readOne(path)
      entries.set(host, entryOf(value))
    } catch (error) {
      report(`a certificate on disk cannot be read: ${String(error)}`)
      await rename(path, `${path}.broken`).catch(() => {})
    }
  }
  return entries
}

/** By digest: the least recently used one is dropped. */
const createContexts = () => {
  const contexts = new Map<string, Promise<SecureContext>>()
  return (digest: string, make: () => Promise<SecureContext>): Promise<SecureContext> => {
    const found = contexts.get(digest)
    const context = found ?? make()
    contexts.delete(digest)
    contexts.set(digest, context)
    if (found === undefined) context.catch(() => contexts.delete(digest))
    if (contexts.size > mostContexts) contexts.delete(contexts.keys().next().value!)
    return context
  }
}

/** `told`: called for each change that is on disk; the change is confirmed when it resolves. */
export const openTlsStore = async (
  folder: string,
  report: (message: string) => void,
  told: (host: string, entry: TlsEntry | null) => Promise<void> = async () => {},
): Promise<TlsStore> => {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  return createBook(folder, await loadAll(folder, report), told)
}

/** For files that another process manages. */
export const sharedTlsStore = (folder: string, entries: readonly (readonly [string, TlsEntry])[]): TlsStore =>
  createBook(folder, new Map(entries), async () => {})

const createBook = (
  folder: string,
  entries: Map<string, TlsEntry>,
  told: (host: string, entry: TlsEntry | null) => Promise<void>,
): TlsStore => {
  const contexts = createContexts()
  let alpnHosts = [...entries.values()].filter(({ alpn }) => alpn !== undefined).length
  let last: Promise<unknown> = Promise.resolve()

  const put = (host: string, entry: TlsEntry | undefined): void => {
    if (entries.get(host)?.alpn !== undefined) alpnHosts--
    if (entry?.alpn !== undefined) alpnHosts++
    if (entry === undefined) entries.delete(host)
    else entries.set(host, entry)
  }
  const read = async (host: string): Promise<SecureContext> => {
    const { value } = await readOne(fileOf(folder, host))
    return contextOf({ certificate: value.certificate ?? '', key: value.key ?? '' })
  }
  const change = async (host: string, value: HostTls): Promise<void> => {
    if (Object.keys(value).length === 0) {
      put(host, undefined)
      await Promise.all([rm(fileOf(folder, host), { force: true }), told(host, null)])
      return
    }
    if (!entries.has(host) && entries.size >= mostHosts) throw new InvalidRoute('there are too many certificates')
    await save(folder, host, value)
    const entry = entryOf(value)
    put(host, entry)
    await told(host, entry)
  }

  /** A host's own certificate takes precedence over that of a wildcard. */
  const served = (host: string): string | undefined =>
    [host, wildcardOf(host)].find((name) => entries.get(name)?.hasCertificate === true)

  return {
    has: (host) => served(host) !== undefined,
    answerTo(host, token) {
      const challenge = entries.get(host)?.challenge
      return challenge?.token === token ? challenge.answer : undefined
    },
    challengeOf: (host) => entries.get(host)?.alpn,
    hasChallenges: () => alpnHosts > 0,
    async contextFor(host) {
      const name = served(host)
      return name === undefined ? undefined : contexts(entries.get(name)!.digest, () => read(name))
    },
    entries: () => [...entries],
    take: (host, entry) => put(host, entry ?? undefined),
    known: () =>
      Object.fromEntries(
        [...entries].map(([host, { digest, hasCertificate: isServed }]) => [host, { digest, isServed }]),
      ),
    async set(host, given) {
      const value = checkShape(host, given)
      if (value.certificate !== undefined) {
        const why = await refuseCertificate(host, { certificate: value.certificate, key: value.key! })
        if (why !== null) throw new InvalidRoute(`the certificate of ${host} cannot be served: ${why}`)
      }
      const turn = last.then(() => change(host, value))
      last = turn.catch(() => {})
      await turn
    },
  }
}
