/**
 * How a module logs in at the provider of a cluster, for the cluster itself or for a database on it: the credentials
 * of the organization as environment variables of the tool's providers. Decrypted only for a run; never in a state, an
 * input or a log.
 */

import { DeploymentError } from '../lib/errors.ts'
import { readJson } from '../lib/foreign-text/read-json.ts'
import { Secret } from '../lib/secret.ts'
import type { Queryable } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import type { ModuleProvider } from './modules.ts'

type Spec = Record<string, unknown>

interface Form {
  kind: string
  /** The variable of each field. */
  fields: Readonly<Record<string, string>>
  /** Further variables, from the region of the cluster and the decrypted fields. */
  more(region: string, opened: Readonly<Record<string, string>>): Record<string, string>
  /** The requirement, as the end of a sentence. */
  must: string
  /** Whether the decrypted fields fulfill it; absent: they always do. */
  isGood?(opened: Readonly<Record<string, string>>): boolean
}

const fieldsOf = (key: string): Record<string, unknown> | null => {
  try {
    const fields = readJson(key)
    return typeof fields === 'object' ? (fields as Record<string, unknown> | null) : null
  } catch {
    return null
  }
}

const projectOf = (key: string): string => {
  const id = fieldsOf(key)?.project_id
  return typeof id === 'string' ? id.slice(0, 200) : ''
}

/** Neither a path nor a form that makes the tool fetch a login elsewhere; it ignores case in names of fields. */
const isServiceAccountKey = (key: string): boolean => {
  const fields = fieldsOf(key)
  if (fields === null) return false
  return Object.entries(fields).every(([name, value]) => name.toLowerCase() !== 'type' || value === 'service_account')
}

const forms: Readonly<Record<ModuleProvider, Form>> = {
  AWS: {
    kind: 'aws_credentials',
    fields: { access_key_id: 'AWS_ACCESS_KEY_ID', secret_access_key: 'AWS_SECRET_ACCESS_KEY' },
    // Never the login of the machine that the tool runs on.
    more: (region) => ({ AWS_REGION: region, AWS_DEFAULT_REGION: region, AWS_EC2_METADATA_DISABLED: 'true' }),
    must: 'an access key: this server has no identity at AWS by which it could assume a role',
  },
  GCP: {
    kind: 'gcp_credentials',
    fields: { gcp_credentials: 'GOOGLE_CREDENTIALS' },
    more: (region, { gcp_credentials: key = '' }) => ({ GOOGLE_REGION: region, GOOGLE_PROJECT: projectOf(key) }),
    must: 'the key of a service account: this server has no identity that Google Cloud could federate',
    isGood: ({ gcp_credentials: key = '' }) => isServiceAccountKey(key),
  },
  AZURE: {
    kind: 'azure_credentials',
    fields: {
      azure_subscription_id: 'ARM_SUBSCRIPTION_ID',
      azure_tenant_id: 'ARM_TENANT_ID',
      azure_application_id: 'ARM_CLIENT_ID',
      azure_application_secret: 'ARM_CLIENT_SECRET',
    },
    more: () => ({ ARM_USE_CLI: 'false', ARM_USE_MSI: 'false' }),
    must: '`azure_application_id` and `azure_application_secret`, the login of an application of yours',
  },
  SCW: {
    kind: 'scaleway_credentials',
    fields: {
      scaleway_access_key: 'SCW_ACCESS_KEY',
      scaleway_secret_key: 'SCW_SECRET_KEY',
      scaleway_project_id: 'SCW_DEFAULT_PROJECT_ID',
      scaleway_organization_id: 'SCW_DEFAULT_ORGANIZATION_ID',
    },
    more: (region) => ({ SCW_DEFAULT_REGION: region }),
    must: 'an access key',
  },
}

/** The fields of the credentials of these providers that a module logs in with. */
export const loginFields = (provider: ModuleProvider): readonly string[] => Object.keys(forms[provider].fields)

interface Row {
  id: string
  spec: Spec
  sealed: Record<string, string>
}

const findCredentials = async (db: Queryable, organizationId: string, spec: Spec): Promise<Row | null> => {
  const { credentials } = (spec.cloud_provider_credentials ?? {}) as { credentials?: { id?: string } }
  const { kind } = forms[spec.cloud_provider as ModuleProvider]
  const [row] = await db.query<Row>(
    'select id, spec, sealed from node where id::text = $1 and organization_id = $2 and kind = $3',
    [credentials?.id?.toLowerCase() ?? '', organizationId, kind],
  )
  return row ?? null
}

const isSet = (value: unknown): boolean => typeof value === 'string' && value !== ''

/** One sentence that says what the credentials of a cluster lack for a module; null when nothing. */
export const loginRefusal = async (db: Queryable, organizationId: string, spec: Spec): Promise<string | null> => {
  const row = await findCredentials(db, organizationId, spec)
  const { fields, must } = forms[spec.cloud_provider as ModuleProvider]
  const isWhole = row !== null && Object.keys(fields).every((name) => isSet(row.spec[name]) || isSet(row.sealed[name]))
  return isWhole ? null : `The credentials of this cluster must have ${must}.`
}

export interface Login {
  env: Record<string, string>
  /** Values that no log may show. */
  hidden: string[]
}

/** Rejects with a `DeploymentError` when the credentials have gone meanwhile. */
export const openLogin = async (
  { database, sealer }: { database: Queryable; sealer: Sealer },
  organizationId: string,
  spec: Spec,
): Promise<Secret<Login>> => {
  const row = await findCredentials(database, organizationId, spec)
  const { fields, more, must, isGood } = forms[spec.cloud_provider as ModuleProvider]
  const missing = () => new DeploymentError('login_missing', `The credentials of this cluster must have ${must}.`)
  const opened: Record<string, string> = {}
  for (const name of Object.keys(fields)) {
    const [open, sealed] = [row?.spec[name], row?.sealed[name]]
    if (sealed !== undefined) {
      const place = { table: 'node', row: row!.id, column: name }
      opened[name] = (await sealer.open(organizationId, place, sealed)).reveal()
    } else if (isSet(open)) opened[name] = String(open)
    else throw missing()
  }
  if (isGood?.(opened) === false) throw missing()
  const login = Object.entries(fields).map(([name, variable]) => [variable, opened[name]!])
  const env: Record<string, string> = { ...Object.fromEntries(login), ...more(String(spec.region), opened) }
  return new Secret({ env, hidden: Object.keys(row?.sealed ?? {}).flatMap((name) => opened[name] ?? []) })
}

/** The messages with which the providers of the tool report a refused login. */
const refusals: Readonly<Record<ModuleProvider, RegExp>> = {
  AWS: /InvalidClientTokenId|SignatureDoesNotMatch|UnrecognizedClientException|InvalidAccessKeyId|AuthFailure|ExpiredToken|IncompleteSignature|No valid credential sources/i,
  GCP: /invalid_grant|invalid_client|invalid authentication credentials|UNAUTHENTICATED|could not find default credentials|"?credentials"? (are not valid|is not valid JSON)/i,
  AZURE:
    /AADSTS\d+|InvalidAuthenticationToken|unable to build authorizer|invalid_client|ClientSecretCredential authentication failed/i,
  SCW: /denied authentication|authentication is denied|invalid (access|secret) key|access key is required|error 401/i,
}

/** Whether the end of a run's output says that the provider does not accept the login. Pure. */
export const isRefusedLogin = (provider: string, lines: readonly string[]): boolean =>
  lines.some((line) => refusals[provider as ModuleProvider]?.test(line) === true)
