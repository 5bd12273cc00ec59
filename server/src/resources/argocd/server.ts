/**
 * An Argo CD as seen through its own API: whether it answers, what a token may see there, and which clusters it deploys
 * to. Requests go through the outbound policy; only the few fields below are read.
 */
import { isObject, type Json, listOf } from '../../lib/foreign-text/fields.ts'
import type { Keep } from '../../lib/foreign-text/keep.ts'
import { ForeignTextError, readLargeJson } from '../../lib/foreign-text/read-json.ts'
import { type Outbound, OutboundFailed } from '../../lib/net/outbound.ts'

/** A cluster that an Argo CD deploys to, with the address that it uses for it. */
export interface Destination {
  url: string
  name: string
  applications: number
}

export interface Findings {
  status: 'connected' | 'error'
  reason?: 'authentication_failed' | 'unreachable' | 'insufficient_permissions'
  appCount?: number
  destinations: Destination[]
}

const maxBytes = 8 * 1024 * 1024
const maxDestinations = 200
const maxText = 1024

const failed = (reason: NonNullable<Findings['reason']>): Findings => ({ status: 'error', reason, destinations: [] })

/** The parts of lists that are kept. */
const keep: Keep = {
  items: [{ server: true, name: true, spec: { destination: { server: true, name: true } } }],
}

const parse = async (text: string, owner: string): Promise<Json | null> => {
  const options = { mostBytes: maxBytes, mostValues: 1_000_000, owner, keep }
  const value = await readLargeJson(text, options).catch((error: unknown) => {
    if (error instanceof ForeignTextError) return null
    throw error
  })
  return isObject(value) ? value : null
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value.slice(0, maxText) : '')

/** Applications by the address or name of their destination; then the known details of those destinations. */
const destinationsOf = (applications: readonly Json[], clusters: readonly Json[]): Destination[] => {
  const found = new Map<string, Destination>()
  for (const { server, name } of clusters)
    if (textOf(server) !== '') found.set(textOf(server), { url: textOf(server), name: textOf(name), applications: 0 })
  for (const { spec } of applications) {
    const destination = isObject(spec) && isObject(spec.destination) ? spec.destination : {}
    const [url, name] = [textOf(destination.server), textOf(destination.name)]
    const known = found.get(url) ?? [...found.values()].find((each) => name !== '' && each.name === name)
    if (known !== undefined) known.applications += 1
    else if (url !== '') found.set(url, { url, name: name === '' ? url : name, applications: 1 })
  }
  return [...found.values()].slice(0, maxDestinations)
}

const judgeStatus = (status: number): Findings | null => {
  if (status === 401) return failed('authentication_failed')
  if (status === 403) return failed('insufficient_permissions')
  return status === 200 ? null : failed('unreachable')
}

/** The findings of an Argo CD for a token. Rejects with `OutboundRefused` where the policy forbids its address. */
export const askArgo = async (outbound: Outbound, address: string, token: string): Promise<Findings> => {
  const get = (path: string) =>
    outbound.request({
      method: 'GET',
      url: `${address}${path}`,
      headers: { authorization: `Bearer ${token}`, accept: 'application/json' },
      maxResponseBytes: maxBytes,
    })
  try {
    const version = await get('/api/version')
    const refused = judgeStatus(version.status)
    if (refused !== null || (await parse(version.body, address)) === null) return refused ?? failed('unreachable')
    const answer = await get('/api/v1/applications?fields=items.metadata.name,items.spec.destination')
    const applications = await parse(answer.body, address)
    const wrong = judgeStatus(answer.status)
    if (wrong !== null || applications === null) return wrong ?? failed('unreachable')
    // A token may see applications but not the clusters they deploy to.
    const clusters = await get('/api/v1/clusters')
    const known = clusters.status === 200 ? ((await parse(clusters.body, address)) ?? {}) : {}
    const items = listOf(applications.items)
    return { status: 'connected', appCount: items.length, destinations: destinationsOf(items, listOf(known.items)) }
  } catch (error) {
    if (error instanceof OutboundFailed) return failed('unreachable')
    throw error
  }
}
