/**
 * Records the events that receivers will get. One statement in the transaction of the change: committed together or
 * not at all. Does not know how anything is sent.
 */
import { kindOfType, oldIdOf } from '../kinds.ts'
import type { Queryable } from '../store/database.ts'
import {
  type BackupEvent,
  backupEventKinds,
  type DeploymentEvent,
  type DeploymentEventKind,
  type EnqueueDeploymentEvent,
} from './webhooks.ts'

/** Woken at commit. */
export const outboxChannel = 'slipway_outbox'

/** The names of an event: the public API's, then the specification's. */
const eventAliases: Record<DeploymentEventKind, string[]> = {
  DEPLOYMENT_STARTED: ['DEPLOYMENT_STARTED'],
  DEPLOYMENT_SUCCESSFUL: ['DEPLOYMENT_SUCCESSFUL', 'DEPLOYMENT_SUCCEEDED'],
  DEPLOYMENT_FAILURE: ['DEPLOYMENT_FAILURE', 'DEPLOYMENT_FAILED'],
  DEPLOYMENT_CANCELLED: ['DEPLOYMENT_CANCELLED'],
}

/** Every event name that a webhook can register for. */
export const webhookEvents: string[] = [...Object.values(eventAliases).flat(), ...backupEventKinds]

/** An event in the public API's spelling. */
export const publicEvent = (word: string): string =>
  Object.values(eventAliases).find((words) => words.includes(word))?.[0] ?? word

const payloadOf = (event: DeploymentEvent): Record<string, unknown> => ({
  ...oldIdOf(kindOfType(event.serviceType), event.serviceId),
  service_id: event.serviceId,
  service_type: event.serviceType,
  service_name: event.serviceName,
  environment_id: event.environmentId,
  project_id: event.projectId,
  organization_id: event.organizationId,
  deployment_id: event.deploymentId,
  execution_id: event.executionId,
  state: event.state,
  reason: event.reason,
  created_at: new Date().toISOString(),
})

const list = (field: string): string => `coalesce(nullif(n.spec -> '${field}', 'null'), '[]')`

// A filter's `*` is LIKE's `%`; LIKE's own wildcards are escaped.
const pattern = String.raw`replace(regexp_replace(f, '([\\%_])', '\\\1', 'g'), '*', '%')`

const enqueueSql = `
  with matched as (
    select n.id, e.event_type from node n cross join lateral (
      select word as event_type from jsonb_array_elements_text(${list('events')}) with ordinality as t (word, place)
      where word = any($2) order by place limit 1
    ) e
    where n.organization_id = $1 and n.kind = 'webhook' and coalesce(n.spec ->> 'enabled', 'true') = 'true'
      and (${list('environment_types_filter')} = '[]' or ${list('environment_types_filter')} ? $3)
      and (${list('project_names_filter')} = '[]' or exists (
        select 1 from jsonb_array_elements_text(${list('project_names_filter')}) f
        join node p on p.id = $4 where p.name ilike ${pattern}))
  ), written as (
    insert into outbox (id, organization_id, webhook_id, ordering_key, event_type, body)
    select gen_random_uuid(), $1, id, $5, event_type,
      json_build_object('event_type', event_type, 'payload', $6::json)::text from matched
    returning 1
  )
  select pg_notify('${outboxChannel}', '') where exists (select 1 from written)`

/** One outbox row for each enabled webhook of the organization that wants this event. */
export const enqueueDeploymentEvent: EnqueueDeploymentEvent = async (tx, event) => {
  await tx.query(enqueueSql, [
    event.organizationId,
    eventAliases[event.kind],
    event.environmentMode,
    event.projectId,
    event.serviceId,
    JSON.stringify(payloadOf(event)),
  ])
}

interface DatabasePlace {
  name: string
  environmentId: string
  projectId: string | null
  mode: string | null
}

/** The name of the database as its backups have it, and where it is or was. */
const placeSql = `select b.database_name as name, b.environment_id as "environmentId", e.parent_id as "projectId",
    e.spec ->> 'mode' as mode
  from backup b left join node e on e.id = b.environment_id where b.id = $1`

/** The same for the end of a backup or a restore. */
export const enqueueBackupEvent = async (tx: Queryable, event: BackupEvent): Promise<void> => {
  const [place] = await tx.query<DatabasePlace>(placeSql, [event.backupId])
  if (place === undefined) return
  const payload = {
    ...{ database_id: event.databaseId, service_id: event.databaseId, service_type: 'DATABASE' },
    ...{ service_name: place.name, environment_id: place.environmentId, project_id: place.projectId },
    ...{ organization_id: event.organizationId, backup_id: event.backupId, restore_id: event.restoreId },
    ...{ reason: event.reason, created_at: new Date().toISOString() },
  }
  await tx.query(enqueueSql, [
    ...[event.organizationId, [event.kind], place.mode, place.projectId, event.databaseId, JSON.stringify(payload)],
  ])
}
