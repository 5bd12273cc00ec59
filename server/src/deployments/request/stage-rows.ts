/** Reading the stages of an environment: rows where it has changed them, else the default ones. One statement each. */
import type { Queryable } from '../../store/database.ts'
import { defaultStages, type Stage, stageOf } from './stages.ts'

/** SQL for the stages of the environment `$1` as JSON; null when it has none of its own. */
export const stagesSql = `(select json_agg(json_build_object('id', g.id, 'name', g.name, 'description', g.description,
  'order', g.position) order by g.position, g.id) from deployment_stage g where g.environment_id = $1)`

export const stagesFrom = (environmentId: string, rows: Stage[] | null): Stage[] =>
  rows === null ? defaultStages(environmentId) : rows.map((stage, order) => ({ ...stage, order }))

export interface Placement {
  stages: Stage[]
  /** The stage of a service, whose kind determines the default one. */
  stageOf(serviceId: string, defaultOrder: number): Stage
}

export const readPlacement = async (db: Queryable, environmentId: string): Promise<Placement> => {
  const [row] = await db.query<{ stages: Stage[] | null; placed: Record<string, string> | null }>(
    `select ${stagesSql} as stages, (select json_object_agg(s.service_id, s.stage_id) from service_state s
       where s.environment_id = $1 and s.stage_id is not null) as placed`,
    [environmentId],
  )
  const stages = stagesFrom(environmentId, row!.stages)
  const placed = row!.placed ?? {}
  return {
    stages,
    stageOf: (serviceId, defaultOrder) =>
      stageOf(environmentId, stages, { stageId: placed[serviceId] ?? null, defaultOrder }),
  }
}
