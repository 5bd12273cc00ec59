/**
 * Clones: the whole configuration of an environment or of one service, without data and without deploying it. Promises
 * that nothing in a clone refers to its source, and that a clone is made completely or not at all.
 */
import Type from 'typebox'
import { type Mode, modes } from '../../api/auth/permissions.ts'
import { type Context, nodeInPath, type Operation, operation } from '../../api/operations/operation.ts'
import { auditOf, checkRefs, type Spec, translateWrite } from '../../api/operations/resource-writes.ts'
import { Flag, Maybe, Name, OneOf, Ref } from '../../api/operations/schema.ts'
import { refuseWhileDeleting } from '../../deployments/status/service-state.ts'
import { copyStages } from '../../environments/stage-writes.ts'
import { itemOf, ownerOf } from '../../facets/facet.ts'
import { isOwn, type Kind } from '../../kinds.ts'
import { conflict } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { usualLimits } from '../../limits/limits.ts'
import { refuseTooMuch } from '../../limits/service-room.ts'
import type { Queryable } from '../../store/database.ts'
import { insertNode, insertSql, type Node, writeAudit } from '../../store/tree.ts'
import { copyVariables, sealedTexts } from '../../variables/copy.ts'
import { renamer } from '../../variables/rename.ts'
import { lookUpHeadsAgain } from '../service/git-head.ts'
import type { Service } from '../service/service.ts'
import { type Copy, type CopySource, finishCopy, insertCopy, lockSources, prepareCopy } from './copy-service.ts'
import { readRules } from './deployment-rule.ts'
import { environment } from './environment.ts'
import { type KeptRule, keptRuleOf } from './environment-rule.ts'
import { fitsWildcard } from './wildcard.ts'

/** Reads the data keys that a clone will need, so that its transaction needs no second connection. */
const prepareSealing = async (
  { db, parts, principal, node }: Context,
  serviceIds: readonly string[],
): Promise<void> => {
  const { organizationId } = principal
  const place = (table: string, row: string, column: string) => ({ table, row, column })
  for (const { id, sealed } of await sealedTexts(db, [node.id, ...serviceIds]))
    await parts.sealer.open(organizationId, place('variable', id, 'value'), sealed)
  const rows = await db.query<CopySource>('select id, sealed from node where id = any($1)', [serviceIds])
  for (const { id, sealed } of rows)
    for (const [column, text] of Object.entries(sealed))
      await parts.sealer.open(organizationId, place('node', id, column), text)
  await parts.sealer.prepare(organizationId)
}

/** Locks an environment; 409 if it is deleted or being deleted. */
const lockTargetEnvironment = async (tx: Queryable, id: string): Promise<Node & { spec: Spec }> => {
  const [row] = await tx.query<Node & { spec: Spec }>(
    `select id, organization_id as "organizationId", kind, parent_id as "parentId", null as "grandparentId", name, spec
     from node where id = $1 and kind = 'environment' for no key update`,
    [id],
  )
  if (row === undefined) throw conflict('environment_gone', 'The environment has been deleted in the meantime.')
  await refuseWhileDeleting(tx, id)
  return row
}

const serviceIdsOf = async (db: Queryable, environmentId: string): Promise<string[]> =>
  (
    await db.query<{ id: string }>('select service_id as id from service_state where environment_id = $1', [
      environmentId,
    ])
  ).map(({ id }) => id)

const writeClone = (tx: Queryable, context: Context, made: Node, projectId: string | null, type: string) => {
  const place = { projectId, environmentId: made.kind === 'environment' ? made.id : made.parentId }
  const audit = auditOf(context, 'CREATE', { target: type }, place, { cloned_from: context.node.id, name: made.name })
  return writeAudit(tx, made.organizationId, made, { ...audit, eventType: 'CLONE' })
}

interface Around {
  from: { environment: string; project: string }
  to: { environment: string; project: string }
}

const copyAll = async (
  tx: Queryable,
  context: Context,
  copies: readonly Copy[],
  ids: ReadonlyMap<string, string>,
  { from, to }: Around,
  places: ReadonlyMap<string, string>,
): Promise<void> => {
  for (const copy of copies) await insertCopy(tx, context, copy)
  const there = await tx.query<{ id: string }>(`select id from node where parent_id = $1 and name_scope = 'service'`, [
    to.environment,
  ])
  // Variables are written before the states of their services, which each variable would otherwise update.
  await copyVariables(tx, context.parts.sealer, {
    organizationId: context.principal.organizationId,
    places,
    around: new Map([...ids, [from.environment, to.environment], [from.project, to.project]]),
    wider: [to.project, to.environment],
    neighbours: there.map(({ id }) => id),
    rename: renamer(ids),
  })
  for (const copy of copies) await finishCopy(tx, context, copy)
}

