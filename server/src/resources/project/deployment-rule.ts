/**
 * Deployment rules of projects: the mode, cluster and schedule of a new environment whose name matches. The first match
 * wins.
 */
import Type from 'typebox'
import { modes } from '../../api/auth/permissions.ts'
import { editing, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { auditOf, placeOf, resource, type Spec } from '../../api/operations/resource.ts'
import {
  List,
  Maybe,
  Name,
  Nullable,
  OneOf,
  Ref,
  Results,
  Text,
  Timestamp,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import { invalidField } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { writeAudit } from '../../store/tree.ts'
import { checkSchedule, type KeptRule, schedule, weekdays } from './environment-rule.ts'

const nextOrder = async (db: Queryable, projectId: string): Promise<number> => {
  const [row] = await db.query<{ next: number }>(
    `select coalesce(max((spec ->> 'order')::int) + 1, 0) as next from node
     where parent_id = $1 and kind = 'deployment_rule'`,
    [projectId],
  )
  return row!.next
}

/** The order of a project's rules, as SQL over a row; ties are broken by id. */
export const ruleOrderSql = (alias: string): string =>
  `((${alias}.spec ->> 'order')::int, ${alias}.created_at, ${alias}.id)`

/** A project's rules, in the order they are tried. */
export const readRules = async (db: Queryable, projectId: string): Promise<Spec[]> =>
  (
    await db.query<{ spec: Spec }>(
      `select r.spec from node r where r.parent_id = $1 and r.kind = 'deployment_rule' order by ${ruleOrderSql('r')}`,
      [projectId],
    )
  ).map(({ spec }) => spec)

const rules = resource({
  kind: 'deployment_rule',
  area: 'projects',
  parent: { kind: 'project', param: 'projectId' },
  tag: 'Project Deployment Rule',
  words: ['a deployment rule', 'deployment rules'],
  collection: '/project/{projectId}/deploymentRule',
  item: '/project/{projectId}/deploymentRule/{deploymentRuleId}',
  param: 'deploymentRuleId',
  ids: {
    create: 'createDeploymentRule',
    read: 'getProjectDeploymentRule',
    edit: 'editProjectDeployemtnRule',
    remove: 'deleteProjectDeploymentRule',
  },
  spec: Type.Object({
    name: Name(),
    description: Maybe(Nullable(Text(2048))),
    mode: OneOf(modes),
    cluster_id: Ref('cluster'),
    ...schedule,
    wildcard: Maybe(
      Text(255, {
        default: '',
        description: 'Pattern for names, case-insensitive: * matches any text, ? one character.',
      }),
    ),
  }),
  record: {
    mode: OneOf(modes),
    cluster_id: Uuid(),
    timezone: Text(64),
    start_time: Timestamp(),
    stop_time: Timestamp(),
    weekdays: Type.Array(OneOf(weekdays)),
    wildcard: Text(255),
    priority_index: Whole(0),
  },
  columns: {
    priority_index: `(select count(*) from node r where r.parent_id = n.parent_id and r.kind = 'deployment_rule'
      and ${ruleOrderSql('r')} < ${ruleOrderSql('n')})`,
  },
  async validate(spec, { db }, { parent, previous }) {
    checkSchedule(spec as Partial<KeptRule>)
    return previous === null ? { ...spec, order: await nextOrder(db, parent.id) } : spec
  },
  view: ({ order: _, ...record }) => record,
  audit: { target: 'PROJECT', subTarget: 'DEPLOYMENT_RULE' },
})

const project = nodeInPath('project', 'projectId')

const list = operation({
  id: 'listProjectDeploymentRules',
  ...reading,
  path: '/project/{projectId}/deploymentRule',
  tag: 'Project Deployment Rule',
  summary: 'List the deployment rules of a project, in the order they are tried',
  area: 'projects',
  owner: project,
  answer: Results(rules.answer),
  async run({ db, node }) {
    const rows = await db.query<{ text: string }>(
      `select ${rules.recordText.text} as text from node n ${rules.recordText.joins}
       where n.parent_id = $1 and n.kind = 'deployment_rule' order by ${ruleOrderSql('n')}`,
      [node.id],
    )
    return { results: rows.map(({ text }) => JSON.parse(text) as Spec).map(({ order: _, ...record }) => record) }
  },
})

const field = 'project_deployment_rule_ids_in_order'

const order = operation({
  id: 'updateDeploymentRulesPriorityOrder',
  ...editing,
  path: '/project/{projectId}/deploymentRule/order',
  tag: 'Project Deployment Rule',
  summary: 'Order the deployment rules of a project: all their ids, in the order they are tried',
  area: 'projects',
  owner: project,
  body: Type.Object({ [field]: List(Uuid(), 1000) }),
  run: (context) =>
    context.transaction(async (tx) => {
      const { node, principal, body } = context
      const wanted = (body[field] as string[]).map((id) => id.toLowerCase())
      const rows = await tx.query<{ id: string }>(
        `select id from node where parent_id = $1 and kind = 'deployment_rule' order by id for no key update`,
        [node.id],
      )
      if (rows.map(({ id }) => id).join() !== [...wanted].sort().join())
        throw invalidField(`/${field}`, 'must list every rule of the project exactly once')
      await tx.query(
        `update node n set spec = jsonb_set(n.spec, '{order}', to_jsonb(w.at)), version = n.version + 1
         from unnest($1::uuid[]) with ordinality as w (id, at) where n.id = w.id`,
        [wanted],
      )
      const target = { target: 'PROJECT', subTarget: 'DEPLOYMENT_RULE' }
      await writeAudit(tx, principal.organizationId, node, auditOf(context, 'UPDATE', target, placeOf(node), body))
      return undefined
    }),
})

export const projectRuleOperations: Operation[] = [list, order, ...rules.operations]
