/**
 * Changing the stages of an environment. The first change gives it rows of its own, with the ids that were shown
 * before. Promises that every service stays in exactly one stage, and that changes of one environment take turns.
 */

import { stagesFrom, stagesSql } from '../deployments/request/stage-rows.ts'
import { defaultOrder, defaultStageId, defaultStages, type Stage, stageOf } from '../deployments/request/stages.ts'
import type { Kind } from '../kinds.ts'
import { conflict, notFound } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { type Queryable, sqlState } from '../store/database.ts'

interface Member {
  id: string
  kind: Kind
  stageId: string | null
}

export interface Ordered {
  environmentId: string
  stages: Stage[]
  members: Member[]
}

const read = async (tx: Queryable, environmentId: string) => {
  const [row] = await tx.query<{ stages: Stage[] | null; members: Member[] | null }>(
    `select ${stagesSql} as stages, (select json_agg(json_build_object('id', s.service_id, 'kind', s.kind,
       'stageId', s.stage_id)) from service_state s where s.environment_id = $1) as members`,
    [environmentId],
  )
  return { stages: row!.stages, members: row!.members ?? [] }
}

const insertStages = async (tx: Queryable, organizationId: string, environmentId: string, stages: readonly Stage[]) => {
  await tx.query(
    `insert into deployment_stage (id, organization_id, environment_id, name, description, position)
     select w.id, $2, $3, w.name, w.description, w.order
     from json_to_recordset($1::json) as w (id uuid, name text, description text, "order" integer)`,
    [JSON.stringify(stages), organizationId, environmentId],
  )
}

const isHomeless = ({ environmentId, stages }: Ordered, { kind, stageId }: Member): boolean =>
  stageId === null && !stages.some(({ id }) => id === defaultStageId(environmentId, defaultOrder(kind)))

/** A service whose default stage was deleted is in the last one, and stays there when another becomes the last. */
const settleHomeless = async (tx: Queryable, ordered: Ordered): Promise<void> => {
  const homeless = ordered.members.filter((member) => isHomeless(ordered, member))
  if (homeless.length === 0) return
  const { id } = ordered.stages.at(-1)!
  const ids = homeless.map((member) => member.id)
  await tx.query('update service_state set stage_id = $2 where service_id = any($1)', [ids, id])
  for (const member of homeless) member.stageId = id
}

/** Locks an environment's stages and reads them, creating its rows the first time. */
export const openStages = async (tx: Queryable, organizationId: string, environmentId: string): Promise<Ordered> => {
  const locked = await tx.query(`select 1 from node where id = $1 for no key update`, [environmentId])
  if (locked.length === 0) throw notFound()
  const { stages: rows, members } = await read(tx, environmentId)
  if (rows === null) await insertStages(tx, organizationId, environmentId, defaultStages(environmentId))
  const ordered = { environmentId, stages: stagesFrom(environmentId, rows), members }
  await settleHomeless(tx, ordered)
  return ordered
}

export const pickStage = ({ stages }: Ordered, id: string): Stage => {
  const stage = stages.find((each) => each.id === id.toLowerCase())
  if (stage === undefined) throw notFound()
  return stage
}

const writeOrder = async (tx: Queryable, ids: readonly string[]): Promise<void> => {
  await tx.query(
    `update deployment_stage g set position = w.at - 1, updated_at = clock_timestamp()
     from unnest($1::uuid[]) with ordinality as w (id, at) where g.id = w.id and g.position <> w.at - 1`,
    [ids],
  )
}

const orNameTaken = async <T>(writing: Promise<T>): Promise<T> =>
  writing.catch((error: unknown) => {
    if (sqlState(error) === '23505')
      throw conflict('name_taken', 'Another stage of this environment has the same name.')
    throw error
  })

interface StageText {
  name: string
  description?: string | null
}

const maxStages = 100

/** Adds a stage at the end; returns its id. */
export const addStage = async (
  tx: Queryable,
  organizationId: string,
  ordered: Ordered,
  { name, description }: StageText,
) => {
  if (ordered.stages.length >= maxStages)
    throw conflict('too_many_stages', `An environment can have at most ${maxStages} deployment stages.`)
  const stage = { id: newId(), name, description: description ?? '', order: ordered.stages.length }
  await orNameTaken(insertStages(tx, organizationId, ordered.environmentId, [stage]))
  return stage.id
}

