/**
 * The deployment rule of an environment: the hours that it got from a rule of its project or was set later, in which it
 * runs if `auto_stop` is true (deployments/request/auto-stop.ts).
 */
import Type, { type TSchema } from 'typebox'
import { nodeInPath, type Operation, operation } from '../../api/operations/operation.ts'
import { auditOf, placeOf, type Spec, valuesBefore } from '../../api/operations/resource.ts'
import { Flag, List, Maybe, OneOf, Recorded, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { environmentRuleId } from '../../deployments/request/stages.ts'
import { forbidden, invalidField, notFound } from '../../lib/errors.ts'
import { isTimeZone } from '../../lib/time/cron.ts'
import { timeOfDay } from '../../lib/time/daily-hours.ts'
import type { Queryable } from '../../store/database.ts'
import { lockNode, timestampSql, writeAudit } from '../../store/tree.ts'

export const weekdays = ['MONDAY', 'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY', 'SUNDAY']

const autoStop =
  'Whether the environment runs only in these hours: at their end its services are stopped, at their beginning those are started again at their deployed versions. Services that are started or stopped by hand in between stay so until then.'
const startTime = 'Only the time of day is used, as it is written and in this time zone.'
const stopTime = `${startTime} Not later than start_time: on the following day.`

export const schedule = {
  auto_stop: Maybe(Flag({ default: false, description: autoStop })),
  timezone: Text(64, { minLength: 1, description: 'An IANA time zone, such as Europe/Paris.' }),
  start_time: Type.String({ format: 'date-time', maxLength: 40, description: startTime }),
  stop_time: Type.String({ format: 'date-time', maxLength: 40, description: stopTime }),
  weekdays: List(OneOf(weekdays), 7, { description: 'The days on which the hours begin.' }),
}

/** Throws for invalid hours. */
export const checkSchedule = ({ auto_stop, timezone, start_time, stop_time, weekdays: days }: Partial<KeptRule>) => {
  if (!isTimeZone(String(timezone))) throw invalidField('/timezone', 'is not an IANA time zone')
  if (auto_stop !== true) return
  if (days!.length === 0) throw invalidField('/weekdays', 'must have at least one day if auto_stop is true')
  if (timeOfDay(start_time!) === timeOfDay(stop_time!))
    throw invalidField('/stop_time', 'must be another time of day than start_time if auto_stop is true')
}

const onDemand = 'previews are made for every pull request, or for none.'
const preview =
  'Whether each open pull request to a branch that services with `auto_preview` follow gets a clone of this environment, of the mode PREVIEW, until it closes. Not for previews themselves.'

const EnvironmentRuleBody = {
  on_demand_preview: Maybe(Recorded(Flag({ default: false }), onDemand)),
  auto_preview: Maybe(Flag({ default: false, description: preview })),
  ...schedule,
}

const recordFields = (fields: Record<string, TSchema>): Record<string, TSchema> => ({
  id: Uuid(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  ...fields,
  weekdays: Type.Array(OneOf(weekdays)),
})

const EnvironmentRule = Type.Object(recordFields(EnvironmentRuleBody), { title: 'EnvironmentDeploymentRule' })

/** The part of the matching rule that an environment stores. */
export interface KeptRule {
  on_demand_preview: boolean
  auto_preview: boolean
  auto_stop: boolean
  timezone: string
  start_time: string
  stop_time: string
  weekdays: string[]
  updated_at?: string
}

const usualRule: KeptRule = {
  on_demand_preview: false,
  auto_preview: false,
  auto_stop: false,
  timezone: 'UTC',
  start_time: '1970-01-01T08:00:00.000Z',
  stop_time: '1970-01-01T19:00:00.000Z',
  weekdays: weekdays.slice(0, 5),
}

/** The schedule that a project's rule gives to an environment. */
export const keptRuleOf = (rule: Spec): KeptRule => {
  const { auto_stop = false, timezone, start_time, stop_time, weekdays: days } = rule as KeptRule & Spec
  return { ...usualRule, auto_stop, timezone, start_time, stop_time, weekdays: days }
}

const showRule = (environmentId: string, createdAt: string, kept: KeptRule | null | undefined) => ({
  id: environmentRuleId(environmentId),
  created_at: createdAt,
  updated_at: createdAt,
  ...usualRule,
  ...kept,
})

interface RuleRow {
  createdAt: string
  rule: KeptRule | null
}

const readRule = async (db: Queryable, environmentId: string): Promise<RuleRow> => {
  const [row] = await db.query<RuleRow>(
    `select ${timestampSql('created_at')} as "createdAt", spec -> 'deployment_rule' as rule from node where id = $1`,
    [environmentId],
  )
  if (row === undefined) throw notFound()
  return row
}

const environment = {
  tag: 'Environment Deployment Rule',
  owner: nodeInPath('environment', 'environmentId'),
  status: 200 as const,
  answer: EnvironmentRule,
}

const readOne = operation({
  ...environment,
  id: 'getEnvironmentDeploymentRule',
  method: 'GET',
  path: '/environment/{environmentId}/deploymentRule',
  summary: 'Read the deployment rule of an environment',
  scope: 'Read',
  area: 'projects',
  async run({ db, node }) {
    const { createdAt, rule } = await readRule(db, node.id)
    return showRule(node.id, createdAt, rule)
  },
})

const editOne = operation({
  ...environment,
  id: 'editEnvironmentDeploymentRule',
  method: 'PUT',
  path: '/environment/{environmentId}/deploymentRule/{deploymentRuleId}',
  summary: 'Change the deployment rule of an environment; omitted fields keep their values',
  scope: 'Write',
  area: 'projects',
  body: Type.Partial(Type.Object(EnvironmentRuleBody)),
  run: (context) =>
    context.transaction(async (tx) => {
      const { node, principal, body, params, parts } = context
      if (params.deploymentRuleId!.toLowerCase() !== environmentRuleId(node.id)) throw notFound()
      if ((await lockNode(tx, node.id)) === null) throw notFound()
      const { createdAt, rule } = await readRule(tx, node.id)
      const kept = { ...usualRule, ...rule, ...body, updated_at: parts.clock.now().toISOString() } as KeptRule
      // The server creates the previews: enabling them needs the right to create them.
      if (kept.auto_preview && rule?.auto_preview !== true)
        await context.authorizeAlso({ projectId: node.parentId, mode: 'PREVIEW', clusterId: null }).catch(() => {
          throw forbidden('Turning on auto_preview requires a role that may also create previews in this project.')
        })
      checkSchedule(kept)
      await tx.query(
        `update node set spec = jsonb_set(spec, '{deployment_rule}', $2::jsonb), version = version + 1, updated_by = $3,
           updated_at = clock_timestamp() where id = $1`,
        [node.id, JSON.stringify(kept), principal.tokenId],
      )
      const target = { target: 'ENVIRONMENT', subTarget: 'DEPLOYMENT_RULE' }
      const original = valuesBefore({ name: '', spec: { ...usualRule, ...rule } }, body)
      const audit = auditOf(context, 'UPDATE', target, placeOf(node), body, original)
      await writeAudit(tx, principal.organizationId, node, audit)
      return showRule(node.id, createdAt, kept)
    }),
})

export const environmentRuleOperations: Operation[] = [readOne, editOne]
