/** Groups of labels. */
import Type from 'typebox'
import { Flag, ForModule, Maybe, Text } from '../../api/operations/schema.ts'
import { isLabelValue, Key, metadataGroup } from './metadata-group.ts'

export const labelsGroupOperations = metadataGroup({
  field: 'labels',
  word: 'Labels',
  readId: 'getOrganizationLabelssGroup',
  pair: Type.Object({
    key: Key(),
    value: Text(63),
    propagate_to_cloud_provider: Maybe(
      ForModule(
        Flag({ default: false }),
        'the [module](cloud-clusters.md) of a MANAGED cluster is given the label; elsewhere it is stored and returned, without effect.',
      ),
    ),
  }),
  isValue: isLabelValue,
})
