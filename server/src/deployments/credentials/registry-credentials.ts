/** The address of a container registry, and the user and password from its configuration. */

import type { RegistryPlace } from '../../clusters/pushed-builder.ts'
import type { ImageAccess, RegistryLogin } from '../../images/images.ts'
import { isHub } from '../../lib/docker/registry-session.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Database } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import type { RegistryCredentials } from '../parts.ts'

interface RegistryRow {
  id: string
  kind: string
  url: string
  config: Record<string, unknown>
  sealed: Record<string, string>
}

/** The user name, and which of the secrets is the password. */
type Login = (config: RegistryRow['config'], opened: string) => string

interface Way {
  secret: string
  username: Login
}

const isBase64Json = (text: string): boolean => !text.trimStart().startsWith('{')

/** Kinds whose login is not simply the user name and password of the configuration. */
const ways: Record<string, Way> = {
  SCALEWAY_CR: { secret: 'scaleway_secret_key', username: () => 'nologin' },
  // A service principal: its application id and its password.
  AZURE_CR: {
    secret: 'password',
    username: ({ username, azure_application_id: application }) => String(username ?? application ?? ''),
  },
  GCP_ARTIFACT_REGISTRY: {
    secret: 'json_credentials',
    username: (_, opened) => (isBase64Json(opened) ? '_json_key_base64' : '_json_key'),
  },
}

const usual: Way = { secret: 'password', username: ({ username }) => String(username ?? '') }

/** Logins that only a cloud provider's own service issues, valid for some hours each. */
const needsProvider: Record<string, string> = {
  ECR: 'AWS',
  AZURE_CR: 'Azure',
  GCP_ARTIFACT_REGISTRY: 'Google Cloud',
}

const impossibleLogin = (provider: string): string =>
  `Logging in to this registry requires credentials issued by ${provider}, which this server cannot request: set a user name and a password, or use a registry of another kind.`

/** How deployments log in to a registry with this configuration; `has` returns which of its secrets are set. */
export const loginStateOf = (
  kind: string,
  config: RegistryRow['config'],
  has: (secret: string) => boolean,
): { state: 'CREDENTIALS' | 'ANONYMOUS' | 'NOT_POSSIBLE'; message: string | null } => {
  const isUsable = ({ secret, username }: Way): boolean => has(secret) && username(config, '') !== ''
  if ([ways[kind] ?? usual, usual].some(isUsable)) return { state: 'CREDENTIALS', message: null }
  const provider = needsProvider[kind]
  if (provider === undefined) return { state: 'ANONYMOUS', message: null }
  return { state: 'NOT_POSSIBLE', message: impossibleLogin(provider) }
}

export const loginOf = ({ username, password }: RegistryCredentials): ImageAccess['login'] =>
  username === null || password === null ? null : new Secret({ username, password: password.reveal() })

const registriesSql = `select id, spec ->> 'kind' as kind, spec ->> 'url' as url, coalesce(spec -> 'config', '{}') as config, sealed
  from node where kind = 'container_registry'`

/** Null when the registry was deleted. Rejects with a `DeploymentError` for a login that this server cannot make. */
export const readRegistryCredentials = async (
  database: Database,
  sealer: Sealer,
  organizationId: string,
  registryId: string,
): Promise<RegistryCredentials | null> => {
  const [row] = await database.query<RegistryRow>(`${registriesSql} and id = $1 and organization_id = $2`, [
    registryId,
    organizationId,
  ])
  return row === undefined ? null : openLogin(sealer, organizationId, row)
}

/** Where images are pushed, and the login for that; as `readRegistryCredentials`. */
export const readRegistryPlace = async (
  ...asked: Parameters<typeof readRegistryCredentials>
): Promise<RegistryPlace | null> => {
  const credentials = await readRegistryCredentials(...asked)
  return credentials && { url: credentials.url, login: loginOf(credentials) }
}

export const openLogin = async (
  sealer: Sealer,
  organizationId: string,
  row: RegistryRow,
): Promise<RegistryCredentials> => {
  const open = async (name: string): Promise<string> => {
    const column = `config.${name}`
    const sealed = row.sealed[column]
    if (sealed === undefined) return ''
    return (await sealer.open(organizationId, { table: 'node', row: row.id, column }, sealed)).reveal()
  }
  for (const { secret, username } of [ways[row.kind] ?? usual, usual]) {
    const opened = await open(secret)
    const user = username(row.config, opened)
    if (opened !== '' && user !== '') return { url: row.url, username: user, password: new Secret(opened) }
  }
  const provider = needsProvider[row.kind]
  if (provider === undefined) return { url: row.url, username: null, password: null }
  throw new DeploymentError('registry_login_missing', impossibleLogin(provider))
}

const hostOf = (url: string): string => {
  const host = URL.parse(url)?.host ?? ''
  return isHub(host) ? 'docker.io' : host
}

/** See `RegistryLogins`. A registry whose logins this server cannot make is left out. */
export const readRegistryLogins = async (
  database: Database,
  sealer: Sealer,
  organizationId: string,
  host: string,
): Promise<RegistryLogin[]> => {
  const rows = await database.query<RegistryRow>(`${registriesSql} and organization_id = $1 order by created_at, id`, [
    organizationId,
  ])
  const logins: RegistryLogin[] = []
  for (const row of rows.filter(({ url }) => hostOf(url) === hostOf(`https://${host}`)))
    try {
      const login = loginOf(await openLogin(sealer, organizationId, row))
      logins.push({ origin: new URL(row.url), login })
    } catch (error) {
      if (!(error instanceof DeploymentError)) throw error
    }
  return logins
}
