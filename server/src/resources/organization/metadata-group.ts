/**
 * Groups of labels and annotations that services and clusters refer to by id. Promises that Kubernetes accepts every
 * key and value.
 */
import Type, { type TObject, type TProperties, type TSchema } from 'typebox'
import type { Context, Operation } from '../../api/operations/operation.ts'
import { resource, type Spec } from '../../api/operations/resource.ts'
import { List, Name, Text } from '../../api/operations/schema.ts'
import { isReservedLabel } from '../../lib/docker/reserved-labels.ts'
import { invalidField } from '../../lib/errors.ts'
import { noteUnreadFields } from '../cluster/managed/unread-fields.ts'
import { associated, refuseInUse, UsersCount, usersCount } from '../references.ts'

interface Pair {
  key: string
  value: string
}

const word = /^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/
const dnsName = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/

/** `name` or `prefix/name`; the prefix is a DNS name. */
const isKey = (key: string): boolean => {
  const parts = key.split('/')
  if (parts.length > 2 || !word.test(parts.at(-1)!)) return false
  return parts.length === 1 || (parts[0]!.length <= 253 && dnsName.test(parts[0]!))
}

export const isLabelValue = (value: string): boolean => value === '' || word.test(value)

export const Key = () => Text(317, { minLength: 1 })

const checkPair = ({ key, value }: Pair, place: string, isValue: (value: string) => boolean): void => {
  if (!isKey(key))
    throw invalidField(
      `${place}/key`,
      'must be at most 63 letters, digits, dashes, underscores and dots, optionally after a DNS name and a slash',
    )
  if (isReservedLabel(key))
    throw invalidField(
      `${place}/key`,
      'must not begin with slipway, com.docker, io.docker or org.dockerproject: these are reserved',
    )
  if (!isValue(value))
    throw invalidField(`${place}/value`, 'must be at most 63 letters, digits, dashes, underscores and dots')
}

interface MetadataGroup {
  field: 'labels' | 'annotations'
  word: string
  /** The OpenAPI id of the read, which does not always follow the pattern of the others. */
  readId: string
  pair: TObject
  isValue(value: string): boolean
  more?: Record<string, TSchema>
}

export const metadataGroup = ({ field, word, readId, pair, isValue, more = {} }: MetadataGroup): Operation[] => {
  const collection = `/organization/{organizationId}/${field}Groups`
  const param = `${field}GroupId`
  const item = `${collection}/{${param}}`
  const tag = `Organization ${word} Group`
  const words = `a group of ${field}`

  const validate = (spec: Spec, context: Context): Spec => {
    if (context.parts.settings.clusterModules === undefined)
      noteUnreadFields(context, null, Type.Object<TProperties>({ [field]: List(pair, 100) }))
    const pairs = spec[field] as Pair[]
    const seen = new Set<string>()
    for (const [index, one] of pairs.entries()) {
      checkPair(one, `/${field}/${index}`, isValue)
      if (seen.has(one.key)) throw invalidField(`/${field}/${index}/key`, 'is a duplicate')
      seen.add(one.key)
    }
    return spec
  }

  const group = resource({
    area: 'resources',
    kind: `${field}_group`,
    parent: { kind: 'organization', param: 'organizationId' },
    tag,
    words: [words, `groups of ${field}`],
    collection,
    item,
    param,
    ids: {
      list: `listOrganization${word}Group`,
      create: `createOrganization${word}Group`,
      read: readId,
      edit: `editOrganization${word}Group`,
      remove: `deleteOrganization${word}Group`,
    },
    spec: Type.Object<TProperties>({ name: Name(), [field]: List(pair, 100), ...more }),
    record: { [field]: List(pair, 100), ...more, associated_items_count: UsersCount() },
    columns: { associated_items_count: usersCount },
    validate,
    audit: { target: 'ORGANIZATION', subTarget: `${field.toUpperCase()}_GROUP` },
    onDelete: refuseInUse(
      `${field}_group_in_use`,
      `A service or a cluster still uses this group of ${field}: change or delete it first.`,
    ),
  })
  const form = 'associatedItems'
  const users = {
    id: `getOrganization${word}GroupAssociatedItems`,
    form,
    tag,
    item,
    words,
    owner: group.owner,
  } as const
  return [...group.operations, associated(users)]
}
