/**
 * The settings of a service that its cluster's router acts on: which values are valid, and the router's policy that
 * follows from them. A release stores the settings as they were set. Pure.
 */
import { readJson } from '../../lib/foreign-text/read-json.ts'
import { words } from '../../lib/words.ts'
import { isOriginPattern } from '../../router/access/cors.ts'
import { parseUsers } from '../../router/access/htpasswd.ts'
import { retryTriggers } from '../../router/http/retries.ts'
import { isHeaderName, type Policy } from '../../router/policy.ts'
import { isSource, listed } from '../../router/sources.ts'

export type IngressSettings = Readonly<Record<string, unknown>>

const ingress = (name: string): string => `network.ingress.${name}`
const gateway = (name: string): string => `network.gateway_api.${name}`

/** The only setting that some clusters act on. */
export const stickyKey = ingress('enable_sticky_session')

const basicAuthKey = ingress('basic_auth_env_var')

/** Each key, with its default: a service with nothing but defaults has the router's default policy. */
export const ingressDefaults: IngressSettings = {
  [ingress('proxy_body_size_mb')]: 100,
  [ingress('enable_cors')]: false,
  [ingress('cors_allow_origin')]: '*',
  [ingress('cors_allow_methods')]: 'GET, PUT, POST, DELETE, PATCH, OPTIONS',
  [ingress('cors_allow_headers')]:
    'DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization',
  [ingress('proxy_buffer_size_kb')]: 4,
  [ingress('keepalive_time_seconds')]: 3600,
  [ingress('keepalive_timeout_seconds')]: 60,
  [ingress('send_timeout_seconds')]: 60,
  [ingress('proxy_connect_timeout_seconds')]: 60,
  [ingress('proxy_send_timeout_seconds')]: 60,
  [ingress('proxy_read_timeout_seconds')]: 60,
  [ingress('whitelist_source_range')]: '0.0.0.0/0',
  [ingress('denylist_source_range')]: '',
  [basicAuthKey]: '',
  [ingress('enable_sticky_session')]: false,
  [ingress('grpc_send_timeout_seconds')]: 60,
  [ingress('grpc_read_timeout_seconds')]: 60,
  [ingress('extra_headers')]: '{}',
  [ingress('force_ssl_redirect')]: true,
  [gateway('http_request_timeout_seconds')]: null,
  [gateway('http_connection_idle_timeout_seconds')]: null,
  [gateway('retry.num_retries')]: null,
  [gateway('retry.retry_on')]: null,
  [gateway('retry.http_status_codes')]: null,
  [gateway('retry.per_try_timeout_seconds')]: null,
}

/** Those that differ from their defaults; undefined if none does. */
export const ingressSettingsIn = (settings: Readonly<Record<string, unknown>>): IngressSettings | undefined => {
  const set = Object.entries(ingressDefaults)
    .filter(([key, usual]) => settings[key] !== undefined && settings[key] !== usual)
    .map(([key]) => [key, settings[key]] as const)
  return set.length === 0 ? undefined : Object.fromEntries(set)
}

/** The entries of a list that may be empty. */
const wordsIn = (text: string): string[] => (text.trim() === '' ? [] : listed(text))

/** A list may be written on several lines, a header may not. */
const onOneLine = (text: string): string => text.trim().replaceAll(/\s+/g, ' ')

/** Headers that say how a message is framed, or that only the service may set. */
const ownHeaders: ReadonlySet<string> = new Set(
  words(
    'connection content-encoding content-length content-range date http2-settings keep-alive proxy-authenticate',
    'proxy-connection set-cookie te trailer transfer-encoding upgrade www-authenticate',
  ),
)

