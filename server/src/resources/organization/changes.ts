/** Everything that changes in an organization, as one stream: for pages and programs that show more than one thing. */
import { type Operation, operation, organizationInPath, reading } from '../../api/operations/operation.ts'
import { followOrganization } from '../../streams/organization-changes.ts'
import { socketSink } from '../../streams/sink.ts'

export const organizationChanges: Operation = operation({
  id: 'streamOrganizationChanges',
  ...reading,
  path: '/organization/{organizationId}/changes',
  tag: 'Websocket',
  summary:
    'Follow what changes in an organization: frames `{refetch, changes: [{kind, part, verb, id, project_id, environment_id}]}` of what the caller may see; after `refetch`, what was read before may be old',
  area: 'settings',
  owner: organizationInPath,
  produces: 'websocket',
  socket({ parts, principal }, socket) {
    followOrganization(parts, principal, socketSink(socket))
  },
})
