/** Groups of annotations, and the kinds of objects they apply to. */
import Type from 'typebox'
import { List, OneOf, Text } from '../../api/operations/schema.ts'
import { Key, metadataGroup } from './metadata-group.ts'

const scopes = [
  'DEPLOYMENTS',
  'STATEFUL_SETS',
  'SERVICES',
  'INGRESS',
  'GATEWAY_API_ROUTES',
  'HPA',
  'PODS',
  'SECRETS',
  'JOBS',
  'CRON_JOBS',
]

export const annotationsGroupOperations = metadataGroup({
  field: 'annotations',
  word: 'Annotations',
  readId: 'getOrganizationAnnotationsGroup',
  pair: Type.Object({ key: Key(), value: Text(65_536) }),
  // Any text; Kubernetes limits the annotations of one object to far more than one line of ours.
  isValue: () => true,
  more: { scopes: List(OneOf(scopes), scopes.length) },
})
