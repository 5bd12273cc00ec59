/**
 * The DNS provider for the host names of a cluster's services; by default this server's own domain. On a Kubernetes
 * cluster its domain is that of the services' names, and must resolve to the cluster's ingress; the user manages the
 * records. The keys of a provider are sealed and never answered: a change must send them again.
 */
import Type, { type TObject } from 'typebox'
import { type Context, type Operation, operation, reading } from '../../api/operations/operation.ts'
import type { Spec } from '../../api/operations/resource.ts'
import { Flag, Maybe, Nullable, OneOf, Recorded, Secret, Text } from '../../api/operations/schema.ts'
import { changeInner, type InnerChange, readInner } from '../../facets/settings/inner-configuration.ts'
import { badRequest, invalidField } from '../../lib/errors.ts'
import { domainName } from '../../lib/net/domain-name.ts'
import type { Queryable } from '../../store/database.ts'
import { clusterDomainSql, nameHosts } from '../../store/installation.ts'
import { reservedSql } from '../../store/reserved-hosts.ts'
import { FormsOf, openForms, readFormBy } from '../forms.ts'
import { clusterInPath, isDocker } from './rows.ts'

const path = '/cluster/{clusterId}/dnsProvider'
const field = 'dns_provider'
const column = 'dns_provider.key'

const Needed = (maxLength = 255) => Text(maxLength, { minLength: 1 })

const noRecords = 'this server writes no DNS records: set those of the domain there.'

/** For a Kubernetes cluster: the domain of its services' names. */
const Domain = () => Needed()

const forms: Record<string, TObject> = {
  QOVERY: Type.Object({ domain: Domain() }),
  CLOUDFLARE: Type.Object({
    domain: Domain(),
    email: Recorded(Needed(320), noRecords),
    api_token: Recorded(Secret(4096), noRecords),
    proxied: Maybe(Recorded(Flag({ default: false }), noRecords)),
  }),
  ROUTE53: Type.Object({
    domain: Domain(),
    credentials: Recorded(
      Type.Object({
        type: OneOf(['STATIC']),
        aws_access_key_id: Needed(),
        aws_secret_access_key: Secret(4096),
      }),
      noRecords,
    ),
    aws_region: Recorded(Needed(), noRecords),
    hosted_zone_id: Maybe(Recorded(Nullable(Text()), noRecords)),
  }),
}

/** The suffix of services' host names unless they have custom domains. */
const ownDomain = async ({ db, node }: Context): Promise<Spec> => {
  const [row] = await db.query<{ domain: string }>(
    `select ${clusterDomainSql('c')} as domain from node c where c.id = $1`,
    [node.id],
  )
  return { provider: 'QOVERY', domain: row!.domain }
}

/** Names of services below the platform's own domain belong to the platform, and resolve to its router. */
const checkDomain = async (tx: Queryable, organizationId: string, sent: string): Promise<string> => {
  if (sent === 'localhost') return sent
  const read = domainName(sent)
  if (typeof read === 'string') throw invalidField('/dns_provider/domain', `must be ${read}`)
  const [row] = await tx.query<{ reserved: string | null }>(`select ${reservedSql('$1', '$2')} as reserved`, [
    read.value,
    organizationId,
  ])
  if (row!.reserved !== null)
    throw invalidField('/dns_provider/domain', 'must not be a name of this server, which resolves to its own router')
  return read.value
}

const Request = Type.Object({
  dns_provider: FormsOf('provider', forms, Recorded(OneOf(Object.keys(forms)), noRecords)),
})
const Provider = Type.Object({ dns_provider: FormsOf('provider', openForms(forms)) })

const withoutKey = ({ api_token: _, credentials, ...rest }: Spec): Spec => {
  if (credentials === undefined) return rest
  const { aws_secret_access_key: __, ...open } = credentials as Spec
  return { ...rest, credentials: open }
}

const keyOf = ({ api_token: token, credentials }: Spec): string | null =>
  (token ?? (credentials as Spec | undefined)?.aws_secret_access_key ?? null) as string | null

const seal = async ({ node, parts, principal }: Context, key: string | null): Promise<string | null> =>
  key === null ? null : parts.sealer.seal(principal.organizationId, { table: 'node', row: node.id, column }, key)

const update = `update node set sealed = case when $2::text is null then sealed - '${column}'
  else sealed || jsonb_build_object('${column}', $2::text) end where id = $1`

const replace = async (context: Context<Type.Static<typeof Request>>) => {
  const sent = readFormBy('provider', forms, context.body.dns_provider, '/dns_provider')
  if (await isDocker(context, context.db))
    throw badRequest(
      'A Docker engine does not manage DNS: point the names at this server and add them as custom domains.',
    )
  const domain = await checkDomain(context.db, context.principal.organizationId, String(sent.domain))
  const sealed = await seal(context, keyOf(sent))
  const transaction = <T>(work: (tx: Queryable) => Promise<T>): Promise<T> =>
    context.transaction(async (tx) => {
      const answer = await work(tx)
      await tx.query(update, [context.node.id, sealed])
      await nameHosts(tx, context.node.id)
      return answer
    })
  const target = { field, empty: await ownDomain(context), eventType: 'UPDATE', subTarget: 'DNS_PROVIDER' } as const
  const wanted: InnerChange<Spec> = { ...target, change: () => ({ ...withoutKey(sent), domain }) }
  return changeInner({ ...context, transaction }, wanted, (kept) => ({ dns_provider: kept }))
}

export const clusterDnsOperations: Operation[] = [
  operation({
    id: 'getClusterDnsProvider',
    ...reading,
    path,
    tag: 'Clusters',
    summary: "Read the DNS provider for the host names of a cluster's services",
    area: 'clusters',
    cluster: 'VIEWER',
    owner: clusterInPath,
    answer: Provider,
    run: async (context) => ({
      dns_provider: await readInner<Spec>(context.db, context.node.id, field, await ownDomain(context)),
    }),
  }),
  operation({
    id: 'editClusterDnsProvider',
    method: 'PUT',
    path,
    tag: 'Clusters',
    summary: "Set the DNS provider for the host names of a cluster's services",
    scope: 'Admin',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInPath,
    body: Request,
    status: 200,
    answer: Provider,
    run: replace,
  }),
]
