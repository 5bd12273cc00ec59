/**
 * The possible forms of values of settings. Each reader returns the value, or the requirement, to follow `must be`;
 * none of them repeats the given text.
 */
import { isIP } from 'node:net'
import { isAbsolute, resolve } from 'node:path'
import { parseBucket } from '../backups/self/bucket-address.ts'
import { parseAllowList } from '../lib/net/address-policy.ts'
import { Secret } from '../lib/secret.ts'
import { parseCron } from '../lib/time/cron.ts'

export interface PortRange {
  first: number
  last: number
}

const longestDelay = 7 * 24 * 3600

export const text = (value: string) => ({ value })

export const path = (value: string) => ({ value: resolve(value) })

export const host = (value: string) =>
  /^[0-9A-Za-z.:_-]+$/.test(value) ? { value } : 'an address or a host name, such as 127.0.0.1 or 0.0.0.0'

export const address = (value: string) =>
  isIP(value) === 4 ? { value } : 'the IPv4 address of a DNS resolver, such as 9.9.9.9'

export const whole =
  (least: number, most: number) =>
  (value: string): { value: number } | string => {
    const number = Number(value)
    const fits = /^\d+$/.test(value) && number >= least && number <= most
    return fits ? { value: number } : `a whole number between ${least} and ${most}`
  }

/** One number is both. */
export const processNumbers = (value: string): { value: { least: number; most: number } } | string => {
  const [, least, most = least] = /^(\d{1,2})(?:-(\d{1,2}))?$/.exec(value)?.map((part) => part && Number(part)) ?? []
  const fits = typeof least === 'number' && typeof most === 'number' && least > 0 && least <= most && most <= 64
  return fits ? { value: { least, most } } : 'a number of processes between 1 and 64, or a range of them, such as 1-4'
}

export const portRange = (value: string): { value: PortRange } | string => {
  const [, first, last] = /^(\d{1,5})-(\d{1,5})$/.exec(value)?.map(Number) ?? []
  const fits = first !== undefined && last !== undefined && first > 0 && first <= last && last <= 65_535
  return fits ? { value: Object.freeze({ first, last }) } : 'a range of ports, such as 30000-32767'
}

export const portList = (value: string): { value: readonly PortRange[] } | string => {
  const found = parts(value).map((part) => portRange(/^\d+$/.test(part) ? `${part}-${part}` : part))
  const ranges = found.flatMap((each) => (typeof each === 'string' ? [] : [each.value]))
  return ranges.length === found.length
    ? { value: Object.freeze(ranges) }
    : 'ports and port ranges, such as 25,5000-5010'
}

export const oneOf =
  <T extends string>(choices: readonly T[]) =>
  (value: string): { value: T } | string => {
    const found = choices.find((choice) => choice === value.toLowerCase())
    return found === undefined ? `one of ${choices.join(', ')}` : { value: found }
  }

export const onOff = (value: string): { value: boolean } | string => {
  const on = ['on', 'true', 'yes', '1'].includes(value.toLowerCase())
  const off = ['off', 'false', 'no', '0'].includes(value.toLowerCase())
  return on || off ? { value: on } : 'on or off'
}

export const parts = (value: string): string[] =>
  value
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')

export const databaseUrl = (value: string): { value: string } | string =>
  /^postgres(ql)?:\/\//.test(value) && URL.canParse(value)
    ? { value }
    : 'a PostgreSQL URL, such as postgresql://user:password@host:5432/name'

export const adminToken = (value: string): { value: Secret } | string =>
  /^[!-~]{24,512}$/.test(value)
    ? { value: new Secret(value) }
    : 'at least 24 characters (at most 512), letters, digits and punctuation without spaces'

export const allowList = (value: string): { value: readonly string[] } | string => {
  const entries = parts(value)
  try {
    parseAllowList(entries)
    return { value: Object.freeze(entries) }
  } catch {
    return 'a list of: private, loopback, a network (10.0.0.0/8), a host or host:port, separated by commas'
  }
}

const isNetwork = (text: string): boolean => {
  const [address = '', bits, more] = text.split('/')
  const family = isIP(address)
  const fits =
    bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) >= 1 && Number(bits) <= (family === 4 ? 32 : 128))
  return family !== 0 && fits && more === undefined
}