/** The last step of a clone: all its services together must fit the organization's limits. */
const judgeCopies = (tx: Queryable, { parts, principal }: Context, copies: readonly Copy[]): Promise<void> => {
  const { limits = usualLimits } = parts.settings
  return refuseTooMuch(
    tx,
    limits,
    principal.organizationId,
    copies.map(({ id }) => id),
  )
}

const lookUpHeads = (context: Context, copies: readonly Copy[]): void => {
  const built = copies.flatMap(({ id, service: { definition } }) =>
    definition.git === undefined ? [] : [{ id, path: definition.git }],
  )
  void lookUpHeadsAgain(context, built)
}

const findService = (services: readonly Service[], kind: Kind): Service => {
  const found = services.find(({ definition }) => definition.kind === kind)
  if (found === undefined) throw new Error(`unknown service kind ${kind}`)
  return found
}

const ServiceBody = Type.Object({ name: Name(), environment_id: Ref('environment') }, { title: 'CloneServiceRequest' })

const cloneService = (service: Service) => async (context: Context<Type.Static<typeof ServiceBody>>) => {
  const { node, body, principal } = context
  await checkRefs(context.db, ServiceBody, body, principal.organizationId)
  await context.authorizeAlso(body.environment_id)
  await prepareSealing(context, [node.id])
  const target = body.environment_id.toLowerCase()
  const copies: Copy[] = []
  const made = await context.transaction(async (tx) => {
    const parent = await lockTargetEnvironment(tx, target)
    if (target !== node.parentId) await refuseWhileDeleting(tx, node.parentId!)
    const [source] = await lockSources(tx, [node.id])
    if (source === undefined) throw conflict('service_gone', 'The service has been deleted in the meantime.')
    const ids = new Map([[node.id, newId()]])
    const wanted = { id: ids.get(node.id)!, name: body.name, parent }
    const copy = await prepareCopy(tx, context, service, source, wanted, renamer(ids))
    copies.push(copy)
    const from = { environment: node.parentId!, project: node.grandparentId! }
    const around = { from, to: { environment: target, project: parent.parentId! } }
    await copyAll(tx, context, [copy], ids, around, ids)
    const made = { ...node, id: copy.id, name: copy.name, parentId: target }
    await writeClone(tx, context, made, parent.parentId, service.resource.audit.target)
    await judgeCopies(tx, context, [copy])
    return (await service.readAll(tx, target)).find(({ id }) => id === copy.id)
  })
  lookUpHeads(context, copies)
  return made
}

const serviceOperation = (service: Service): Operation => {
  const { definition, answer } = service
  return operation({
    id: `clone${definition.noun}`,
    method: 'POST',
    path: `${itemOf(definition)}/clone`,
    tag: `${definition.noun}s`,
    summary: `Clone ${definition.nounWithArticle} into an environment: configuration and variables, but no data; the clone is not deployed`,
    scope: 'Write',
    area: 'projects',
    cluster: 'ENV_CREATOR',
    owner: ownerOf(definition),
    body: ServiceBody,
    status: 202,
    answer,
    run: cloneService(service),
  })
}

const EnvironmentBody = Type.Object(
  {
    name: Name(),
    cluster_id: Maybe(Ref('cluster')),
    mode: Maybe(OneOf(modes)),
    apply_deployment_rule: Maybe(Flag({ default: false })),
    project_id: Maybe(Ref('project')),
  },
  { title: 'CloneEnvironmentRequest' },
)

export type EnvironmentRequest = Type.Static<typeof EnvironmentBody>

/**
 * The source's configuration, changed by the rule and, with precedence, by the body. A clone does not get previews of
 * its own if the source has them.
 */
