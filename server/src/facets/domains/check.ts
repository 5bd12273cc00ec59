/** Whether a domain resolves to this machine, as far as its addresses show. */
import { networkInterfaces } from 'node:os'
import { OutboundFailed } from '../../lib/net/outbound.ts'
import { isWildcard, withoutStar } from '../../router/table/wildcard.ts'
import type { DomainToCheck } from './rows.ts'

export const checkedStatuses = [
  'RESOLVES_TO_IP',
  'MATCHES_LOAD_BALANCER_HOST',
  'DOMAIN_NOT_CONFIGURED',
  'DOMAIN_LINKED_TO_WRONG_HOST',
  'GENERIC_FAILURE',
] as const

export interface CheckedDomain {
  domain_name: string
  status: (typeof checkedStatuses)[number]
  error_details: string | null
}

const ownAddresses = (): Set<string> =>
  new Set(Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address)))

const isLoopback = (address: string): boolean => address.startsWith('127.') || address === '::1'

/** Names under localhost mean the client's own machine, whatever its resolver says. */
const isLocal = (domain: string): boolean => domain.endsWith('.localhost')

const failure = (error: unknown): Pick<CheckedDomain, 'status' | 'error_details'> => {
  const cause = error instanceof OutboundFailed ? (error.cause as { code?: string } | undefined)?.code : undefined
  if (cause === 'ENOTFOUND' || cause === 'ENODATA')
    return {
      status: 'DOMAIN_NOT_CONFIGURED',
      error_details: 'The domain name has no address: add a DNS record for it.',
    }
  return { status: 'GENERIC_FAILURE', error_details: 'No name server answered in time: try again later.' }
}

const strange =
  'The domain name points to another machine. This can be correct if this server is behind NAT or a load balancer.'

const statusOf = (addresses: readonly string[], useCdn: boolean): Pick<CheckedDomain, 'status' | 'error_details'> => {
  if (useCdn) return { status: 'RESOLVES_TO_IP', error_details: null }
  const own = ownAddresses()
  if (addresses.some((address) => own.has(address) || isLoopback(address)))
    return { status: 'MATCHES_LOAD_BALANCER_HOST', error_details: null }
  return { status: 'DOMAIN_LINKED_TO_WRONG_HOST', error_details: strange }
}

const none: readonly string[] = []

/** For a cluster with an ingress of its own: the domain must resolve to an address of the service's own name. */
const checkElsewhere = async (
  addressesOf: (host: string) => Promise<readonly string[]>,
  domain: string,
  target: string | null,
): Promise<Pick<CheckedDomain, 'status' | 'error_details'>> => {
  if (isLocal(domain)) return { status: 'RESOLVES_TO_IP', error_details: null }
  try {
    const [found, wanted] = await Promise.all([
      addressesOf(isWildcard(domain) ? `any.${withoutStar(domain)}` : domain),
      target === null || isLocal(target) ? none : addressesOf(target).catch(() => none),
    ])
    if (wanted.length === 0) return { status: 'RESOLVES_TO_IP', error_details: null }
    if (found.some((address) => wanted.includes(address)))
      return { status: 'MATCHES_LOAD_BALANCER_HOST', error_details: null }
    const details = `The domain name points to another machine than ${target}, which is where the cluster's ingress is.`
    return { status: 'DOMAIN_LINKED_TO_WRONG_HOST', error_details: details }
  } catch (error) {
    return failure(error)
  }
}

/** Never returns addresses: callers must not learn what a private name server knows. */
export const checkDomain = async (
  addressesOf: (host: string) => Promise<readonly string[]>,
  { domain, use_cdn: useCdn, is_routed: isRouted, validation_domain: target, refusal }: DomainToCheck,
): Promise<CheckedDomain> => {
  if (refusal !== null) return { domain_name: domain, status: 'GENERIC_FAILURE', error_details: refusal }
  if (!isRouted && !useCdn) return { domain_name: domain, ...(await checkElsewhere(addressesOf, domain, target)) }
  const found = isLocal(domain)
    ? statusOf(['127.0.0.1'], useCdn)
    : await addressesOf(isWildcard(domain) ? `any.${withoutStar(domain)}` : domain).then(
        (addresses) => statusOf(addresses, useCdn),
        failure,
      )
  return { domain_name: domain, ...found }
}