const headersOf = (text: string): Record<string, string> | null => {
  try {
    const value = readJson(text.trim() === '' ? '{}' : text)
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return null
    const entries = Object.entries(value)
    const isGood = ([name, content]: [string, unknown]): boolean =>
      isHeaderName(name) &&
      !ownHeaders.has(name.toLowerCase()) &&
      typeof content === 'string' &&
      /^[\x20-\x7e]*$/.test(content)
    return entries.length <= 100 && entries.every(isGood) ? Object.fromEntries(entries) : null
  } catch {
    return null
  }
}

const statusesOf = (text: string): number[] => wordsIn(text).map(Number)
const isNames = (text: string): boolean => listed(text).every((name) => name === '*' || isHeaderName(name))

const addresses = 'must be a comma-separated list of addresses and networks, such as 10.0.0.0/8,192.0.2.7'
const areSources = (text: string): boolean => wordsIn(text).every(isSource)

/** The error in a text, by its key; the schemas check the rest. */
const checks: Readonly<Record<string, readonly [isGood: (text: string) => boolean, what: string]>> = {
  [ingress('whitelist_source_range')]: [areSources, addresses],
  [ingress('denylist_source_range')]: [areSources, addresses],
  [basicAuthKey]: [(text) => /^([-._A-Za-z][-._A-Za-z0-9]*)?$/.test(text), 'must be the name of one variable'],
  [ingress('cors_allow_origin')]: [
    (text) => listed(text).every(isOriginPattern),
    'must be `*` or a comma-separated list of origins, such as https://app.example.com,https://*.example.org',
  ],
  [ingress('cors_allow_methods')]: [isNames, 'must be a comma-separated list of methods'],
  [ingress('cors_allow_headers')]: [isNames, 'must be a comma-separated list of header names'],
  [ingress('extra_headers')]: [
    (text) => headersOf(text) !== null,
    'must be a JSON object of header names and texts, such as {"X-Frame-Options":"DENY"}, without those that frame a message',
  ],
  [gateway('retry.retry_on')]: [
    (text) => wordsIn(text).every((word) => (retryTriggers as readonly string[]).includes(word)),
    `must be a comma-separated list of ${retryTriggers.join(', ')}`,
  ],
  [gateway('retry.http_status_codes')]: [
    (text) => statusesOf(text).every((status) => Number.isInteger(status) && status >= 100 && status <= 599),
    'must be a comma-separated list of statuses from 100 to 599',
  ],
}

/** The first setting whose value the router cannot act on, and why; null if there is none. */
export const wrongSetting = (settings: IngressSettings): { key: string; why: string } | null => {
  for (const [key, [isGood, why]] of Object.entries(checks)) {
    const value = settings[key]
    if (typeof value === 'string' && !isGood(value)) return { key, why }
  }
  return null
}

/** The error in the variable that basic authentication needs, as a whole sentence; null if there is none. */
const usersRefusal = (settings: IngressSettings, env: Readonly<Record<string, string>>): string | null => {
  const name = String(settings[basicAuthKey] ?? '')
  if (name === '') return null
  const text = Object.hasOwn(env, name) ? env[name]! : undefined
  if (text === undefined)
    return `The service has no variable ${name}, which ${basicAuthKey} names: add it with lines of \`htpasswd\`, or remove the setting.`
  const users = parseUsers(text)
  return typeof users === 'string' ? `The variable ${name}, which ${basicAuthKey} names, ${users}.` : null
}

/** Whether the policy needs the service's variables. */
export const needsUsers = (settings: IngressSettings): boolean => (settings[basicAuthKey] ?? '') !== ''

/** Why requests cannot be treated as a version requires, as a sentence: then it must not be reachable. */
export const policyRefusal = (
  settings: IngressSettings | undefined,
  env: Readonly<Record<string, string>>,
): string | null => {
  if (settings === undefined) return null
  const wrong = wrongSetting(settings)
  if (wrong !== null) return `The advanced setting ${wrong.key} ${wrong.why}.`
  return usersRefusal(settings, env)
}

const milliseconds = (value: unknown): number | undefined => (typeof value === 'number' ? 1000 * value : undefined)

