/** Rows that refer to a row in their configuration: counted, listed, and the reason not to delete the row. */
import Type from 'typebox'
import { type Context, type Operation, type Owner, operation, reading } from '../api/operations/operation.ts'
import { Computed, Maybe, OneOf, Results, Text, Uuid, Whole } from '../api/operations/schema.ts'
import { allKinds, kinds, kindsWith, typeOf } from '../kinds.ts'
import { conflict } from '../lib/errors.ts'
import type { Queryable } from '../store/database.ts'
import { answerFrom } from './answer-from.ts'

/** Rows `u` that refer to the id; the second condition is that of the partial index used by the first. */
const naming = (id: string): string =>
  `node_refs(u.spec) @> array[${id}::text] and (u.name_scope = 'service' or u.kind = 'cluster')`

/** SQL for the services and clusters `u` of the organization that refer to a row `n`. */
export const usersOfN = `node u where u.organization_id = n.organization_id and ${naming('n.id')}`

/** SQL for their number. */
export const usersCount = `(select count(*) from ${usersOfN})`

export const UsersCount = () => Computed(Whole(0))

/** For `onDelete`: refuses while something refers to the row. */
export const refuseInUse =
  (code: string, message: string) =>
  async (tx: Queryable, { node, principal }: Context): Promise<undefined> => {
    const rows = await tx.query(`select 1 from node u where u.organization_id = $2 and ${naming('$1::uuid')} limit 1`, [
      node.id,
      principal.organizationId,
    ])
    if (rows.length > 0) throw conflict(code, message)
    return undefined
  }

const jobType = `case when u.spec ->> 'job_type' = 'CRON' or u.spec #> '{schedule,cronjob}' <> 'null' then 'CRON' else 'LIFECYCLE' end`
const hasSchedule = kindsWith(({ schedule }) => schedule)
const typeSql = `case when u.kind = any('{${hasSchedule}}') then ${jobType} else upper(u.kind) end`
const placeSql = `'project_id', p.id, 'project_name', p.name, 'environment_id', e.id, 'environment_name', e.name`

const serviceTypes = allKinds.flatMap((kind) => (kinds[kind].schedule ? ['CRON', 'LIFECYCLE'] : [typeOf(kind)]))

/** Two forms of the same list: services only, and everything that can have a group of labels. */
const forms = {
  associatedServices: {
    record: `json_build_object(${placeSql}, 'service_id', u.id, 'service_name', u.name, 'service_type', ${typeSql})`,
    condition: `u.name_scope = 'service'`,
    answer: Type.Object({
      project_id: Uuid(),
      project_name: Text(),
      environment_id: Uuid(),
      environment_name: Text(),
      service_id: Uuid(),
      service_name: Text(),
      service_type: OneOf(serviceTypes),
    }),
  },
  associatedItems: {
    record: `json_strip_nulls(json_build_object(${placeSql}, 'cluster_id', c.id, 'cluster_name', c.name,
      'item_id', u.id, 'item_name', u.name, 'item_type', ${typeSql}))`,
    condition: 'true',
    answer: Type.Object({
      project_id: Maybe(Uuid()),
      project_name: Maybe(Text()),
      environment_id: Maybe(Uuid()),
      environment_name: Maybe(Text()),
      cluster_id: Maybe(Uuid()),
      cluster_name: Maybe(Text()),
      item_id: Uuid(),
      item_name: Text(),
      item_type: OneOf([...serviceTypes, 'CLUSTER']),
    }),
  },
}

const listSql = ({ record, condition }: { record: string; condition: string }): string =>
  `select '{"results":[' || coalesce(string_agg(${record}::text, ',' order by u.created_at, u.id), '') || ']}' as text
   from node u left join node e on e.id = u.parent_id and e.kind = 'environment' left join node p on p.id = e.parent_id
     left join node c on c.id = case u.kind when 'cluster' then u.id else (e.spec ->> 'cluster_id')::uuid end
   where u.organization_id = $2 and ${naming('$1::uuid')} and ${condition}`

/** `…/associatedServices` or `…/associatedItems`: the users of the row in the path. */
export const associated = (options: {
  id: string
  form: keyof typeof forms
  tag: string
  item: string
  /** The kind of row, with its article. */
  words: string
  owner: Owner
  reads?: 'sensitive'
}): Operation => {
  const { id, form, tag, item, words, owner, reads } = options
  const sql = listSql(forms[form])
  return operation({
    id,
    ...reading,
    path: `${item}/${form}`,
    tag,
    summary: `List the services${form === 'associatedItems' ? ' and clusters' : ''} that use ${words}`,
    area: 'resources',
    ...(reads === undefined ? {} : { reads }),
    owner,
    answer: Results(forms[form].answer),
    run: ({ db, node, principal }) => answerFrom(db, sql, [node.id, principal.organizationId]),
  })
}
