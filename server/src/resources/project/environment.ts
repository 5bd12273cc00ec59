/** Environments own services and belong to one cluster for life. Deleting one is a deployment. */
import Type from 'typebox'
import { type Mode, modes } from '../../api/auth/permissions.ts'
import type { Context, Operation } from '../../api/operations/operation.ts'
import { type Change, resource, type Spec } from '../../api/operations/resource.ts'
import {
  Computed,
  Maybe,
  Name,
  Nullable,
  OneOf,
  Reference,
  Text,
  Timestamp,
  Uuid,
} from '../../api/operations/schema.ts'
import { environmentActions } from '../../environments/actions.ts'
import { listActiveDeployments } from '../../environments/active.ts'
import { deploymentLogOperations } from '../../environments/deployment-log.ts'
import { deploymentStageOperations } from '../../environments/deployment-stages.ts'
import { environmentHistories } from '../../environments/history.ts'
import { liveLogOperations } from '../../environments/live-log.ts'
import { liveStatusOperations } from '../../environments/live-status.ts'
import { queueOperations } from '../../environments/queue.ts'
import { runningStatusOperations } from '../../environments/running-status.ts'
import { environmentStatusOperations } from '../../environments/status.ts'
import { environmentLinks } from '../../facets/domains/links.ts'
import { invalidField } from '../../lib/errors.ts'
import type { ListForm } from '../../store/long-list.ts'
import { projectRuleOperations, ruleOrderSql } from './deployment-rule.ts'
import { environmentRuleOperations, keptRuleOf } from './environment-rule.ts'
import { overviewOperations } from './overview.ts'
import { fitsWildcard } from './wildcard.ts'

/** Defaults for a new environment: the organization's default cluster, and the project's rules. */
const inheritable = {
  text: `coalesce((select d.id::text from node d where d.organization_id = n.organization_id and d.kind = 'cluster'
      and (d.spec ->> 'is_default')::boolean order by d.created_at limit 1), '') || ' ' ||
    coalesce((select json_agg(r.spec order by ${ruleOrderSql('r')})::text from node r
      where r.parent_id = n.id and r.kind = 'deployment_rule'), '')`,
  joins: '',
}

const readInheritable = (record: string): { cluster: string | null; rules: Spec[] } => {
  const [cluster, rules] = [record.slice(0, record.indexOf(' ')), record.slice(record.indexOf(' ') + 1)]
  return { cluster: cluster === '' ? null : cluster, rules: rules === '' ? [] : (JSON.parse(rules) as Spec[]) }
}

/** The id of a cluster of the organization; null if it has no such cluster. */
const findCluster = async ({ db, principal }: Context, id: string): Promise<string | null> => {
  const [found] = await db.query<{ id: string }>(
    `select id from node where organization_id = $1 and kind = 'cluster' and id = $2`,
    [principal.organizationId, id],
  )
  return found?.id ?? null
}

/** The requested cluster, else that of the rule if it still exists, else the default one. */
const chooseCluster = async (
  context: Context,
  named: string | undefined,
  rule: Spec | undefined,
  usual: string | null,
) => {
  if (named !== undefined) {
    const found = await findCluster(context, named)
    if (found === null) throw invalidField('/cluster_id', 'not found in this organization')
    return found
  }
  const found = (rule === undefined ? null : await findCluster(context, String(rule.cluster_id))) ?? usual
  if (found === null) throw invalidField('/cluster_id', 'is required because there is no default cluster')
  return found
}

/**
 * Completes a new environment; the first rule of the project that matches its name fills in fields missing in the
 * body.
 */
