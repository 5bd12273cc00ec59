/** Clusters that are a Docker engine or Kubernetes: the checks when a cluster gets the credentials of one. */
import type { Context } from '../../api/operations/operation.ts'
import type { Answered, Spec, Write } from '../../api/operations/resource.ts'
import type { KeptIngress } from '../../clusters/kubernetes.ts'
import { isLocal } from '../../clusters/local.ts'
import { badRequest, invalidField } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { claim, readUser, refuseMove } from './engine-claims.ts'
import { identifyKept, readCredentials } from './machine-credentials.ts'
import { moduleOf } from './managed/requests.ts'

const refuseKind = (spec: Spec): void => {
  if (isLocal(spec))
    throw badRequest(
      'The default cluster is the Docker engine of this machine: create another cluster for these credentials.',
    )
  if (spec.cloud_provider !== 'ON_PREMISE' || spec.kubernetes !== 'SELF_MANAGED')
    throw badRequest(
      'These are credentials of a Docker engine or a Kubernetes cluster of your own: their cluster must be ON_PREMISE and SELF_MANAGED.',
    )
}

const idIn = (spec: Spec): string | undefined => {
  const { credentials } = (spec.cloud_provider_credentials ?? {}) as { credentials?: { id?: string } }
  return credentials?.id?.toLowerCase()
}

const ofKubernetes = {
  container_registry_id: 'nothing is pushed for it',
  ingress: "its services are reached by this server's router",
} as const

/** An ingress has either a Gateway or settings for its controller: the two exclude each other. */
const refuseMixed = (ingress: KeptIngress): void => {
  const wrong = (
    ['class_name', 'annotations', 'grpc_annotations', 'sticky_session_annotations', 'issuer'] as const
  ).find((name) => (ingress[name] ?? null) !== null)
  if ((ingress.gateway ?? null) !== null && wrong !== undefined)
    throw invalidField(
      `/ingress/${wrong}`,
      'must not be set beside a gateway, which has its own class and certificates',
    )
}

/** Fields of Kubernetes clusters have no effect on another cluster. */
export const refuseUnused = async (context: Context, spec: Spec): Promise<void> => {
  if ((spec.ingress ?? null) !== null) refuseMixed(spec.ingress as KeptIngress)
  const [name] = (Object.keys(ofKubernetes) as (keyof typeof ofKubernetes)[]).filter(
    (each) => (spec[each] ?? null) !== null,
  )
  if (name === undefined || moduleOf(context, spec) !== null) return
  const id = idIn(spec) ?? ''
  const row = isUuid(id) ? await readCredentials(context.db, context.principal.organizationId, id) : undefined
  if (row?.sealed.kubeconfig === undefined)
    throw invalidField(`/${name}`, `must not be set: the cluster is not a Kubernetes cluster, so ${ofKubernetes[name]}`)
}

/** The writes for a cluster that gets other credentials; null when they stay the same. */
export const prepareEngine = async (
  context: Context,
  spec: Spec,
  previous: { id: string; spec: Spec } | null,
): Promise<{ version?: string; claim(tx: Queryable, clusterId: string): Promise<void> } | null> => {
  const { db, parts, principal } = context
  const id = idIn(spec)
  if (id === (previous === null ? undefined : idIn(previous.spec)) || !principal.scopes.has('Admin')) return null
  const row = isUuid(id ?? '') ? await readCredentials(db, principal.organizationId, id!) : undefined
  const namesOne = row !== undefined && (row.spec.engine_url !== undefined || row.sealed.kubeconfig !== undefined)
  if (namesOne) refuseKind({ ...previous?.spec, ...spec })
  // A cluster made by a module has the engine in the module's outputs, whatever its credentials.
  if (spec.kubernetes === 'MANAGED') return { claim: async () => {} }
  const facts = row === undefined ? null : await identifyKept(context, row)
  if (previous !== null) await refuseMove(parts.clusters, await readUser(db, previous.id), facts)
  const write = (tx: Queryable, clusterId: string) => claim(tx, parts.settings.limits, clusterId, facts)
  return { ...(facts === null ? {} : { version: facts.version }), claim: write }
}

/**
 * Wraps a create or edit of clusters: connects to the engine that its credentials name, and assigns it to the cluster.
 */
export const withEngine = async (context: Context, write: Write): Promise<Answered> => {
  const { body, db, node } = context
  if (body.cloud_provider_credentials === undefined) return write(context)
  const [previous = null] =
    node.kind === 'cluster'
      ? await db.query<{ id: string; spec: Spec }>('select id, spec from node where id = $1', [node.id])
      : []
  const spec = { ...previous?.spec, ...body }
  const prepared = await prepareEngine(context, spec, previous)
  if (prepared === null) return write(context)
  const { claim: claimIt, ...shown } = prepared
  const isRead = shown.version !== undefined || moduleOf(context, spec) !== null
  if (!isRead) context.onlyRecorded(['cloud_provider_credentials'])
  return write(context, async (tx, record) => {
    await claimIt(tx, String(record.id))
    return { ...record, ...shown }
  })
}
