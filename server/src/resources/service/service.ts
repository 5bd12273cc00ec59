/**
 * A kind of service: its five operations, its state row, its host names, and its facets. Promises that a kind defines
 * only what is its own: its configuration, how that is validated and shown, and what the engine runs.
 */
import Type, { type TObject, type TSchema } from 'typebox'
import { actingIn, pointerTo, withoutEffectIn } from '../../api/operations/effects.ts'
import { type Context, type FieldsOf, JsonText, type Operation } from '../../api/operations/operation.ts'
import { type Change, type ResourceDefinition, resource, type Spec } from '../../api/operations/resource.ts'
import {
  Computed,
  Flag,
  List,
  Maybe,
  merge,
  Name,
  Nullable,
  OneOf,
  Open,
  Ref,
  Reference,
  Text,
  Whole,
} from '../../api/operations/schema.ts'
import { serviceCapacitySql } from '../../clusters/capacity.ts'
import type { DeployableKind } from '../../deployments/deployments.ts'
import { refuseWhileDeleting } from '../../deployments/status/service-state.ts'
import { releaseUnusedPorts } from '../../deployments/traffic/published-ports.ts'
import { type Facet, itemOf, paramOf, type Self } from '../../facets/facet.ts'
import { withoutInner } from '../../facets/settings/inner-configuration.ts'
import { type Kind, kinds, serviceTypes, typeOf } from '../../kinds.ts'
import type { Secret } from '../../lib/secret.ts'
import { usualLimits } from '../../limits/limits.ts'
import { refuseTooMuch } from '../../limits/service-room.ts'
import type { Queryable } from '../../store/database.ts'
import { listSql, type RecordSql, timestampSql } from '../../store/tree.ts'
import { type GitPath, isRefusedSql, repositorySql, withHead, withRepository } from './git-head.ts'
import type { KeptCommit } from './git-source.ts'
import { writeRoutes } from './hosts.ts'
import type { Port } from './parts.ts'
import { approveTokenUses, refuseTokensElsewhere } from './token-reach.ts'

const groupWords =
  'Its pairs become labels of the containers. A label wins over an annotation of the same key, and a later group over an earlier one.'

const groupFields = {
  annotations_groups: Maybe(
    List(Type.Object({ id: Ref('annotations_group') }), 50, { default: [], description: groupWords }),
  ),
  labels_groups: Maybe(List(Type.Object({ id: Ref('labels_group') }), 50, { default: [], description: groupWords })),
}

/** The full groups for the ids in a configuration, in its order. */
const groupsSql = (field: string): string =>
  `(select coalesce(jsonb_agg(g.spec || jsonb_build_object('id', g.id, 'name', g.name,
      'created_at', ${timestampSql('g.created_at')}, 'updated_at', ${timestampSql('g.updated_at')}) order by w.at), '[]')
    from jsonb_array_elements(n.spec -> '${field}') with ordinality w (item, at)
    join node g on g.id = (w.item ->> 'id')::uuid)`

/** The facts about the service's repository that a record may show. */
export interface GitFacts {
  /** The commit of the deployed version. */
  commit: KeptCommit | null
  tokenName: string | null
}

/** The fields of a create or an edit besides those of the kind. */
type Common = {
  name: string
  description?: string | null
  icon_uri?: string
}

/** A request to create or change a service, with the defaults of `schema` already filled in. */
export type Filled<Schema extends TObject, Fields> = FieldsOf<Schema> & Fields & Common

/** `Schema` is the body of a create, `Kept` the kind's own part of the result of `validate`. */
interface ServiceDefinition<Schema extends TObject = TObject, Kept = FieldsOf<Schema>> extends Self {
  /** For the list: the operation's id and summary. */
  list: { id: string; words: string }
  /** The fields of a create besides name, description, icon and groups. */
  spec: Schema
  fixed?: ResourceDefinition['fixed']
  generated?: readonly string[]
  /** The further fields of records. */
  record?: Record<string, TSchema>
  columns?: Record<string, string>
  /** Services of the kind can have groups of labels and annotations. */
  groups?: boolean
  validate?(spec: FieldsOf<Schema> & Common, context: Context, change: Change<NoInfer<Kept>>): Promise<Kept> | Kept
  around?: ResourceDefinition['around']
  /** The path of the service's repository in the configuration. */
  git?: GitPath
  view?(record: NoInfer<Kept> & Spec, git: GitFacts): Spec
  /** Writes the service's further rows besides its state and its host names. */
  written?(tx: Queryable, spec: NoInfer<Kept> & Common, context: Context, change: Change<NoInfer<Kept>>): Promise<void>
  /** For clones: puts secrets that are sealed with the row outside of `spec` back into a configuration. */
  withSecrets?(spec: NoInfer<Kept>, sealed: ReadonlyMap<string, Secret>): Spec
  facets: readonly Facet[]
  deployable: Omit<DeployableKind<NoInfer<Kept>>, 'kind'>
}

