/** The router's own pages: plain sentences without internals. HTML for browsers, JSON for programs. */
import { STATUS_CODES } from 'node:http'

export type PageName =
  | 'unknown'
  | 'stopped'
  | 'starting'
  | 'failed'
  | 'waking'
  | 'crowded'
  | 'unreachable'
  | 'silent'
  | 'invalid'
  | 'malformed'
  | 'largeHead'
  | 'late'
  | 'hosts'
  | 'framing'
  | 'path'
  | 'otherHost'
  | 'withBody'
  | 'method'
  | 'coding'
  | 'protocol'
  | 'idle'
  | 'elsewhere'
  | 'forbidden'
  | 'unauthorized'
  | 'busy'
  | 'tried'
  | 'tooLarge'
  | 'headers'
  | 'misdirected'
  | 'unasked'
  | 'moved'

interface Words {
  status: number
  /** `why`: the error, as the end of a sentence, or the limit; '' if the page needs none. */
  message(host: string, why: string): string
  retryAfterSeconds?: number
  challenge?: string
}

const words: Record<PageName, Words> = {
  unasked: { status: 404, message: (host) => `No certificate authority is asked about ${host} with this token.` },
  unknown: { status: 404, message: (host) => `There is no service at ${host}.` },
  stopped: { status: 503, message: (host) => `The service at ${host} is stopped.`, retryAfterSeconds: 30 },
  starting: { status: 503, message: (host) => `The service at ${host} is starting.`, retryAfterSeconds: 2 },
  failed: { status: 503, message: (host) => `The service at ${host} could not be started.`, retryAfterSeconds: 30 },
  waking: {
    status: 503,
    message: (host) => `The service at ${host} is being started, which takes longer than a request waits.`,
    retryAfterSeconds: 5,
  },
  crowded: {
    status: 503,
    message: (host) => `Too many requests wait for the service at ${host} to start.`,
    retryAfterSeconds: 5,
  },
  idle: { status: 503, message: (host) => `The service at ${host} has no running instance.`, retryAfterSeconds: 30 },
  elsewhere: { status: 404, message: (host) => `The service at ${host} has nothing at this path.` },
  forbidden: { status: 403, message: (host) => `The service at ${host} does not accept requests from your address.` },
  unauthorized: {
    status: 401,
    message: (host) => `The service at ${host} requires a user name and a password.`,
    challenge: 'Basic realm="Authentication Required", charset="UTF-8"',
  },
  busy: {
    status: 503,
    message: (host) => `Too many logins at ${host} are being checked: try again in a moment.`,
    retryAfterSeconds: 2,
  },
  tried: {
    status: 429,
    message: (host) => `Too many wrong passwords at ${host} from your address: try again in a moment.`,
    retryAfterSeconds: 10,
  },
  tooLarge: {
    status: 413,
    message: (host) => `The body of this request is larger than the service at ${host} accepts.`,
  },
  headers: {
    status: 502,
    message: (host, limit) => `The service at ${host} answered with headers that are larger than ${limit}.`,
  },
  invalid: {
    status: 502,
    message: (host, why) => `The answer of the service at ${host} is not valid HTTP: ${why}.`,
  },
  unreachable: { status: 502, message: (host) => `The service at ${host} cannot be reached.` },
  silent: { status: 504, message: (host) => `The service at ${host} did not answer in time.` },
  malformed: {
    status: 400,
    message: (_, why) => (why === '' ? 'The request is malformed.' : `The request is not valid HTTP: ${why}.`),
  },
  hosts: {
    status: 400,
    message: () => 'The request must have one Host header: a name or an address, and perhaps a port.',
  },
  framing: {
    status: 400,
    message: () => 'Where the body of the request ends is not clear: it has a Transfer-Encoding where it may not.',
  },
  path: {
    status: 400,
    message: () =>
      'Programs read the path of the request differently: this host does not accept `.` and `..` as parts of it, backslashes, %2F, %5C and %00.',
  },
  otherHost: { status: 400, message: () => 'The request names another host than its Host header.' },
  withBody: { status: 400, message: () => 'A request for another protocol must not have a body.' },
  largeHead: { status: 431, message: (_, limit) => `The headers of the request are larger than ${limit}.` },
  late: { status: 408, message: () => 'The headers of the request did not arrive in time.' },
  method: { status: 405, message: () => 'This method is not allowed here.' },
  protocol: { status: 505, message: (host) => `The service at ${host} does not support this version of HTTP.` },
  misdirected: {
    status: 421,
    message: () => 'This connection is for another host: open one for the host of the request.',
  },
  moved: { status: 308, message: (host) => `The service at ${host} is reached over HTTPS.` },
  coding: { status: 501, message: () => 'This transfer coding is not supported.' },
}

interface Page {
  status: number
  /** Flat: name, value, name, value. */
  headers: string[]
  body: string
}

const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (character) => entities[character] as string)

const html = (title: string, message: string): string =>
  `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
  `<title>${title}</title><style>body{font:1.1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:20vh auto;` +
  `padding:0 1rem;overflow-wrap:anywhere}</style></head><body><h1>${title}</h1><p>${escapeHtml(message)}</p></body></html>\n`

/** `accept` is the request's Accept header; `why`: see `Words.message`. */
export const renderPage = (name: PageName, host: string, accept: string | undefined, why = ''): Page => {
  const { status, message, retryAfterSeconds, challenge } = words[name]
  const error = STATUS_CODES[status] ?? 'Error'
  const text = message(host === '' ? 'this address' : host.slice(0, 253), why)
  const asHtml = accept?.includes('text/html') ?? false
  const body = asHtml ? html(`${status} ${error}`, text) : `${JSON.stringify({ status, error, message: text })}\n`
  const headers = [
    ['content-type', asHtml ? 'text/html; charset=utf-8' : 'application/json; charset=utf-8'],
    ['content-length', String(Buffer.byteLength(body))],
    ['cache-control', 'no-store'],
    ['x-content-type-options', 'nosniff'],
    ['content-security-policy', "default-src 'none'; style-src 'unsafe-inline'"],
    ...(retryAfterSeconds === undefined ? [] : [['retry-after', String(retryAfterSeconds)]]),
    ...(challenge === undefined ? [] : [['www-authenticate', challenge]]),
  ]
  return { status, headers: headers.flat(), body }
}

/** A status line and headers as bytes, for sockets no longer managed by an HTTP server. */
export const rawHead = (status: number, message: string, headers: readonly string[]): string => {
  let head = `HTTP/1.1 ${status} ${message}\r\n`
  for (let index = 0; index < headers.length; index += 2) head += `${headers[index]}: ${headers[index + 1]}\r\n`
  return `${head}\r\n`
}