const retryOf = (of: (key: string) => unknown): Policy['retry'] => {
  const times = of(gateway('retry.num_retries'))
  if (typeof times !== 'number') return undefined
  const on = wordsIn(String(of(gateway('retry.retry_on')) ?? ''))
  const statuses = statusesOf(String(of(gateway('retry.http_status_codes')) ?? ''))
  const perTryMs = milliseconds(of(gateway('retry.per_try_timeout_seconds')))
  return {
    times,
    on,
    // Envoy's default.
    statuses: on.length === 0 && statuses.length === 0 ? [503] : statuses,
    ...(perTryMs === undefined ? {} : { perTryMs }),
  }
}

/** The router's policy. A restriction with a missing part is never dropped: then every request is refused. */
export const policyOf = (
  settings: IngressSettings | undefined,
  env: Readonly<Record<string, string>>,
): Policy | undefined => {
  if (settings === undefined) return undefined
  const all = { ...ingressDefaults, ...settings }
  const of = (key: string): unknown => all[key]
  const text = (name: string): string => String(of(ingress(name)) ?? '')
  const numbers = {
    bodyBytes: settings[ingress('proxy_body_size_mb')],
    headerBytes: settings[ingress('proxy_buffer_size_kb')],
  }
  const [allow, deny] = [wordsIn(text('whitelist_source_range')), wordsIn(text('denylist_source_range'))]
  const isOpen =
    allow.length === 0 || text('whitelist_source_range') === ingressDefaults[ingress('whitelist_source_range')]
  const users = text('basic_auth_env_var')
  const cors = {
    origins: listed(text('cors_allow_origin')),
    methods: onOneLine(text('cors_allow_methods')),
    headers: onOneLine(text('cors_allow_headers')),
  }
  const headers = headersOf(text('extra_headers')) ?? {}
  const policy: Policy = {
    bodyBytes: numbers.bodyBytes === undefined ? undefined : Number(numbers.bodyBytes) * 2 ** 20,
    headerBytes: numbers.headerBytes === undefined ? undefined : Number(numbers.headerBytes) * 1024,
    readMs: milliseconds(settings[ingress('proxy_read_timeout_seconds')]),
    sendMs: milliseconds(settings[ingress('proxy_send_timeout_seconds')]),
    grpcReadMs: milliseconds(settings[ingress('grpc_read_timeout_seconds')]),
    grpcSendMs: milliseconds(settings[ingress('grpc_send_timeout_seconds')]),
    clientMs: milliseconds(settings[ingress('send_timeout_seconds')]),
    connectMs: milliseconds(settings[ingress('proxy_connect_timeout_seconds')]),
    keepAliveMs: milliseconds(settings[ingress('keepalive_timeout_seconds')]),
    connectionMs: milliseconds(settings[ingress('keepalive_time_seconds')]),
    requestMs: milliseconds(settings[gateway('http_request_timeout_seconds')]),
    idleMs: milliseconds(settings[gateway('http_connection_idle_timeout_seconds')] || undefined),
    allow: isOpen ? undefined : allow,
    deny: deny.length === 0 ? undefined : deny,
    users: users === '' ? undefined : linesOf(Object.hasOwn(env, users) ? env[users]! : ''),
    cors: of(ingress('enable_cors')) === true ? cors : undefined,
    headers: Object.keys(headers).length === 0 ? undefined : headers,
    sticky: of(ingress('enable_sticky_session')) === true ? true : undefined,
    keepsHttp: of(ingress('force_ssl_redirect')) === false ? true : undefined,
    retry: retryOf(of),
  }
  return JSON.parse(JSON.stringify(policy)) as Policy
}

/** Only hashes of users are passed on to the router. */
const linesOf = (text: string): string[] => {
  const users = parseUsers(text)
  return typeof users === 'string' ? [] : users.map(({ name, hash }) => `${name}:${hash}`)
}
