/**
 * Custom domains: host names that a user adds to a service. One routes to the default public port as soon as it is
 * created, without a deployment, and belongs to one service only. If the router has TLS, a certificate is ordered for it
 * (certificates/).
 */
import Type from 'typebox'
import {
  type Context,
  creating,
  editing,
  type Operation,
  operation,
  reading,
  removing,
} from '../../api/operations/operation.ts'
import { auditOf, placeOf } from '../../api/operations/resource.ts'
import { Flag, Maybe, Nullable, OneOf, Results, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { readRef } from '../../clusters/refs.ts'
import { auditTargetOf } from '../../kinds.ts'
import { forEachParallel } from '../../lib/concurrency/parallel.ts'
import { badRequest, conflict, invalidField, notFound } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { type Audit, lockNode, writeAudit } from '../../store/tree.ts'
import { type Facet, itemOf, onPart, onService, type Self } from '../facet.ts'
import { checkDomain, checkedStatuses } from './check.ts'
import {
  type CustomDomain,
  certificateSources,
  certificateStates,
  completeDomain,
  type DomainRequest,
  insertDomain,
  readDomains,
  routeDomainsNow,
  updateDomain,
} from './rows.ts'
import { checkUpload, removeUpload, saveUpload, type Upload, UploadBody } from './uploaded.ts'

const param = 'customDomainId'

const body = Type.Object(
  {
    domain: Text(253, {
      minLength: 1,
      description:
        'Routed to the default public port of the service. For a helm service: a host that the Ingress and routes of its chart may name, which route it; others are not installed.',
    }),
    generate_certificate: Maybe(
      Flag({
        default: false,
        description:
          'Orders a certificate for the domain and serves HTTPS, if this server does (`SLIPWAY_ROUTER_TLS_PORT`): `certificate` in the response says how far that is. On a Kubernetes cluster the issuer that its ingress names orders it, and all other hosts have one too; without an issuer it is refused.',
      }),
    ),
    use_cdn: Maybe(Flag({ default: false })),
  },
  { title: 'CustomDomainRequest' },
)

/** The certificate of a host name; null if none is wanted for it. */
export const Certificate = Type.Object(
  {
    state: OneOf(certificateStates),
    expires_at: Nullable(Timestamp()),
    reason: Nullable(Text(1024, { description: 'Why there is no certificate, or no newer one.' })),
    next_attempt_at: Nullable(Timestamp()),
    source: OneOf(certificateSources),
  },
  { title: 'HostCertificate' },
)

const answer = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    updated_at: Timestamp(),
    domain: Text(253),
    generate_certificate: Flag(),
    use_cdn: Flag(),
    validation_domain: Maybe(Text(253)),
    status: OneOf(['VALIDATION_PENDING']),
    certificate: Nullable(Certificate),
  },
  { title: 'CustomDomain' },
)

const checked = Type.Object(
  {
    domain_name: Text(253),
    status: OneOf(checkedStatuses),
    error_details: Nullable(Text(1024)),
  },
  { title: 'CheckedCustomDomain' },
)

const noTls = 'This server has no TLS: the operator turns it on with SLIPWAY_ROUTER_TLS_PORT.'
const noPort = 'The service has no public HTTP or gRPC port.'
const notHere =
  'The service runs on a Kubernetes cluster, whose own ingress has its certificates. Name who issues them: the cluster as `ingress.issuer`, or the operator of this server for all clusters (SLIPWAY_KUBERNETES_CERT_ISSUER).'
const ofChart = 'A chart has an Ingress of its own, which names its certificate.'
const orderedThere = (issuer: string): string =>
  `The issuer ${issuer} of the cluster orders it: kubectl get certificates shows its progress.`

/** The issuer of certificates on the service's cluster; null if there is none, and for our router. */
const issuerOf = async ({ parts, node }: Context, db: Queryable): Promise<string | null> => {
  const ref = await readRef(db, node.id)
  if (ref === null) return null
  return (await parts.clusters.of(ref.clusterId, db)).ingress.certificates?.issuer ?? null
}

/** Also for a certificate that has not been ordered yet. */
const certificateOf = (
  { generate_certificate: isWanted, certificate, ...row }: CustomDomain,
  hasTls: boolean,
  issuer: string | null,
) => {
  const isServed = row.refusal === null && hasTls && row.is_routed
  if (isServed && certificate !== null && (isWanted || certificate.source === 'UPLOADED')) return certificate
  if (!isWanted) return null
  const why = !hasTls ? noTls : row.validation_domain === null ? noPort : null
  const reason = row.refusal ?? (row.is_routed ? why : issuer === null ? notHere : orderedThere(issuer))
  return { state: 'WAITING' as const, expires_at: null, reason, next_attempt_at: null, source: 'ACME' as const }
}

