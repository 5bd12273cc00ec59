/** Cloudflare, by an API token that may read zones and edit their DNS. */
import { readJson } from '../../lib/foreign-text/read-json.ts'
import type { Outbound, OutboundResponse } from '../../lib/net/outbound.ts'
import type { Secret } from '../../lib/secret.ts'
import { askProvider } from './http.ts'
import { DnsProblem, type DnsProvider, type TxtRecord, zoneNames } from './provider.ts'

const base = 'https://api.cloudflare.com/client/v4'
const ttlSeconds = 60
/** "An identical record already exists", in its two numbers. */
const isThere: readonly unknown[] = [81_057, 81_058]
/** For tokens that are malformed, unknown, or without this permission. */
const isDenied: readonly unknown[] = [6003, 6111, 9106, 9109, 10_000, 10_001]

interface Answer {
  success: boolean
  codes: unknown[]
  result: unknown
}

const read = ({ body }: OutboundResponse): Answer => {
  try {
    const { success, errors, result } = readJson(body) as Record<string, unknown>
    const all = Array.isArray(errors) ? (errors as unknown[]) : []
    const codes = all.map((each) => (each as { code?: unknown } | null)?.code)
    return { success: success === true, codes, result }
  } catch {
    throw new DnsProblem('silent', { cause: 'its answer cannot be read' })
  }
}

const isId = (id: unknown): id is string => typeof id === 'string' && /^[0-9a-f]{32}$/.test(id)

const bare = (content: unknown): string => String(content).replace(/^"(.*)"$/, '$1')

export const createCloudflare = (outbound: Pick<Outbound, 'request'>, token: Secret): DnsProvider => {
  const ask = async (
    method: 'GET' | 'POST' | 'DELETE',
    path: string,
    signal: AbortSignal,
    { body, good = [] }: { body?: object; good?: readonly unknown[] } = {},
  ): Promise<unknown> => {
    const headers = { authorization: `Bearer ${token.reveal()}`, 'content-type': 'application/json' }
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    const answer = await askProvider(outbound, { method, url: new URL(base + path), headers, ...sent }, signal)
    if (answer.status === 404 && method === 'DELETE') return null
    const { success, codes, result } = read(answer)
    if (success || codes.some((code) => good.includes(code))) return result
    const { status } = answer
    if (status === 401 || status === 403 || codes.some((code) => isDenied.includes(code)))
      throw new DnsProblem('denied')
    const [code] = codes
    throw new DnsProblem('refused', { cause: Number.isInteger(code) ? `code ${String(code)}` : `status ${status}` })
  }
  const zoneOf = async (name: string, signal: AbortSignal): Promise<string> => {
    for (const zone of zoneNames(name)) {
      const found = await ask('GET', `/zones?name=${encodeURIComponent(zone)}`, signal)
      const [id] = (Array.isArray(found) ? (found as { id?: unknown; name?: unknown }[]) : [])
        .filter((each) => each?.name === zone)
        .map((each) => each.id)
      if (isId(id)) return id
    }
    throw new DnsProblem('zone')
  }
  const idsOf = async (zone: string, { name, value }: TxtRecord, signal: AbortSignal): Promise<string[]> => {
    const query = `type=TXT&name=${encodeURIComponent(name)}&per_page=100`
    const found = await ask('GET', `/zones/${zone}/dns_records?${query}`, signal)
    return (Array.isArray(found) ? (found as { id?: unknown; name?: unknown; content?: unknown }[]) : [])
      .filter((each) => each?.name === name && bare(each.content) === value)
      .map((each) => each.id)
      .filter(isId)
  }
  return {
    async check(name, signal) {
      await zoneOf(name, signal)
    },
    async set(record, signal) {
      const zone = await zoneOf(record.name, signal)
      const body = { type: 'TXT', name: record.name, content: `"${record.value}"`, ttl: ttlSeconds }
      await ask('POST', `/zones/${zone}/dns_records`, signal, { body, good: isThere })
    },
    async remove(record, signal) {
      const zone = await zoneOf(record.name, signal)
      for (const id of await idsOf(zone, record, signal))
        await ask('DELETE', `/zones/${zone}/dns_records/${id}`, signal)
    },
  }
}