const complete = async (spec: Spec, context: Context, change: Change): Promise<Spec> => {
  const there = { projectId: change.parent.id, mode: spec.mode as Mode, clusterId: String(spec.cluster_id) }
  if (change.previous !== null) {
    if (spec.mode !== change.previous.spec.mode) await context.authorizeAlso(there)
    return spec
  }
  const {
    cluster,
    cluster_id: named = cluster,
    ...rest
  } = spec as { name: string; cluster?: string; cluster_id?: string }
  const { cluster: usual, rules } = readInheritable(change.parent.record!)
  const rule = rules.find((each) => fitsWildcard(String(each.wildcard ?? ''), rest.name))
  const mode = (spec.mode ?? rule?.mode ?? 'DEVELOPMENT') as Mode
  const clusterId = await chooseCluster(context, named, rule, usual)
  await context.authorizeAlso({ ...there, mode, clusterId })
  return {
    ...rest,
    mode,
    cluster_id: clusterId,
    ...(rule === undefined ? {} : { deployment_rule: keptRuleOf(rule) }),
  }
}

/** The same as `columns` below, built from plain columns. */
const list: ListForm = {
  columns: `n.spec ->> 'mode' as mode, n.updated_by as "updatedBy", c.id as "clusterId", c.name as "clusterName",
    c.spec ->> 'cloud_provider' as provider`,
  joins: `join node c on c.id = (n.spec ->> 'cluster_id')::uuid`,
  quotes: 'cluster',
  write({ organizationId, parentId, mode, updatedBy, clusterId, clusterName, provider }) {
    const cluster = JSON.stringify(clusterName)
    const updater = updatedBy === null ? 'null' : `"${updatedBy}"`
    return `,"organization":{"id":"${organizationId}"},"project":{"id":"${parentId}"},"cloud_provider":{"provider":${JSON.stringify(provider)},"cluster":${cluster}},"mode":${JSON.stringify(mode)},"cluster_id":"${clusterId}","cluster_name":${cluster},"last_updated_by":${updater}`
  },
}

export const environment = resource({
  kind: 'environment',
  area: 'projects',
  createNeeds: { cluster: 'ENV_CREATOR', modeInBody: true },
  parent: { kind: 'project', param: 'projectId' },
  tag: 'Environments',
  words: ['an environment', 'environments'],
  collection: '/project/{projectId}/environment',
  item: '/environment/{environmentId}',
  param: 'environmentId',
  ids: { list: 'listEnvironment', create: 'createEnvironment', read: 'getEnvironment', edit: 'editEnvironment' },
  spec: Type.Object({
    name: Name(),
    mode: Maybe(
      OneOf(modes, { description: 'Defaults to the mode of the matching deployment rule, else DEVELOPMENT.' }),
    ),
    cluster_id: Maybe(Uuid()),
    cluster: Maybe(Uuid()),
  }),
  fixed: { cluster: 'cluster_id', cluster_id: 'cluster_id' },
  record: {
    organization: Computed(Reference()),
    project: Computed(Reference()),
    cloud_provider: Computed(Type.Object({ provider: Text(), cluster: Text() })),
    mode: OneOf(modes),
    cluster_id: Uuid(),
    cluster_name: Maybe(Text()),
    last_updated_by: Nullable(Uuid()),
    expires_at: Maybe(Nullable(Timestamp())),
  },
  wholeSpec: false,
  list,
  parentRecord: inheritable,
  joins: list.joins,
  columns: {
    organization: `'{"id":"' || n.organization_id || '"}'`,
    project: `'{"id":"' || n.parent_id || '"}'`,
    cloud_provider: `'{"provider":' || (c.spec -> 'cloud_provider') || ',"cluster":' || to_json(c.name) || '}'`,
    mode: `(n.spec -> 'mode')`,
    cluster_id: `(n.spec -> 'cluster_id')`,
    cluster_name: 'to_json(c.name)',
    last_updated_by: `coalesce(to_json(n.updated_by)::text, 'null')`,
  },
  validate: complete,
  audit: { target: 'ENVIRONMENT' },
})

export const environmentOperations: Operation[] = [
  ...environment.operations,
  ...environmentActions,
  ...environmentStatusOperations,
  ...environmentHistories,
  ...queueOperations,
  listActiveDeployments,
  ...deploymentLogOperations,
  ...liveStatusOperations,
  ...runningStatusOperations,
  ...liveLogOperations,
  ...deploymentStageOperations,
  ...projectRuleOperations,
  ...environmentRuleOperations,
  ...overviewOperations,
  environmentLinks,
]