const show = ({ parts }: Pick<Context, 'parts'>, row: CustomDomain, issuer: string | null) => {
  const { validation_domain: target, is_routed: _, refusal: __, ...kept } = row
  return {
    ...kept,
    ...(target === null ? {} : { validation_domain: target }),
    // The only value in the public API.
    status: 'VALIDATION_PENDING',
    certificate: certificateOf(row, parts.settings.routerTlsPort !== undefined, issuer),
  }
}

const onDomain = (self: Self) =>
  onPart(self, ['custom_domain', param], async (db, node, id) => {
    const rows = await readDomains(db, node.id, id)
    return rows.length === 0 ? null : { ...node, rows }
  })

const theOne = ({ node }: Context): CustomDomain => node.rows![0] as CustomDomain

/** A certificate can be requested only where an issuer orders it. */
const refuseUnissued = (
  { body: sent, node }: Pick<Context<Partial<DomainRequest> | undefined>, 'body' | 'node'>,
  row: CustomDomain | undefined,
  issuer: string | null,
): void => {
  if (sent?.generate_certificate !== true || row === undefined || row.is_routed) return
  const why = node.kind === 'helm' ? ofChart : issuer === null ? notHere : null
  if (why !== null) throw invalidField('/generate_certificate', why)
}

/** Writes the domain, its routes and the audit row in one transaction; returns the resulting domain. */
const change = (
  context: Context,
  eventType: Audit['eventType'],
  id: string,
  work: (tx: Queryable) => Promise<unknown>,
) =>
  context.transaction(async (tx) => {
    const { node, principal } = context
    const issuer = await issuerOf(context, tx)
    // In turns with other changes of its routes: each replaces all.
    if ((await lockNode(tx, node.id)) === null) throw notFound()
    await work(tx)
    await routeDomainsNow(tx, node.id)
    const [row] = await readDomains(tx, node.id, id)
    const target = { target: auditTargetOf(node.kind), subTarget: 'CUSTOM_DOMAIN' }
    refuseUnissued(context as Context<Partial<DomainRequest> | undefined>, row, issuer)
    const audit = auditOf(context, eventType, target, placeOf(node), row ?? null)
    await writeAudit(tx, principal.organizationId, node, audit)
    return row === undefined ? undefined : show(context, row, issuer)
  })

/** Hosts of a chart are removed by its next deployment: until then no other service may have the domain. */
const refuseRouted = async ({ parts, db, node }: Context, domain: string): Promise<void> => {
  const ref = node.kind === 'helm' ? await readRef(db, node.id) : null
  if (ref === null) return
  const { ingress } = await parts.clusters.of(ref.clusterId, db)
  const isRouted = ingress.leads === undefined ? false : await ingress.leads(ref, domain).catch(() => null)
  if (isRouted === null)
    throw conflict(
      'cluster_silent',
      'The cluster does not say whether the chart still publishes the domain: try again.',
    )
  if (isRouted)
    throw conflict(
      'domain_in_use',
      'The chart of the service still publishes this domain: deploy it with values that do not name it, or uninstall it, and try again.',
    )
}

// Its defaults are filled in.
const create = (context: Context<DomainRequest>) => {
  const { body: sent } = context
  const domainRequest = { ...sent, domain: completeDomain(sent.domain, context.parts.settings) }
  const ids = { id: newId(), organizationId: context.principal.organizationId, serviceId: context.node.id }
  return change(context, 'CREATE', ids.id, (tx) => insertDomain(tx, ids, domainRequest))
}

const edit = async (context: Context<Partial<DomainRequest>>) => {
  const before = theOne(context)
  const domainRequest: DomainRequest = { ...before, ...context.body }
  const domain = completeDomain(domainRequest.domain, context.parts.settings)
  if (domain !== before.domain) await refuseRouted(context, before.domain)
  return change(context, 'UPDATE', before.id, (tx) =>
    updateDomain(tx, { id: before.id, organizationId: context.principal.organizationId }, { ...domainRequest, domain }),
  )
}

const remove = async (context: Context) => {
  const { id, domain } = theOne(context)
  await refuseRouted(context, domain)
  return change(context, 'DELETE', id, (tx) => tx.query('delete from custom_domain where id = $1', [id]))
}

