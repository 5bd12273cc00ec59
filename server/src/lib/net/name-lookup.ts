/**
 * The addresses of a name. Promises that names whose name servers do not answer delay no others: the system's own
 * function waits in one of a few threads of the process, and users choose names and their servers. So names that
 * anyone can own are looked up over DNS by ourselves, after the machine's list of hosts; all others, which only the
 * machine knows, as the system does.
 */
import { lookup, Resolver } from 'node:dns/promises'
import { readFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { networkInterfaces } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { createSemaphore } from '../concurrency/semaphore.ts'

export type Resolve = (host: string) => Promise<readonly { address: string }[]>

interface ResolveOptions {
  /** `address:port`; default those of the system. */
  servers?: readonly string[]
  hosts?: string
  /** Path of the system's resolver configuration. */
  config?: string
}

/** The settings of the system may have changed by then. */
const renewMs = 30_000
const timeoutMs = 1000
const tries = 2
/** How much longer to wait for the second kind of addresses. */
const otherMs = 500
const mostSearched = 6
/** Lookups at once, and those of names of one owner: the network or a name server may drop more. */
const places = 128
const placesEach = 16
/** The longest wait for a free place. */
const longestWaitMs = 10_000

/**
 * Names that cannot be bought; the network, a Kubernetes cluster (`svc`), the machine or a test gives them a meaning.
 */
const isOwn = (host: string): boolean =>
  !host.includes('.') || /\.(?:localhost|local|internal|svc|home\.arpa|test|example|invalid)$/.test(host)

/** Below these, in the domain of a country, names are sold. */
const shared = /(?:^|\.)(?:ac|co|com|edu|gov|ne|net|or|org)\.[a-z]{2}$/

/** `shop.example` of `www.shop.example`. */
const ownerOf = (host: string): string =>
  host
    .split('.')
    .slice(shared.test(host) ? -3 : -2)
    .join('.')

const read = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '')

const wordsOf = (line: string): string[] =>
  line
    .replace(/[#;].*$/, '')
    .trim()
    .split(/\s+/)

const inHosts = (text: string, host: string): string[] =>
  text.split('\n').flatMap((line) => {
    const [address = '', ...names] = wordsOf(line)
    return isIP(address) !== 0 && names.some((name) => name.toLowerCase() === host) ? [address] : []
  })

/** The suffixes that the system appends to a name, in its order. */
const searchedIn = (text: string): string[] =>
  text.split('\n').reduce<string[]>((found, line) => {
    const [word, ...rest] = wordsOf(line)
    if (word !== 'search' && word !== 'domain') return found
    // `.` means none.
    return rest.filter((domain) => domain !== '.').slice(0, mostSearched)
  }, [])

const hasIpv4 = (): boolean =>
  Object.values(networkInterfaces()).some((all = []) =>
    all.some(({ family, internal }) => family === 'IPv4' && !internal),
  )

const codeOf = (error: unknown): string => String((error as { code?: unknown }).code)

const isNothing = (error: unknown): boolean => /^(?:ENOTFOUND|ENODATA)$/.test(codeOf(error))

/** Both kinds of addresses; once one has arrived, the other is not waited for long. */
const ask = async (resolver: Resolver, name: string): Promise<string[]> => {
  const found: { four: string[]; six: string[] } = { four: [], six: [] }
  const asked = [
    resolver.resolve4(name).then((four) => Object.assign(found, { four })),
    resolver.resolve6(name).then((six) => Object.assign(found, { six })),
  ]
  const all = Promise.allSettled(asked)
  const enough = Promise.any(asked).then(() => delay(otherMs, undefined, { ref: false }))
  await Promise.race([all, enough.catch(() => all)])
  const { four, six } = found
  if (four.length + six.length > 0) return hasIpv4() ? [...four, ...six] : [...six, ...four]
  const reasons = (await all).flatMap((each) => (each.status === 'rejected' ? [each.reason as unknown] : []))
  throw reasons.find((each) => !isNothing(each)) ?? reasons[0]
}

const askAll = async (resolver: Resolver, names: readonly string[]): Promise<string[]> => {
  let failure: unknown
  for (const name of names)
    try {
      return await ask(resolver, name)
    } catch (error) {
      failure ??= error
      if (!isNothing(error)) break
    }
  throw failure
}

/** Resolves as the system is configured, unless options say otherwise. */
export const createResolve = (options: ResolveOptions = {}): Resolve => {
  const { servers, hosts = '/etc/hosts', config = '/etc/resolv.conf' } = options
  let resolver: { is: Resolver; untilMs: number } | undefined
  const present = (): Resolver => {
    const nowMs = performance.now()
    if (resolver !== undefined && nowMs < resolver.untilMs) return resolver.is
    const is = new Resolver({ timeout: timeoutMs, tries })
    if (servers !== undefined) is.setServers(servers)
    resolver = { is, untilMs: nowMs + renewMs }
    return is
  }
  const take = createSemaphore(places, placesEach)
  return async (host) => {
    if (isOwn(host)) return lookup(host, { all: true, order: 'verbatim' })
    const listed = inHosts(await read(hosts), host)
    if (listed.length > 0) return listed.map((address) => ({ address }))
    const searched = searchedIn(await read(config)).map((domain) => `${host}.${domain}`)
    const waiting = { signal: AbortSignal.timeout(longestWaitMs) }
    const found = await take(ownerOf(host), () => askAll(present(), [host, ...searched]), waiting)
    return found.map((address) => ({ address }))
  }
}
