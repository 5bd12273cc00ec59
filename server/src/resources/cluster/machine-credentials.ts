/**
 * Credentials that name a machine or a cluster of the organization's own: a Docker engine, or a Kubernetes cluster by
 * its kubeconfig. Promises that the engine of stored credentials was reached, and belongs to no other cluster.
 */
import type { Context } from '../../api/operations/operation.ts'
import type { Answered, Spec, Write } from '../../api/operations/resource.ts'
import {
  type EngineRow,
  type EngineSecrets,
  type EngineSpec,
  engineSecrets,
  openSecrets,
  readEngineUrl,
} from '../../clusters/engines.ts'
import { openKubeconfig } from '../../clusters/kubernetes.ts'
import { invalidField } from '../../lib/errors.ts'
import { Secret as Sealed } from '../../lib/secret.ts'
import type { Queryable } from '../../store/database.ts'
import { claim, type MachineFacts, readUsers, refuseMove } from './engine-claims.ts'
import {
  engineFields,
  engineFormOf,
  engineForms,
  type Form,
  identify,
  identifyChecked,
  isGiven,
} from './engine-credentials.ts'
import { identifyKubernetes, kubernetesFields, kubernetesForm } from './kubernetes-credentials.ts'

export const machineFields = { ...engineFields, ...kubernetesFields }
export const machineForms: readonly Form[] = [...engineForms, kubernetesForm]

const secretNames = [...engineSecrets, 'kubeconfig'] as const

/** The form that the sent fields select (`sent`), else that of the stored ones (`spec`, `sealed`). */
export const machineFormOf = (spec: Spec, sent: Spec, sealed: Record<string, string> = {}): Form => {
  const { kubeconfig } = sent
  const isKubernetes = kubeconfig === undefined ? sealed.kubeconfig !== undefined : isGiven(kubeconfig)
  return isKubernetes ? kubernetesForm : engineFormOf(spec)
}

/** Refuses fields that would otherwise be ignored silently. */
const refuseUnused = (body: Spec, spec: Spec, { choice }: Form): void => {
  const url = isGiven(spec.engine_url) ? readEngineUrl(String(spec.engine_url)) : null
  if (typeof url === 'string') throw invalidField('/engine_url', url)
  if (choice === kubernetesForm.choice && url !== null) {
    const [sent, other] = isGiven(body.kubeconfig) ? ['kubeconfig', 'engine_url'] : ['engine_url', 'kubeconfig']
    throw invalidField(`/${sent}`, `cannot be used together with \`${other}\`: send that one empty to remove it`)
  }
  const { needs, may = {} } = engineFormOf(spec)
  const unused = Object.keys(engineFields).find(
    (name) => isGiven(body[name]) && !needs.includes(name) && !(name in may),
  )
  if (unused === undefined) return
  const why = url === null ? 'requires `engine_url`' : 'is not used for an engine at this kind of address'
  throw invalidField(`/${unused}`, why)
}

const kind = 'onpremise_credentials'

type Kept = Pick<EngineRow, 'organizationId' | 'credentialsId' | 'sealed'> & { spec: Spec }

/** The credentials of an organization; undefined if there are none of this id. */
export const readCredentials = async (db: Queryable, organizationId: string, id: string): Promise<Kept | undefined> =>
  (
    await db.query<Kept>(
      `select organization_id as "organizationId", id as "credentialsId", spec, sealed from node
       where id = $1 and organization_id = $2 and kind = '${kind}'`,
      [id, organizationId],
    )
  )[0]

/** Their schema was checked, and both callers have made sure of the address. */
const engineSpecOf = (spec: Spec): EngineSpec => spec as unknown as EngineSpec

/** Connects to the engine of stored credentials; null if they name none. */
export const identifyKept = async (context: Context, kept: Kept): Promise<MachineFacts | null> => {
  const { sealer } = context.parts
  if (kept.sealed.kubeconfig !== undefined) return identifyKubernetes(context, await openKubeconfig(sealer, kept))
  if (kept.spec.engine_url === undefined) return null
  return identify(context, engineSpecOf(kept.spec), await openSecrets(sealer, kept))
}

const secretsOf = async ({ body, parts }: Context, kept: Kept | undefined): Promise<EngineSecrets> => {
  const secrets = kept === undefined ? {} : await openSecrets(parts.sealer, kept)
  for (const name of engineSecrets) if (isGiven(body[name])) secrets[name] = new Sealed(String(body[name]))
  return secrets
}

/** Undefined if something is missing: the write says what. */
const identifySent = async (
  context: Context,
  spec: Spec,
  kept: Kept | undefined,
  { choice, needs }: Form,
): Promise<MachineFacts | null | undefined> => {
  const { body, parts } = context
  if (choice === undefined) return null
  if (choice === kubernetesForm.choice)
    return identifyKubernetes(
      context,
      isGiven(body.kubeconfig) ? new Sealed(String(body.kubeconfig)) : await openKubeconfig(parts.sealer, kept!),
    )
  const secrets = await secretsOf(context, kept)
  if (needs.some((name) => !isGiven(spec[name]) && secrets[name as keyof EngineSecrets] === undefined)) return undefined
  return identifyChecked(context, engineSpecOf(spec), secrets)
}

const dropSecrets = `update node set sealed = sealed - $2::text[] where id = $1 and sealed ?| $2::text[]`

/** Wraps a create or edit of credentials: connects to the machine or cluster that they name before they are stored. */
export const checkedMachine = async (context: Context, write: Write): Promise<Answered> => {
  const { body, node, parts, principal } = context
  if (!Object.keys(machineFields).some((name) => body[name] !== undefined)) return write(context)
  const kept = node.kind === kind ? await readCredentials(context.db, principal.organizationId, node.id) : undefined
  const spec: Spec = { ...kept?.spec, ...body }
  const form = machineFormOf(spec, body, kept?.sealed)
  refuseUnused(body, spec, form)
  const facts = await identifySent(context, spec, kept, form)
  if (facts === undefined) return write(context)
  const users = kept === undefined ? [] : await readUsers(context.db, kept.credentialsId)
  await refuseMove(parts.clusters, users, facts)
  return write(context, async (tx, record) => {
    const unused = secretNames.filter((name) => !form.needs.includes(name))
    await tx.query(dropSecrets, [record.id, unused])
    for (const { clusterId } of users) await claim(tx, parts.settings.limits, clusterId, facts)
    return record
  })
}
