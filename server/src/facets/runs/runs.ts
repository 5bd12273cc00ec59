/**
 * Runs of a cron job: a list with their results, the output of each, and manual runs. Output of a job in its
 * deployments is in its log too. Runs and their output are kept as the advanced settings of the job say.
 */
import Type from 'typebox'
import { type Context, operation, reading } from '../../api/operations/operation.ts'
import { auditOf } from '../../api/operations/resource-writes.ts'
import { Flag, Nullable, OneOf, Results, Text, Timestamp, Uuid, Whole } from '../../api/operations/schema.ts'
import { mainTask } from '../../deployments/deployments.ts'
import { auditTargetOf } from '../../kinds.ts'
import { badRequest, conflict, notFound } from '../../lib/errors.ts'
import { idOf, isUuid, newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { writeAudit } from '../../store/tree.ts'
import { eventSink } from '../../streams/sink.ts'
import { askForRun } from '../../work/schedule.ts'
import { type Facet, itemOf, onService } from '../facet.ts'
import { asEvent, asRecord, LogRecord, logOperations, tailOf } from '../log-lines.ts'
import { followOutput, type OutputLine, readLastOutput } from './output.ts'

/** More than the longest output of one run has. */
const maxRunLines = 20_000

const Run = Type.Object(
  {
    id: Uuid(),
    state: OneOf(['RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED']),
    trigger: OneOf(['SCHEDULE', 'MANUAL']),
    triggered_by: Nullable(Text(500, { description: 'Who requested a manual run.' })),
    due_at: Timestamp(),
    started_at: Timestamp(),
    finished_at: Nullable(Timestamp()),
    duration_sec: Nullable(Whole(0, 10_000_000)),
    exit_code: Nullable(
      Whole(-1_000_000, 1_000_000, { description: 'The exit code of the last attempt; null if it did not end.' }),
    ),
    version: Text(1024, { description: 'Commit or image that was run.' }),
    error: Nullable(
      Type.Object({ code: Text(100), message: Text(1000, { description: 'Why it failed, in one sentence.' }) }),
    ),
    is_output_kept: Flag(),
  },
  { title: 'JobRun' },
)

const runsSql = (where: string): string => `select t.id, t.state,
    case when t.asked_by is null then 'SCHEDULE' else 'MANUAL' end as trigger, t.asked_by as triggered_by,
    t.due_at, t.started_at, t.finished_at,
    floor(extract(epoch from t.finished_at - t.started_at))::int as duration_sec, t.exit_code,
    coalesce(r.commit ->> 'git_commit_id', r.image, '') as version,
    case when t.error is null then null
      else json_build_object('code', t.error ->> 'code', 'message', t.error ->> 'message') end as error,
    exists (select from deployment_log l where l.run_id = t.id) as is_output_kept
  from task_run t left join release r on r.id = t.release_id
  where t.service_id = $1 and ${where} order by t.started_at desc, t.id`

interface RunRow extends Type.Static<typeof Run> {}

const iso = (at: unknown): string => (at instanceof Date ? at.toISOString() : String(at))

const toRun = (row: RunRow): RunRow => ({
  ...row,
  due_at: iso(row.due_at),
  started_at: iso(row.started_at),
  finished_at: row.finished_at === null ? null : iso(row.finished_at),
})

const readRun = async (db: Queryable, serviceId: string, runId: string): Promise<RunRow> => {
  const [row] = isUuid(runId) ? await db.query<RunRow>(runsSql('t.id = $2'), [serviceId, runId]) : []
  if (row === undefined) throw notFound()
  return toRun(row)
}

const toRecord = (line: OutputLine) => asRecord(idOf(line.chunk, line.index), line)

const refusal = `select s.current_release_id is not null and s.desired = 'RUNNING' as "isDeployed",
    n.spec #>> '{schedule,cronjob}' is not null as "isCron",
    exists (select from release r where r.id = s.current_release_id
      and r.workload #> array['tasks', $2, 'on'] ? 'CRON') as "wasCron"
  from service_state s join node n on n.id = s.service_id where s.service_id = $1`

/** Why no run can begin. */
const refuse = async (tx: Queryable, serviceId: string): Promise<never> => {
  const [row] = await tx.query<{ isDeployed: boolean; isCron: boolean; wasCron: boolean }>(refusal, [
    serviceId,
    mainTask,
  ])
  if (row?.isCron !== true)
    throw badRequest('This job has no schedule: run it with a deploy, and `forceEvent` for one of its events.')
  if (!row.isDeployed || !row.wasCron)
    throw conflict('not_deployed', 'The schedule of this job is not deployed: deploy the job first.')
  throw conflict('run_in_progress', 'A run of this job is in progress: wait until it ends, or stop the job.')
}

const start = async (context: Context) => {
  const { node, principal } = context
  const id = newId()
  return context.transaction(async (tx) => {
    const asked = await askForRun(tx, { id, serviceId: node.id, name: mainTask, askedBy: principal.name })
    if (!asked) return refuse(tx, node.id)
    const place = { projectId: node.grandparentId, environmentId: node.parentId }
    const audit = auditOf(context, 'UPDATE', { target: auditTargetOf(node.kind) }, place, { run_id: id })
    await writeAudit(tx, principal.organizationId, node, { ...audit, eventType: 'TRIGGER_FORCE_RUN' })
    return readRun(tx, node.id, id)
  })
}

const lastLines = async (context: Context) => {
  const limit = tailOf(context)
  const lines = limit === 0 ? [] : await readLastOutput(context.db, context.node.id, { limit })
  return { results: lines.map(toRecord) }
}

const streamLines = async (context: Context): Promise<void> => {
  const { parts, node } = context
  const sink = eventSink(context, 'lines that the runs of this job print, oldest first')
  const wanted = { serviceId: node.id, environmentId: node.parentId!, tail: tailOf(context) }
  await followOutput(parts, sink, wanted, asEvent)
}

export const runs: Facet = (self) => {
  const path = `${itemOf(self)}/run`
  const common = { tag: `${self.noun} Runs`, ...onService(self) }
  const read = { ...common, ...reading }
  return [
    operation({
      ...common,
      id: `start${self.noun}Run`,
      method: 'POST',
      path,
      summary: `Run ${self.nounWithArticle} with a schedule now, once, beside its schedule`,
      scope: 'Deploy',
      cluster: 'ENV_CREATOR',
      status: 202,
      answer: Run,
      run: start,
    }),
    operation({
      ...read,
      id: `list${self.noun}Runs`,
      path,
      summary: `List the runs of ${self.nounWithArticle} by the clock and by hand, newest first: those in progress and those that are kept`,
      answer: Results(Run),
      async run({ db, node }) {
        return { results: (await db.query<RunRow>(runsSql('true'), [node.id])).map(toRun) }
      },
    }),
    operation({
      ...read,
      id: `list${self.noun}RunLog`,
      path: `${path}/{runId}/log`,
      summary: `Read the output of a run of ${self.nounWithArticle}: its last 256 KB, also while it runs`,
      answer: Results(LogRecord),
      async run({ db, node, params }) {
        const { id: runId } = await readRun(db, node.id, String(params.runId))
        const lines = await readLastOutput(db, node.id, { runId, limit: maxRunLines })
        return { results: lines.map(toRecord) }
      },
    }),
    ...logOperations(self, {
      summaries: {
        list: `Read the last lines that the runs of ${self.nounWithArticle} printed, by the clock, by hand and in deployments`,
        stream: `Follow what the runs of ${self.nounWithArticle} print, as server-sent events`,
      },
      list: lastLines,
      stream: streamLines,
    }),
  ]
}