const listOf =
  (fits: (part: string) => boolean, words: string) =>
  (value: string): { value: readonly string[] } | string => {
    const found = parts(value)
    return found.every(fits) ? { value: Object.freeze(found) } : words
  }

export const networks = listOf(isNetwork, 'addresses or networks (10.0.0.0/8) of proxies, separated by commas')

/** As browsers write it: in lower case, without a path and without the usual port. */
const originIn = (text: string): string | null => {
  const url = URL.parse(text)
  const isWeb = url?.protocol === 'https:' || url?.protocol === 'http:'
  return isWeb && url.href === `${url.origin}/` && !text.includes('*') ? url.origin : null
}

export const origins = (value: string): { value: readonly string[] } | string => {
  const found = parts(value).map(originIn)
  return found.every((each) => each !== null)
    ? { value: Object.freeze([...new Set(found)]) }
    : 'origins of web pages, such as https://console.example.org, separated by commas (* is not possible: list each one)'
}

export const pageAddress = (value: string): { value: string } | string => {
  const url = URL.parse(value)
  const isWeb = url?.protocol === 'https:' || url?.protocol === 'http:'
  return isWeb && url.href === `${url.origin}${url.pathname}`
    ? { value: url.href.replace(/\/+$/, '') }
    : 'an http or https address, such as https://console.example.org'
}

export const schedule = (value: string): { value: readonly number[] } | string => {
  const seconds = parts(value).map((part) => (/^\d+(\.\d+)?$/.test(part) ? Number(part) : Number.NaN))
  const fits = seconds.length > 0 && seconds.length <= 50 && seconds.every((each) => each <= longestDelay)
  return fits
    ? { value: Object.freeze(seconds) }
    : 'up to 50 delays in seconds, separated by commas, such as 0,5,300 (at most 7 days each)'
}

export const dockerHost = (value: string): { value: string } | string =>
  /^(unix|tcp|http|https|ssh|npipe):\/\/./.test(value)
    ? { value }
    : 'an address such as unix:///var/run/docker.sock or tcp://host:2376'

export const socketPaths = listOf(
  (each) => /^\/[\w./-]+$/.test(each) && !each.includes('..'),
  'paths of sockets such as /run/second-engine/docker.sock, separated by commas',
)

/** Tokens name their issuer letter by letter, so it stays as it was written. */
export const issuer = (value: string): { value: string } | string => {
  const url = URL.parse(value)
  const isLocal = url !== null && /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname)
  const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLocal)
  return isSafe && url?.username === '' && url.search === '' && url.hash === ''
    ? { value }
    : 'the https address of an OIDC issuer, exactly as in its tokens (http only on this machine)'
}

export const imageNames = listOf(
  (each) => /^(\*|[a-z0-9][a-z0-9._-]*(:[\w.-]{1,128})?)$/.test(each),
  '* or names of official images, such as postgres or node:22, separated by commas',
)

export const objectName = (value: string): { value: string } | string =>
  /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(value) ? { value } : 'the name of an object in a Kubernetes cluster'

const emailList = listOf((each) => /^[^@\s]+@[^@\s]+$/.test(each), 'e-mail addresses, separated by commas')

export const emails = (value: string) => emailList(value.toLowerCase())

/** Relative folders would depend on where the server was started. */
export const backupPlace = (value: string): { value: string } | string => {
  try {
    if (parseBucket(value) !== null) return { value }
  } catch {
    // Said below.
  }
  return isAbsolute(value) ? { value: resolve(value) } : 'the absolute path of a folder, or s3://bucket/prefix'
}

export const origin = (value: string): { value: string } | string => {
  const found = originIn(value.replace(/\/$/, ''))
  return found === null ? 'an http or https address without a path, such as https://s3.example.org' : { value: found }
}

export const ageRecipient = (value: string): { value: string } | string =>
  /^age1[0-9a-z]{40,4000}$/.test(value) ? { value } : 'a public key of age, which begins with age1'

/** Five fields, in UTC. */
export const cronExpression = (value: string): { value: string } | string =>
  parseCron(value) === null ? 'a cron expression of five fields, such as 0 3 * * *' : { value }
