/** The users of a secret manager access: variables of projects, environments and services. */
import Type from 'typebox'
import { nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { Maybe, Results, Text, Uuid } from '../../api/operations/schema.ts'
import { conflict } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { answerFrom } from '../answer-from.ts'

/** Throws a 409 if accesses of a cluster outside `kept` are still in use. */
export const refuseUsedAccesses = async (tx: Queryable, clusterId: string, kept: readonly string[]): Promise<void> => {
  const rows = await tx.query(
    `select 1 from node a join variable v on v.secret_manager_access_id = a.id
     where a.parent_id = $1 and a.kind = 'secret_manager_access' and a.id <> all($2) limit 1`,
    [clusterId, kept],
  )
  if (rows.length > 0)
    throw conflict(
      'secret_manager_access_in_use',
      'An external secret still uses an access of this cluster: change or delete it first.',
    )
}

/** The place of a variable: a service, an environment or a project; narrower fields are null. */
const placesSql = `from variable v join node o on o.id = v.parent_id
  left join node s on s.id = o.id and s.name_scope = 'service'
  left join node e on e.kind = 'environment' and e.id = case when s.id is null then o.id else o.parent_id end
  left join node p on p.kind = 'project' and p.id = coalesce(e.parent_id, o.id)`

const listSql = `select '{"results":' || coalesce(json_agg(json_strip_nulls(json_build_object(
    'project_id', p.id, 'project_name', p.name, 'environment_id', coalesce(e.id::text, ''),
    'environment_name', coalesce(e.name, ''), 'service_id', s.id, 'service_name', s.name,
    'service_type', case when s.id is null then null else v.scope end, 'variable_name', v.key,
    'external_secret_name', coalesce(v.value, ''))) order by v.created_at, v.id)::text, '[]') || '}' as text
  ${placesSql} where v.secret_manager_access_id = $1 and v.organization_id = $2`

export const secretManagerUserOperations: Operation[] = [
  operation({
    id: 'listSecretManagerAccessExternalSecrets',
    ...reading,
    path: '/secretManagerAccess/{secretManagerAccessId}/associatedServices',
    tag: 'Secret Manager Access',
    summary: 'List the external secrets that use a secret manager access, and where they are set',
    area: 'projects',
    reads: 'sensitive',
    owner: nodeInPath('secret_manager_access', 'secretManagerAccessId'),
    answer: Results(
      Type.Object({
        project_id: Uuid(),
        project_name: Text(),
        // Empty for variables of a whole project.
        environment_id: Text(36),
        environment_name: Text(),
        service_id: Maybe(Uuid()),
        service_name: Maybe(Text()),
        service_type: Maybe(Text()),
        variable_name: Text(),
        external_secret_name: Text(65_536),
      }),
    ),
    run: ({ db, node, principal }) => answerFrom(db, listSql, [node.id, principal.organizationId]),
  }),
]