/** Changes the name and description of a stage; omitted ones are kept. */
export const renameStage = async (tx: Queryable, stage: Stage, { name, description }: Partial<StageText>) => {
  const values = [stage.id, name ?? stage.name, description === undefined ? stage.description : (description ?? '')]
  await orNameTaken(
    tx.query(
      `update deployment_stage set name = $2, description = $3, updated_at = clock_timestamp() where id = $1`,
      values,
    ),
  )
}

/** 409 while it has services, and for the last one. */
export const removeStage = async (tx: Queryable, ordered: Ordered, stage: Stage): Promise<void> => {
  const { environmentId, stages, members } = ordered
  const holds = members.some(
    ({ kind, stageId }) =>
      stageOf(environmentId, stages, { stageId, defaultOrder: defaultOrder(kind) }).id === stage.id,
  )
  if (holds) throw conflict('stage_in_use', 'The stage still has services: move them to another stage first.')
  if (stages.length === 1)
    throw conflict('last_stage', 'The last deployment stage of an environment cannot be deleted.')
  await tx.query('delete from deployment_stage where id = $1', [stage.id])
  await writeOrder(
    tx,
    stages.filter((each) => each !== stage).map(({ id }) => id),
  )
}

export const moveStage = async (
  tx: Queryable,
  { stages }: Ordered,
  stage: Stage,
  beside: Stage,
  where: 'before' | 'after',
): Promise<void> => {
  if (stage.id === beside.id) return
  const rest = stages.filter((each) => each !== stage)
  rest.splice(rest.indexOf(beside) + (where === 'after' ? 1 : 0), 0, stage)
  await writeOrder(
    tx,
    rest.map(({ id }) => id),
  )
}

/** Moves a service to a stage; one that comes from another stage is no longer skipped unless requested. */
export const placeService = async (
  tx: Queryable,
  ordered: Ordered,
  stage: Stage,
  serviceId: string,
  isSkipped: boolean | undefined,
): Promise<void> => {
  const { environmentId, stages, members } = ordered
  const member = members.find(({ id }) => id === serviceId.toLowerCase())
  if (member === undefined) throw notFound()
  const before = stageOf(environmentId, stages, { stageId: member.stageId, defaultOrder: defaultOrder(member.kind) })
  const skip = isSkipped ?? (before.id === stage.id ? null : false)
  await tx.query(
    `update service_state set stage_id = $2, is_skipped = coalesce($3, is_skipped) where service_id = $1`,
    [member.id, stage.id, skip],
  )
}

interface Cloned {
  organizationId: string
  from: string
  to: string
  /** The clone's services, by their sources. */
  services: ReadonlyMap<string, string>
}

/** Copies the stages of another environment to a new one, with the stage of each service and whether it is skipped. */
export const copyStages = async (tx: Queryable, { organizationId, from, to, services }: Cloned): Promise<void> => {
  const { stages: rows } = await read(tx, from)
  const usual = new Map(defaultStages(from).map(({ id, order }) => [id, defaultStageId(to, order)]))
  const ids = new Map((rows ?? []).map(({ id }) => [id, usual.get(id) ?? newId()]))
  if (rows !== null)
    await insertStages(
      tx,
      organizationId,
      to,
      rows.map((stage) => ({ ...stage, id: ids.get(stage.id)! })),
    )
  await tx.query(
    `update service_state s set stage_id = g.to, is_skipped = o.is_skipped
     from json_to_recordset($1::json) as w ("from" uuid, "to" uuid) join service_state o on o.service_id = w.from
       left join json_to_recordset($2::json) as g ("from" uuid, "to" uuid) on g.from = o.stage_id
     where s.service_id = w.to and (g.to is not null or o.is_skipped)`,
    [toPairs(services), toPairs(ids)],
  )
}

const toPairs = (map: ReadonlyMap<string, string>): string =>
  JSON.stringify([...map].map(([from, to]) => ({ from, to })))