const specOf = async (tx: Queryable, source: Spec, wish: EnvironmentRequest, projectId: string): Promise<Spec> => {
  const rules = wish.apply_deployment_rule === true ? await readRules(tx, projectId) : []
  const rule = rules.find((each) => fitsWildcard(String(each.wildcard ?? ''), wish.name))
  const ruled =
    rule === undefined ? {} : { mode: rule.mode, cluster_id: rule.cluster_id, deployment_rule: keptRuleOf(rule) }
  const { deployment_rule: kept, ...rest } = source as Spec & { deployment_rule?: KeptRule }
  const { updated_at: _, ...rested } = kept ?? {}
  return {
    ...rest,
    ...(kept === undefined ? {} : { deployment_rule: { ...rested, auto_preview: false } }),
    ...ruled,
    ...(wish.mode === undefined ? {} : { mode: wish.mode }),
    ...(wish.cluster_id === undefined ? {} : { cluster_id: wish.cluster_id.toLowerCase() }),
  }
}

const insertEnvironment = insertSql('environment', 'environment', environment.recordText)

const addEnvironment = async (tx: Queryable, context: Context, made: Node, spec: Spec): Promise<string> => {
  const { organizationId, tokenId } = context.principal
  const place = { projectId: made.parentId, environmentId: made.id }
  const change = { cloned_from: context.node.id, name: made.name }
  const audit = auditOf(context, 'CREATE', { target: 'ENVIRONMENT' }, place, change)
  const row = {
    id: made.id,
    organizationId,
    parentId: made.parentId,
    name: made.name,
    spec,
    sealed: {},
    updatedBy: tokenId,
  }
  const asClone = { ...audit, eventType: 'CLONE' as 'CREATE' }
  return insertNode(tx, insertEnvironment, row, asClone).catch((error: unknown) => {
    throw translateWrite(error)
  })
}

/** In the transaction of the context, which may do more in it. */
export const cloneEnvironment = (services: readonly Service[]) => async (context: Context<EnvironmentRequest>) => {
  const { node, principal, body: wish } = context
  await checkRefs(context.db, EnvironmentBody, wish, principal.organizationId)
  await prepareSealing(context, await serviceIdsOf(context.db, node.id))
  const copies: Copy[] = []
  const answer = await context.transaction(async (tx) => {
    const source = await lockTargetEnvironment(tx, node.id)
    const sources = await lockSources(tx, await serviceIdsOf(tx, node.id))
    const projectId = wish.project_id?.toLowerCase() ?? source.parentId!
    const made: Node = { ...source, id: newId(), parentId: projectId, name: wish.name }
    const spec = await specOf(tx, source.spec, wish, projectId)
    await context.authorizeAlso({ projectId, mode: spec.mode as Mode, clusterId: String(spec.cluster_id) })
    const record = await addEnvironment(tx, context, made, spec)
    const ids = new Map(sources.map(({ id }) => [id, newId()]))
    const places = new Map([...ids, [node.id, made.id]])
    for (const one of sources) {
      const wanted = { id: ids.get(one.id)!, name: one.name, parent: made }
      copies.push(await prepareCopy(tx, context, findService(services, one.kind), one, wanted, renamer(places)))
    }
    const from = { environment: node.id, project: source.parentId! }
    await copyAll(tx, context, copies, places, { from, to: { environment: made.id, project: projectId } }, places)
    await copyStages(tx, { organizationId: principal.organizationId, from: node.id, to: made.id, services: ids })
    await judgeCopies(tx, context, copies)
    return JSON.parse(record) as Spec
  })
  lookUpHeads(context, copies)
  return answer
}

const environmentOperation = (services: readonly Service[]): Operation =>
  operation({
    id: 'cloneEnvironment',
    method: 'POST',
    path: '/environment/{environmentId}/clone',
    tag: 'Environment Actions',
    summary: 'Clone an environment: services, variables and stages, but no data; nothing is deployed',
    scope: 'Write',
    area: 'projects',
    cluster: 'ENV_CREATOR',
    owner: nodeInPath('environment', 'environmentId'),
    body: EnvironmentBody,
    defaults: true,
    status: 202,
    answer: environment.answer,
    run: cloneEnvironment(services),
  })

/** The public API has no clone of a single Argo CD app: it is cloned with its environment. */
const isCloned = ({ definition }: Service): boolean => isOwn(definition.kind)

/** A clone operation for each kind of service, and the one of environments. */
export const cloneOperations = (services: readonly Service[]): Operation[] => [
  environmentOperation(services),
  ...services.filter(isCloned).map(serviceOperation),
]