export interface Service {
  operations: Operation[]
  deployable: DeployableKind
  /** Records of all services of the kind in an environment, each with its creation time. */
  readAll(db: Queryable, environmentId: string): Promise<Spec[]>
  answer: TObject
  definition: ServiceDefinition
  /** How the kind's rows are made, for code that makes them other than by a create. */
  resource: ResourceDefinition
}

const specOf = ({ path, spec, groups = true }: ServiceDefinition): TObject =>
  merge(
    Type.Object({
      name: Name(),
      description: Maybe(Nullable(Text(2048))),
      icon_uri: Maybe(Text(2048, { default: `app://slipway/${path}`, minLength: 1 })),
      ...(groups ? groupFields : {}),
    }),
    spec.properties as Record<string, TSchema>,
  )

const recordOf = ({ groups = true, record = {} }: ServiceDefinition): Record<string, TSchema> => ({
  environment: Computed(Reference()),
  icon_uri: Text(2048),
  service_type: Computed(OneOf(serviceTypes)),
  maximum_cpu: Maybe(Computed(Whole(0))),
  maximum_memory: Maybe(Computed(Whole(0))),
  maximum_gpu: Maybe(Computed(Whole(0))),
  ...(groups
    ? {
        annotations_groups: Maybe(Computed(Type.Array(Open()))),
        labels_groups: Maybe(Computed(Type.Array(Open()))),
      }
    : {}),
  ...record,
})

const gitColumns = (path: GitPath): Record<string, string> => ({
  git_commit: `(select r.commit from service_state s join release r on r.id = s.current_release_id
    where s.service_id = n.id)`,
  git_refused: isRefusedSql,
  git_token_name: `(select t.name from node t where t.id = (${repositorySql(path)} ->> 'git_token_id')::uuid)`,
})

const columnsOf = ({ groups = true, git, columns = {} }: ServiceDefinition): Record<string, string> => ({
  environment: `json_build_object('id', n.parent_id)`,
  capacity: serviceCapacitySql('n'),
  ...(git === undefined ? {} : gitColumns(git)),
  ...(groups ? { annotations_groups: groupsSql('annotations_groups'), labels_groups: groupsSql('labels_groups') } : {}),
  ...columns,
})

const limitsOf = ({ cpu, memory }: { cpu: number; memory: number }) => ({
  maximum_cpu: cpu,
  maximum_memory: memory,
  maximum_gpu: 0,
})

const viewOf =
  ({ view, kind }: ServiceDefinition) =>
  ({
    git_commit: commit = null,
    git_refused: refused,
    git_token_name: tokenName = null,
    capacity,
    ...record
  }: Spec) => {
    const open = withoutInner(record)
    const viewed = view?.(open, { commit, tokenName } as GitFacts) ?? open
    const shown = refused === true ? withRepository(viewed, { has_access: false }) : viewed
    const limits = 'cpu' in shown && capacity != null ? limitsOf(capacity as { cpu: number; memory: number }) : {}
    return { ...shown, description: shown.description ?? '', ...limits, service_type: typeOf(kind) }
  }

const insertState = `insert into service_state (service_id, environment_id, organization_id, kind)
  values ($1, $2, $3, $4)`

const validating = ({ git, validate }: ServiceDefinition): Pick<ResourceDefinition, 'validate'> => {
  if (git === undefined) return validate === undefined ? {} : { validate }
  return {
    async validate(sent, context, change) {
      const spec = (await validate?.(sent as Spec & Common, context, change)) ?? sent
      await refuseTokensElsewhere(change.db, context.principal, spec, change.previous?.spec)
      return spec
    },
  }
}

