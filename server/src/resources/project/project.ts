/** Projects: they own environments. */
import Type from 'typebox'
import { resource } from '../../api/operations/resource.ts'
import { Computed, Maybe, Name, Reference, Text, Whole } from '../../api/operations/schema.ts'
import { openStates } from '../../deployments/status/states.ts'
import { conflict } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'

/**
 * Why the project cannot be deleted: something in it runs or is about to, so it must be deleted through the engine
 * first. Null: it can.
 */
const busyReason = async (tx: Queryable, projectId: string): Promise<string | null> => {
  const rows = await tx.query<{ isLeaving: boolean }>(
    `select exists (select from deployment d where d.environment_id = e.id and d.whole_environment
       and d.action = 'DELETE' and d.state in ${openStates}) as "isLeaving"
     from node e where e.parent_id = $1 and e.kind = 'environment' and (
       exists (select 1 from service_state s where s.environment_id = e.id
         and (s.current_release_id is not null or s.state not in ('READY', 'CANCELED')))
       or exists (select 1 from deployment d where d.environment_id = e.id and d.state in ${openStates}))`,
    [projectId],
  )
  if (rows.length === 0) return null
  return rows.every(({ isLeaving }) => isLeaving)
    ? 'The environments of this project are still being deleted: delete the project once they are gone.'
    : 'This project still has a deployed environment: delete it first.'
}

export const project = resource({
  kind: 'project',
  // Creating one needs rights in the organization, changing it rights in the project.
  area: { collection: 'resources', item: 'projects' },
  parent: { kind: 'organization', param: 'organizationId' },
  tag: 'Projects',
  words: ['a project', 'projects'],
  collection: '/organization/{organizationId}/project',
  item: '/project/{projectId}',
  param: 'projectId',
  ids: {
    list: 'listProject',
    create: 'createProject',
    read: 'getProject',
    edit: 'editProject',
    remove: 'deleteProject',
  },
  createStatus: 200,
  spec: Type.Object({ name: Name(), description: Maybe(Text(2048)) }),
  record: {
    organization: Computed(Reference()),
    associated_environments_count: Computed(Whole(0)),
  },
  columns: {
    organization: `json_build_object('id', n.organization_id)`,
    associated_environments_count: `(select count(*) from node e where e.parent_id = n.id and e.kind = 'environment')`,
  },
  audit: { target: 'PROJECT' },
  async onDelete(tx, { node }) {
    // Environments are locked, so that no deployment begins between the check and the delete.
    await tx.query(`select 1 from node where parent_id = $1 order by id for update`, [node.id])
    const reason = await busyReason(tx, node.id)
    if (reason !== null) throw conflict('project_in_use', reason)
    return undefined
  },
})
