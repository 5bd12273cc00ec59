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
    'Follow the changes of an organization: frames `{refetch, changes: [{kind, part, verb, id, project_id, environment_id}]}` with those that the caller may see; after `refetch`, earlier reads may be outdated',
  area: 'settings',
  owner: organizationInPath,
  produces: 'websocket',
  socket({ parts, principal }, socket) {
    followOrganization(parts, principal, socketSink(socket))
  },
})