const writtenOf =
  ({ kind, git, written }: ServiceDefinition): NonNullable<ResourceDefinition['written']> =>
  async (tx, spec, context, change) => {
    const { organizationId } = context.principal
    const service = { id: change.id, name: spec.name, organizationId, environmentId: change.parent.id }
    if (change.previous === null) {
      // Locked, so that deleting the environment and creating a service take turns.
      await tx.query('select 1 from node where id = $1 for no key update', [service.environmentId])
      await refuseWhileDeleting(tx, service.environmentId)
      await tx.query(insertState, [service.id, service.environmentId, organizationId, kind])
    }
    if (spec.ports !== undefined) {
      await writeRoutes(tx, service, spec.ports as Port[])
      await releaseUnusedPorts(tx, service.id)
    }
    if (git !== undefined) await approveTokenUses(tx, context.principal, spec)
    await written?.(tx, spec, context, change)
  }

const aroundOf =
  ({ around, git }: ServiceDefinition): NonNullable<ResourceDefinition['around']> =>
  async (context, write) => {
    const record = await (around === undefined ? write(context) : around(context, write))
    return git === undefined || record instanceof JsonText ? record : withHead(context, record, git)
  }

const judge: ResourceDefinition['judge'] = (tx, { parts, principal }, { id, previous }) => {
  const { limits = usualLimits } = parts.settings
  return refuseTooMuch(tx, limits, principal.organizationId, [id], previous === null ? [] : [previous.spec])
}

const ListQuery = Type.Object({
  toUpdate: Maybe(Flag({ description: 'If true, only services that are OUT_OF_DATE.' })),
})

const listed: ResourceDefinition['listed'] = async ({ parts, db, node, query }, records) => {
  if (query.toUpdate !== true) return records
  const all = await parts.deployments.environmentStatuses(db, node.id)
  const stale = all.filter(({ status }) => status.service_deployment_status === 'OUT_OF_DATE')
  const ids = new Set<unknown>(stale.map(({ status }) => status.id))
  return records.filter(({ id }) => ids.has(id))
}

const reader = (kind: Kind, recordText: RecordSql, view: (record: Spec) => Spec): Service['readAll'] => {
  const list = listSql(kind, recordText)
  return async (db, environmentId) => {
    const [row] = await db.query<{ text: string }>(list, [environmentId])
    return (JSON.parse(row!.text) as { results: Spec[] }).results.map((record) => view(record))
  }
}

/** As in `resource()`: its functions get only what its schema admitted or its `validate` returned. */
const erased = <Schema extends TObject, Kept>(definition: ServiceDefinition<Schema, Kept>): ServiceDefinition =>
  definition as unknown as ServiceDefinition

export const service = <Schema extends TObject, Kept = FieldsOf<Schema>>(
  given: ServiceDefinition<Schema, Kept>,
): Service => {
  const definition = erased(given)
  const { kind, path, noun, nounWithArticle, list } = definition
  const view = viewOf(definition)
  const described: ResourceDefinition = {
    kind,
    area: 'projects',
    parent: { kind: 'environment', param: 'environmentId' },
    nameScope: 'service',
    tag: `${noun} Main Calls`,
    collectionTag: `${noun}s`,
    words: [nounWithArticle, list.words],
    collection: `/environment/{environmentId}/${path}`,
    item: itemOf(definition),
    param: paramOf(definition),
    ids: { list: list.id, create: `create${noun}`, read: `get${noun}`, edit: `edit${noun}` },
    spec: specOf(definition),
    ...(definition.fixed === undefined ? {} : { fixed: definition.fixed }),
    ...(definition.generated === undefined ? {} : { generated: definition.generated }),
    record: recordOf(definition),
    columns: columnsOf(definition),
    ...validating(definition),
    around: aroundOf(definition),
    listQuery: ListQuery,
    listed,
    view,
    written: writtenOf(definition),
    judge,
    audit: { target: kinds[kind].audit },
  }
  const { operations, answer, recordText } = resource(described)
  const all = [...operations, ...definition.facets.flatMap((facet) => facet(definition))]
  const settings = all.find(({ method, path: at }) => method === 'PUT' && at.endsWith('/advancedSettings'))?.body
  const whole = merge(described.spec, settings === undefined ? {} : { advanced_settings: settings })
  return {
    operations: all,
    deployable: {
      ...definition.deployable,
      kind,
      recorded: (kept, rollsItself) => [
        ...[...withoutEffectIn(whole, kept)].map(pointerTo),
        ...(rollsItself ? [] : [...actingIn('kubernetes', whole, kept)].map(({ path }) => pointerTo(path))),
      ],
    },
    readAll: reader(kind, recordText, view),
    answer,
    definition,
    resource: described,
  }
}
