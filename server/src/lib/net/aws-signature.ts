/** Signatures of requests to AWS (version 4). Pure. */
import { createHash, createHmac } from 'node:crypto'

export interface AwsKeys {
  accessKey: string
  secretKey: string
}

interface AwsRequest {
  method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE'
  url: URL
  /** Lower-case names; all of them are signed. */
  headers: Readonly<Record<string, string>>
  body: string
  /** The SHA-256 of a body that is not a text, in hexadecimal. */
  bodyHash?: string
  region: string
  service: string
}

const hashOf = (text: string): string => createHash('sha256').update(text).digest('hex')
const sign = (key: string | Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest()

/** As AWS wants it: sorted, and everything but letters, digits and `-._~` encoded. */
const canonicalQuery = ({ searchParams }: URL): string => {
  const encode = (text: string): string =>
    encodeURIComponent(text).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`)
  return [...searchParams]
    .map(([name, value]) => `${encode(name)}=${encode(value)}`)
    .sort()
    .join('&')
}

/** The headers to send: those of the request, its date and its signature. `host` is signed, and left to the client. */
export const signAws = (request: AwsRequest, keys: AwsKeys, now: Date): Record<string, string> => {
  const { method, url, headers, body, bodyHash = hashOf(body), region, service } = request
  const date = now.toISOString().replace(/[-:]|\.\d+/g, '')
  const signed: Record<string, string> = { ...headers, host: url.host, 'x-amz-date': date }
  const names = Object.keys(signed).sort()
  const lines = names.map((name) => `${name}:${signed[name]!.trim()}\n`).join('')
  const canonical = [method, url.pathname, canonicalQuery(url), lines, names.join(';'), bodyHash].join('\n')
  const scope = `${date.slice(0, 8)}/${region}/${service}/aws4_request`
  const toSign = ['AWS4-HMAC-SHA256', date, scope, hashOf(canonical)].join('\n')
  const key = scope.split('/').reduce<string | Buffer>((made, part) => sign(made, part), `AWS4${keys.secretKey}`)
  const signature = sign(key, toSign).toString('hex')
  const credential = `Credential=${keys.accessKey}/${scope}`
  const authorization = `AWS4-HMAC-SHA256 ${credential}, SignedHeaders=${names.join(';')}, Signature=${signature}`
  return { ...headers, 'x-amz-date': date, authorization }
}
