/** Whether the names of services, and of the API, lead to this machine. */
import { networkInterfaces } from 'node:os'
import { type CheckedDomain, checkDomain } from '../facets/domains/check.ts'
import { type DomainToCheck, readDomainsToCheck } from '../facets/domains/rows.ts'
import { forEachParallel } from '../lib/concurrency/parallel.ts'
import { waitAtMost } from '../lib/concurrency/waiting.ts'
import { listed, type Problem, topic, warning } from '../lib/finding.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Queryable } from '../store/database.ts'

export interface NameFacts {
  /** Undefined: names end with `localhost`. */
  domain: string | undefined
  checked: readonly CheckedDomain[]
  /** How many names were not looked up in time. */
  late: number
  /** This machine has no address but its loopback. */
  isOffline: boolean
}

type AddressesOf = (host: string) => Promise<readonly string[]>

export interface NameSettings {
  domain?: string | undefined
  apiHost?: string | undefined
}

const mostNames = 200
const atOnce = 16
/** All names together. */
const deadlineMs = 8000

const isOffline = (): boolean =>
  !Object.values(networkInterfaces()).some((all = []) => all.some(({ internal }) => !internal))

/** Some name below the domain: that of a service is as good as any other. */
const anyName = 'slipway-doctor'

const ownNames = ({ domain, apiHost }: NameSettings): DomainToCheck[] =>
  [domain === undefined ? undefined : `${anyName}.${domain}`, apiHost]
    .filter((name) => name !== undefined)
    .map((name) => ({ domain: name, use_cdn: false, is_routed: true, validation_domain: null, refusal: null }))

export interface NamesReader {
  /** Null: only the names in the settings are looked up. */
  database: Queryable | null
  addressesOf: AddressesOf
  clock: Pick<Clock, 'sleep'>
}

export const readNames = async (
  { database, addressesOf, clock }: NamesReader,
  settings: NameSettings,
): Promise<NameFacts> => {
  const custom = database === null ? [] : await readDomainsToCheck(database, mostNames)
  const names = [...ownNames(settings), ...custom]
  const checked: CheckedDomain[] = []
  let isOver = false
  const all = forEachParallel(atOnce, names, async (name) => {
    if (!isOver) checked.push(await checkDomain(addressesOf, name))
  })
  await waitAtMost(clock, deadlineMs, all)
  isOver = true
  return {
    domain: settings.domain,
    checked: [...checked],
    late: names.length - checked.length,
    isOffline: isOffline(),
  }
}

const names = topic('names', 'Names')

const withStatus = (checked: readonly CheckedDomain[], status: CheckedDomain['status']): string[] =>
  checked.filter((each) => each.status === status).map(({ domain_name: name }) => name)

const problemsOf = (checked: readonly CheckedDomain[], late: number): Problem[] => {
  const [missing, wrong, silent] = [
    withStatus(checked, 'DOMAIN_NOT_CONFIGURED'),
    withStatus(checked, 'DOMAIN_LINKED_TO_WRONG_HOST'),
    withStatus(checked, 'GENERIC_FAILURE'),
  ]
  const unknown = silent.length + late
  return [
    ...(missing.length === 0
      ? []
      : [
          warning(
            `No address is found for ${listed(missing)}.`,
            'Add DNS records that lead to this machine: docs/guides/domains.md.',
          ),
        ]),
    ...(wrong.length === 0
      ? []
      : [
          warning(
            `Another machine has the address of ${listed(wrong)}.`,
            'Correct the DNS records, unless this server is behind NAT, a load balancer or a CDN that leads here.',
          ),
        ]),
    ...(unknown === 0
      ? []
      : [
          warning(
            `${unknown} names could not be looked up, or are not served${silent.length === 0 ? '' : `: ${listed(silent)}`}.`,
            'Check the name servers of this machine (/etc/resolv.conf), and the domains of the services.',
          ),
        ]),
  ]
}

export const judgeNames = ({ domain, checked, late, isOffline: offline }: NameFacts) => {
  const total = checked.length + late
  if (total === 0)
    return names.ok(
      domain === undefined
        ? 'The names of services end with localhost; no other domain is used.'
        : 'No domain is used.',
    )
  if (offline) return names.skipped('This machine has no network.')
  if (withStatus(checked, 'GENERIC_FAILURE').length + late === total)
    return names.skipped(`No name server answered for any of ${total} names.`)
  return names.judge(
    problemsOf(checked, late),
    total === 1 ? 'The only domain leads here.' : `All ${total} domains lead here.`,
  )
}
