/**
 * Route 53, with an access key that may list hosted zones and their records, and change records. All texts of one name
 * are one record set there: a change names the set that it replaces, and is repeated if that has changed meanwhile.
 */
import { type AwsKeys, signAws } from '../../lib/net/aws-signature.ts'
import type { Outbound, OutboundResponse } from '../../lib/net/outbound.ts'
import type { Secret } from '../../lib/secret.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { askProvider } from './http.ts'
import { DnsProblem, type DnsProvider, type TxtRecord, zoneNames } from './provider.ts'

const base = 'https://route53.amazonaws.com/2013-04-01'
const place = { region: 'us-east-1', service: 'route53' }
const ttlSeconds = 60
const attempts = 5

export interface Route53Keys {
  accessKey: string
  secretKey: Secret
}

const denied = [
  'AccessDenied',
  'AccessDeniedException',
  'InvalidClientTokenId',
  'SignatureDoesNotMatch',
  'ExpiredToken',
]
const limited = ['Throttling', 'ThrottlingException', 'PriorRequestNotComplete']

/** The text of the first element of this name, as it is written. */
const textOf = (xml: string, name: string): string | undefined =>
  new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1]

const elementsOf = (xml: string, name: string): string[] =>
  xml
    .split(`<${name}>`)
    .slice(1)
    .map((part) => part.split(`</${name}>`)[0]!)

const failure = ({ status, body }: OutboundResponse): DnsProblem => {
  const code = textOf(body, 'Code') ?? ''
  if (denied.includes(code) || status === 401 || status === 403) return new DnsProblem('denied')
  if (limited.includes(code)) return new DnsProblem('limited')
  if (code === 'NoSuchHostedZone') return new DnsProblem('zone')
  return new DnsProblem('refused', { cause: /^\w{1,60}$/.test(code) ? code : `status ${status}` })
}

/** The texts of a name, as they are written in XML. */
interface Texts {
  ttl: string
  values: readonly string[]
}

const change = (action: 'CREATE' | 'DELETE', name: string, { ttl, values }: Texts): string => {
  const records = values.map((value) => `<ResourceRecord><Value>${value}</Value></ResourceRecord>`).join('')
  const set = `<Name>${name}.</Name><Type>TXT</Type><TTL>${ttl}</TTL><ResourceRecords>${records}</ResourceRecords>`
  return `<Change><Action>${action}</Action><ResourceRecordSet>${set}</ResourceRecordSet></Change>`
}

const batch = (changes: readonly string[]): string =>
  `<?xml version="1.0" encoding="UTF-8"?><ChangeResourceRecordSetsRequest xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><ChangeBatch><Changes>${changes.join('')}</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>`

const textsIn = (body: string, name: string): Texts | null => {
  const [set] = elementsOf(body, 'ResourceRecordSet')
  if (set === undefined || textOf(set, 'Name') !== `${name}.` || textOf(set, 'Type') !== 'TXT') return null
  const ttl = textOf(set, 'TTL')
  if (ttl === undefined || set.includes('<SetIdentifier>'))
    throw new DnsProblem('refused', { cause: 'its TXT record has a routing policy' })
  const values = elementsOf(set, 'ResourceRecord').flatMap((each) => textOf(each, 'Value') ?? [])
  return { ttl, values }
}

/** Value of a record, as AWS writes it and as we do. */
const isValue = (written: string, value: string): boolean => written.replaceAll('&quot;', '"') === `"${value}"`

export const createRoute53 = (
  outbound: Pick<Outbound, 'request'>,
  { accessKey, secretKey }: Route53Keys,
  clock: Pick<Clock, 'now'>,
): DnsProvider => {
  const ask = async (
    method: 'GET' | 'POST',
    path: string,
    signal: AbortSignal,
    body = '',
  ): Promise<OutboundResponse> => {
    const keys: AwsKeys = { accessKey, secretKey: secretKey.reveal() }
    const url = new URL(base + path)
    const own: Record<string, string> = body === '' ? {} : { 'content-type': 'application/xml' }
    const headers = signAws({ method, url, headers: own, body, ...place }, keys, clock.now())
    return askProvider(outbound, { method, url, headers, ...(body === '' ? {} : { body }) }, signal)
  }
  const zoneOf = async (name: string, signal: AbortSignal): Promise<string> => {
    for (const zone of zoneNames(name)) {
      const answer = await ask('GET', `/hostedzonesbyname?dnsname=${zone}&maxitems=10`, signal)
      if (answer.status !== 200) throw failure(answer)
      const found = elementsOf(answer.body, 'HostedZone').find(
        (each) => textOf(each, 'Name') === `${zone}.` && textOf(each, 'PrivateZone') !== 'true',
      )
      const id = /^\/hostedzone\/([A-Z0-9]{1,32})$/.exec(textOf(found ?? '', 'Id') ?? '')?.[1]
      if (id !== undefined) return id
    }
    throw new DnsProblem('zone')
  }
  /** `edit` returns the new values, or null if nothing changes. */
  const edit = async (
    name: string,
    signal: AbortSignal,
    next: (values: readonly string[]) => readonly string[] | null,
  ): Promise<void> => {
    const zone = await zoneOf(name, signal)
    for (let attempt = 1; ; attempt += 1) {
      const listed = await ask('GET', `/hostedzone/${zone}/rrset?maxitems=1&name=${name}&type=TXT`, signal)
      if (listed.status !== 200) throw failure(listed)
      const before = textsIn(listed.body, name)
      const values = next(before?.values ?? [])
      if (values === null) return
      const after = values.length === 0 ? [] : [change('CREATE', name, { ttl: before?.ttl ?? `${ttlSeconds}`, values })]
      const changes = [...(before === null ? [] : [change('DELETE', name, before)]), ...after]
      const answer = await ask('POST', `/hostedzone/${zone}/rrset/`, signal, batch(changes))
      if (answer.status === 200) return
      const hasChanged = answer.status === 400 && answer.body.includes('InvalidChangeBatch')
      if (!hasChanged || attempt === attempts) throw failure(answer)
    }
  }
  return {
    async check(name, signal) {
      await zoneOf(name, signal)
    },
    set: ({ name, value }: TxtRecord, signal) =>
      edit(name, signal, (values) =>
        values.some((each) => isValue(each, value)) ? null : [...values, `&quot;${value}&quot;`],
      ),
    remove: ({ name, value }: TxtRecord, signal) =>
      edit(name, signal, (values) => {
        const left = values.filter((each) => !isValue(each, value))
        return left.length === values.length ? null : left
      }),
  }
}
