/**
 * Values that variables have in external secret managers. Promises that a value is read with the access of its own
 * organization, within limits of time and size, and returned only in the answer; that nothing is kept for another
 * call; and that a failure names the variable, the manager and the reason, and no value. Knows no deployments: its
 * caller freezes the values. Nothing is left behind if the process dies.
 */
import { forEachParallel } from '../../lib/concurrency/parallel.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Outbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Queryable } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import type { ExternalReference } from '../resolve.ts'
import { awsParameters, awsSecrets } from './aws.ts'
import { googleSecrets } from './google.ts'
import { type ManagerPlace, type ReadSecret, SecretFailed } from './reading.ts'

const mostReferences = 100
const parallel = 4

export interface SecretManagers {
  /** The values, by the ids of their variables. Rejects with a `DeploymentError`, or the reason of the signal. */
  read(
    organizationId: string,
    references: readonly ExternalReference[],
    signal: AbortSignal,
  ): Promise<Secret<ReadonlyMap<string, string>>>
}

interface Access {
  id: string
  name: string
  endpoint: Readonly<Record<string, string>>
  authentication: Readonly<Record<string, string>>
  sealed: Readonly<Record<string, string>>
}

const accessesSql = `select id, name, spec -> 'endpoint' as endpoint, spec -> 'authentication' as authentication, sealed
  from node where organization_id = $1 and kind = 'secret_manager_access' and id = any($2)`

const words: Record<string, string> = {
  AWS_SECRET_MANAGER: 'AWS Secrets Manager',
  AWS_PARAMETER_STORE: 'AWS Parameter Store',
  GCP_SECRET_MANAGER: 'Google Cloud Secret Manager',
}

/** The cluster's part of the manager's authentication is missing. */
const needsCluster = (): SecretFailed =>
  new SecretFailed(
    'its authentication is a role of a cluster at the cloud provider, and this one has none: use AWS_STATIC_CREDENTIALS or GCP_JSON_CREDENTIALS',
  )

interface SecretManagersParts {
  database: Queryable
  sealer: Sealer
  outbound: Pick<Outbound, 'request'>
  clock: Clock
  /** Where the hosts of managers are, if not at their own names. */
  addressOf?: ((host: string) => string) | undefined
}

const readerOf = async (
  { sealer }: SecretManagersParts,
  organizationId: string,
  { id, endpoint, authentication, sealed }: Access,
  place: ManagerPlace,
): Promise<ReadSecret> => {
  const open = async (name: string): Promise<string> => {
    const column = `authentication.${name}`
    const text = sealed[column]
    if (text === undefined) throw new SecretFailed('it has no credentials')
    return (await sealer.open(organizationId, { table: 'node', row: id, column }, text)).reveal()
  }
  const { mode: manager, region = '', project_id: projectId = '' } = endpoint
  if (authentication.mode === 'AWS_STATIC_CREDENTIALS' && manager !== 'GCP_SECRET_MANAGER') {
    const keys = { accessKey: authentication.access_key ?? '', secretKey: await open('secret_key') }
    return (manager === 'AWS_PARAMETER_STORE' ? awsParameters : awsSecrets)(place, region, keys)
  }
  if (authentication.mode === 'GCP_JSON_CREDENTIALS' && manager === 'GCP_SECRET_MANAGER')
    return googleSecrets(place, { region, projectId }, await open('json_credentials'))
  throw needsCluster()
}

const failed = (keys: readonly string[], { name, endpoint }: Access, error: SecretFailed): DeploymentError => {
  const manager = words[endpoint.mode ?? ''] ?? 'a secret manager'
  const which = keys.slice(0, 10).join(', ')
  return new DeploymentError(
    'secret_not_resolved',
    `${which}: the value cannot be read from the secret manager ${JSON.stringify(name)} (${manager}): ${error.message}.`,
    { next: error.temporary ? 'retry' : 'stop' },
  )
}

/** One secret of a manager and all variables that refer to it. */
interface Asked {
  accessId: string
  reference: string
  by: ExternalReference[]
}

const group = (references: readonly ExternalReference[]): Asked[] => {
  const groups = Map.groupBy(references, ({ accessId, reference }) => JSON.stringify([accessId, reference]))
  return [...groups.values()].map((by) => ({ accessId: by[0]!.accessId, reference: by[0]!.reference, by }))
}

const keysOf = ({ by }: Asked): string[] => [...new Set(by.map(({ key }) => key))].sort()

export const createSecretManagers = (parts: SecretManagersParts): SecretManagers => {
  const { database, outbound, clock, addressOf = (host: string) => `https://${host}` } = parts

  const readGroups = async (organizationId: string, groups: readonly Asked[], signal: AbortSignal) => {
    const ids = [...new Set(groups.map(({ accessId }) => accessId))]
    const rows = await database.query<Access>(accessesSql, [organizationId, ids])
    const accesses = new Map(rows.map((row) => [row.id, row]))
    const place: ManagerPlace = { outbound, addressOf, now: () => clock.now(), signal }
    const readers = new Map<string, Promise<ReadSecret>>()
    const values = new Map<string, string>()
    let hasFailed = false
    await forEachParallel(parallel, groups, async (asked) => {
      if (hasFailed) return
      signal.throwIfAborted()
      const access = accesses.get(asked.accessId)
      if (access === undefined)
        throw new DeploymentError(
          'secret_not_resolved',
          `${keysOf(asked).join(', ')}: its secret manager access no longer exists.`,
        )
      const reader = readers.get(access.id) ?? readerOf(parts, organizationId, access, place)
      readers.set(access.id, reader)
      try {
        const value = await (await reader)(asked.reference)
        for (const { variableId } of asked.by) values.set(variableId, value)
      } catch (error) {
        hasFailed = true
        throw error instanceof SecretFailed ? failed(keysOf(asked), access, error) : error
      }
    })
    return new Secret<ReadonlyMap<string, string>>(values)
  }

  return {
    async read(organizationId, references, signal) {
      const groups = group(references)
      if (groups.length <= mostReferences) return readGroups(organizationId, groups, signal)
      const message = `The service uses ${groups.length} external secrets; at most ${mostReferences} can be read: put several values into one secret, as a file.`
      throw new DeploymentError('too_many_secrets', message)
    },
  }
}