const checkedAtOnce = 16
const upload = async (context: Context<Upload>) => {
  if (context.parts.settings.routerTlsPort === undefined) throw badRequest(noTls)
  const domain = theOne(context)
  if (!domain.is_routed) throw badRequest(notHere)
  if (domain.refusal !== null) throw badRequest(domain.refusal)
  const checked = await checkUpload(context, domain)
  return change(context, 'UPDATE', domain.id, (tx) => saveUpload(tx, context, domain, checked))
}

const forgetUpload = (context: Context) => {
  const { id } = theOne(context)
  return change(context, 'UPDATE', id, (tx) => removeUpload(tx, id))
}

const checkAll = async ({ parts, db, node }: Context) => {
  const domains = await readDomains(db, node.id)
  const lookUp = (host: string) => parts.outbound.addressesOf(host)
  const results = new Map<string, Awaited<ReturnType<typeof checkDomain>>>()
  await forEachParallel(checkedAtOnce, domains, async (domain) => {
    results.set(domain.id, await checkDomain(lookUp, domain))
  })
  return { results: domains.map(({ id }) => results.get(id)!) }
}

const ofService = (self: Self, tag: string): Operation[] => {
  const { noun, nounWithArticle } = self
  const common = { path: `${itemOf(self)}/customDomain`, tag, ...onService(self) }
  return [
    operation({
      ...common,
      id: `list${noun}CustomDomain`,
      ...reading,
      summary: `List the custom domains of ${nounWithArticle}`,
      answer: Results(answer),
      async run(context) {
        const issuer = await issuerOf(context, context.db)
        return { results: (await readDomains(context.db, context.node.id)).map((row) => show(context, row, issuer)) }
      },
    }),
    operation({
      ...common,
      id: `create${noun}CustomDomain`,
      ...creating,
      summary: `Add a custom domain to ${nounWithArticle}; it takes effect immediately`,
      body,
      defaults: true,
      answer,
      run: create,
    }),
    operation({
      ...common,
      id: `check${noun}CustomDomain`,
      ...reading,
      path: `${itemOf(self)}/checkCustomDomain`,
      summary: `Check whether the custom domains of ${nounWithArticle} point to this server`,
      answer: Results(checked),
      run: checkAll,
    }),
  ]
}

const ofOne = (self: Self, tag: string, noun: string): Operation[] => {
  const path = `${itemOf(self)}/customDomain/{${param}}`
  const common = { path, tag, ...onDomain(self) }
  const read = { ...common, ...reading, answer }
  return [
    operation({
      ...read,
      id: `get${self.noun}CustomDomain`,
      summary: `Read a custom domain of ${self.nounWithArticle}`,
      run: async (context) => show(context, theOne(context), await issuerOf(context, context.db)),
    }),
    operation({
      ...read,
      id: `get${noun}Status`,
      path: `${path}/status`,
      summary: `Read the status of a custom domain of ${self.nounWithArticle}`,
      run: async (context) => show(context, theOne(context), await issuerOf(context, context.db)),
    }),
    operation({
      ...common,
      id: `edit${noun}`,
      ...editing,
      summary: `Change a custom domain of ${self.nounWithArticle}`,
      body: Type.Partial(body),
      answer,
      run: edit,
    }),
    operation({
      ...common,
      id: `delete${noun}`,
      ...removing,
      summary: `Remove a custom domain from ${self.nounWithArticle}`,
      run: remove,
    }),
    operation({
      ...common,
      id: `upload${noun}Certificate`,
      path: `${path}/certificate`,
      ...editing,
      summary: `Upload a certificate for a custom domain of ${self.nounWithArticle}; it takes effect immediately, in place of an ordered one`,
      body: UploadBody,
      answer,
      run: upload,
    }),
    operation({
      ...common,
      id: `delete${noun}Certificate`,
      path: `${path}/certificate`,
      ...removing,
      summary: `Remove the certificate that was brought for a custom domain of ${self.nounWithArticle}; one that is ordered takes its place`,
      run: forgetUpload,
    }),
  ]
}

/** `noun`: the suffix of ids about one domain, if it is not `<Word>CustomDomain`. */
export const customDomains =
  (noun?: string): Facet =>
  (self) => {
    const tag = `${self.noun} Custom Domain`
    return [...ofService(self, tag), ...ofOne(self, tag, noun ?? `${self.noun}CustomDomain`)]
  }
