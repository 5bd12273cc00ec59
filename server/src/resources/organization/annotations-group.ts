/** Groups of annotations, with the kinds of objects that a Kubernetes cluster would put them on. */
import Type from 'typebox'
import { List, OneOf, Recorded, Text } from '../../api/operations/schema.ts'
import { words } from '../../lib/words.ts'
import { Key, metadataGroup } from './metadata-group.ts'

const scopes = words('DEPLOYMENTS STATEFUL_SETS SERVICES INGRESS GATEWAY_API_ROUTES HPA PODS SECRETS JOBS CRON_JOBS')

export const annotationsGroupOperations = metadataGroup({
  field: 'annotations',
  word: 'Annotations',
  readId: 'getOrganizationAnnotationsGroup',
  pair: Type.Object({ key: Key(), value: Text(65_536) }),
  // Any text; Kubernetes limits the annotations of one object to far more than one line of ours.
  isValue: () => true,
  more: {
    scopes: Recorded(
      List(OneOf(scopes), scopes.length),
      'annotations are labels of the containers, whatever the scopes.',
    ),
  },
})
