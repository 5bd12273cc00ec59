/** Groups of labels. */
import Type from 'typebox'
import { Flag, Maybe, Recorded, Text } from '../../api/operations/schema.ts'
import { isLabelValue, Key, metadataGroup } from './metadata-group.ts'

export const labelsGroupOperations = metadataGroup({
  field: 'labels',
  word: 'Labels',
  readId: 'getOrganizationLabelssGroup',
  pair: Type.Object({
    key: Key(),
    value: Text(63),
    propagate_to_cloud_provider: Maybe(Recorded(Flag({ default: false }))),
  }),
  isValue: isLabelValue,
})
