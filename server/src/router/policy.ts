/** How the requests of one service are treated. A plain value: it comes with the routes and is stored on disk. */
import { isSource } from './sources.ts'

export interface RetryPolicy {
  /** How often a request is repeated. */
  times: number
  /** Envoy's words. */
  on: string[]
  statuses: number[]
  /** For the head of one attempt's response. */
  perTryMs?: number
}

export interface CorsPolicy {
  /** `*`, origins, or origins whose host begins with `*.`. */
  origins: string[]
  methods: string
  headers: string
}

/** Absent fields have their defaults (`usual`); 0 turns a limit off, except `idleMs`, where it means the default. */
export interface Policy {
  /** Size of a request's body, over HTTP/1.1. */
  bodyBytes?: number
  /** Size of a response's headers. */
  headerBytes?: number
  /** Between two reads from the target. */
  readMs?: number
  /** Between two writes to the target. */
  sendMs?: number
  grpcReadMs?: number
  grpcSendMs?: number
  /** Between two writes to the client. */
  clientMs?: number
  /** For all attempts to connect to a target. */
  connectMs?: number
  /** From the arrival of a request to the end of its response. */
  requestMs?: number
  /** How long a client's connection stays open without a request. */
  keepAliveMs?: number
  /** After this a client's connection ends with its next response. */
  connectionMs?: number
  /** How long a connection to a target stays open without a request. */
  idleMs?: number
  /** Addresses and networks; absent: everyone. */
  allow?: string[]
  deny?: string[]
  /** Lines of htpasswd (access/htpasswd.ts). */
  users?: string[]
  cors?: CorsPolicy
  /** Headers of every response, replacing the target's own of that name. */
  headers?: Record<string, string>
  /** A client stays with its first target. */
  sticky?: true
  /** Requests without TLS are answered, not redirected. */
  keepsHttp?: true
  retry?: RetryPolicy
}

export const usual = {
  bodyBytes: 100 << 20,
  headerBytes: 64 << 10,
  readMs: 60_000,
  sendMs: 60_000,
  grpcReadMs: 60_000,
  grpcSendMs: 60_000,
  clientMs: 60_000,
  connectMs: 60_000,
  requestMs: 0,
  keepAliveMs: 60_000,
  connectionMs: 3_600_000,
  idleMs: 1_500,
} as const

export const mostHeaderBytes = 1 << 20

const isCount = (value: unknown): boolean => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
const isText = (value: unknown): boolean => typeof value === 'string' && /^[\x20-\x7e\x80-\xff]*$/.test(value)
const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every(isText)
const isCors = ({ origins, methods, headers }: Partial<Record<keyof CorsPolicy, unknown>>): boolean =>
  isTexts(origins) && isText(methods) && isText(headers)
const isRetry = ({ times, on, statuses, perTryMs = 0 }: Partial<Record<keyof RetryPolicy, unknown>>): boolean =>
  isCount(times) && isTexts(on) && Array.isArray(statuses) && statuses.every(isCount) && isCount(perTryMs)
const isRecord = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const checks: Readonly<Record<Exclude<keyof Policy, keyof typeof usual>, (value: unknown) => boolean>> = {
  allow: (value) => isTexts(value) && (value as string[]).every(isSource),
  deny: (value) => isTexts(value) && (value as string[]).every(isSource),
  users: isTexts,
  cors: (value) => isRecord(value) && isCors(value),
  headers: (value) => isRecord(value) && Object.keys(value).every(isHeaderName) && Object.values(value).every(isText),
  sticky: (value) => value === true,
  keepsHttp: (value) => value === true,
  retry: (value) => isRecord(value) && isRetry(value),
}

export const isHeaderName = (name: string): boolean => /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)

/** The error in a policy from outside; null if there is none. Unknown parts are errors: they may protect something. */
export const checkPolicy = (policy: unknown): string | null => {
  if (!isRecord(policy)) return 'its policy is not an object'
  for (const [name, value] of Object.entries(policy)) {
    const isRight = Object.hasOwn(usual, name) ? isCount : checks[name as keyof typeof checks]
    if (isRight?.(value) !== true) return `its policy has a wrong ${JSON.stringify(name.slice(0, 40))}`
  }
  return null
}
