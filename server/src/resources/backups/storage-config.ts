/**
 * The configuration of a backup storage, checked and completed for its kind. Promises that a stored secret is never sent
 * to an address other than the one it was given for, and that no name leaves the folder or the bucket.
 */
import type { Context } from '../../api/operations/operation.ts'
import { invalidField } from '../../lib/errors.ts'
import { OutboundRefused } from '../../lib/net/outbound.ts'

export interface StorageSpec {
  name: string
  kind: string
  description?: string
  folder?: string
  endpoint?: string
  region?: string
  bucket?: string
  prefix?: string
  access_key_id?: string
  secret_access_key?: string
  path_style?: boolean
}

interface Previous {
  spec: StorageSpec
  sealed: Record<string, string>
}

const ofS3 = ['endpoint', 'region', 'bucket', 'prefix', 'access_key_id', 'secret_access_key', 'path_style'] as const

const refuseOthers = (sent: Record<string, unknown>, fields: readonly string[], kind: string): void => {
  const other = fields.find((field) => sent[field] !== undefined)
  if (other !== undefined) throw invalidField(`/${other}`, `is not a field of the kind ${kind}`)
}

const needed = (value: string | undefined, field: string): string => {
  if (value === undefined || value === '') throw invalidField(`/${field}`, 'is required for the kind S3')
  return value
}

const fitting = (value: string, field: string, pattern: RegExp, words: string): string => {
  if (!pattern.test(value)) throw invalidField(`/${field}`, words)
  return value
}

const originOf = ({ parts }: Context, text: string): string => {
  try {
    const url = parts.outbound.checkSyntax(text)
    if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
      throw invalidField('/endpoint', 'must be an address without a path; the bucket has a field of its own')
    return url.origin
  } catch (error) {
    if (error instanceof OutboundRefused) throw invalidField('/endpoint', error.message)
    throw error
  }
}

const isAws = (endpoint: string): boolean => /\.amazonaws\.com(\.cn)?$/.test(new URL(endpoint).hostname)

const awsIn = (region: string): string => `https://s3.${region}.amazonaws.com`

/** The default follows the region. */
const endpointOf = ({ endpoint }: StorageSpec, region: string, previous: Previous | null): string => {
  const before = previous?.spec
  const isDefault = endpoint === undefined || endpoint === '' || endpoint === awsIn(before?.region ?? '')
  return isDefault ? awsIn(region) : endpoint
}

const isElsewhere = (before: string, endpoint: string): boolean =>
  before !== endpoint && !(isAws(before) && isAws(endpoint))

const pathPart = '[A-Za-z0-9_][A-Za-z0-9._=+@-]*'
const prefixPattern = new RegExp(`^(${pathPart}(/${pathPart})*)?$`)

const completeS3 = (spec: StorageSpec, context: Context, previous: Previous | null): StorageSpec => {
  const region = spec.region === undefined || spec.region === '' ? 'us-east-1' : spec.region
  const endpoint = originOf(context, endpointOf(spec, region, previous))
  const bucket = fitting(
    needed(spec.bucket, 'bucket'),
    'bucket',
    /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/,
    'must be 3 to 63 lower-case letters, digits, dots and hyphens',
  )
  const prefix = fitting(
    (spec.prefix ?? '').replace(/^\/+|\/+$/g, ''),
    'prefix',
    prefixPattern,
    'must be a path of letters, digits and ._=+@- whose parts do not begin with a dot',
  )
  const accessKeyId = fitting(
    needed(spec.access_key_id, 'access_key_id'),
    'access_key_id',
    /^[\w.=+@-]+$/,
    'must be letters, digits and ._=+@-',
  )
  const sent = context.body.secret_access_key
  const kept = previous?.sealed.secret_access_key
  if (sent === '' || (sent === undefined && kept === undefined))
    throw invalidField('/secret_access_key', 'is required for the kind S3')
  if (sent === undefined && previous !== null && isElsewhere(previous.spec.endpoint!, endpoint))
    throw invalidField('/secret_access_key', 'must be sent again when the endpoint changes')
  const { name, kind, description, secret_access_key: secret, path_style: pathStyle = !isAws(endpoint) } = spec
  const words = description === undefined ? {} : { description }
  const sealed = secret === undefined ? {} : { secret_access_key: secret }
  return {
    name,
    kind,
    ...words,
    ...sealed,
    endpoint,
    region,
    bucket,
    prefix,
    access_key_id: accessKeyId,
    path_style: pathStyle,
  }
}

/** As it is stored. Its secret is in the request, or sealed already. */
export const completeStorage = (given: StorageSpec, context: Context, previous: Previous | null): StorageSpec => {
  // The kind stays; the resource refuses another one when it writes.
  const kind = previous?.spec.kind ?? given.kind
  const spec = { ...given, kind }
  if (kind === 'FOLDER') {
    refuseOthers(context.body, ofS3, kind)
    const { name, description, folder = 'backups' } = spec
    return { name, kind, ...(description === undefined ? {} : { description }), folder }
  }
  refuseOthers(context.body, ['folder'], kind)
  return completeS3(spec, context, previous)
}
