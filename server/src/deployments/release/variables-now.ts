import { DeploymentError } from '../../lib/errors.ts'
import type { DeployableKind } from '../deployments.ts'
import type { DeploymentParts } from '../parts.ts'
import type { EffectiveVariables } from './workload.ts'

/** Everything that a service sees, as of now. Rejects if a value is in a secret manager, because none is connected. */
const variablesNow = async (
  parts: Pick<DeploymentParts, 'variables'>,
  serviceId: string,
  commitId: string | undefined,
): Promise<EffectiveVariables> => {
  const commits = commitId === undefined ? {} : { [serviceId]: commitId }
  const variables = (await parts.variables([serviceId], undefined, commits)).get(serviceId)!
  const keys = variables.unresolved ?? []
  if (keys.length > 0)
    throw new DeploymentError(
      'secret_not_resolved',
      `${keys.slice(0, 10).join(', ')}: the value is in an external secret manager, which this server is not connected to. Set it as a secret instead.`,
    )
  return variables
}

type SealedFields = Readonly<Record<string, string>>

const openFields = async (
  { sealer }: Pick<DeploymentParts, 'sealer'>,
  organizationId: string,
  serviceId: string,
  sealed: SealedFields,
): Promise<Record<string, string>> => {
  const open = async ([column, text]: [string, string]) => {
    const opened = await sealer.open(organizationId, { table: 'node', row: serviceId, column }, text)
    return [column, opened.reveal()] as const
  }
  return Object.fromEntries(await Promise.all(Object.entries(sealed).map(open)))
}

/** The sealed fields of a service's own row, opened. */
const openSealed = async (
  parts: Pick<DeploymentParts, 'database' | 'sealer'>,
  organizationId: string,
  serviceId: string,
): Promise<Record<string, string>> => {
  const [row] = await parts.database.query<{ sealed: SealedFields }>('select sealed from node where id = $1', [
    serviceId,
  ])
  return openFields(parts, organizationId, serviceId, row?.sealed ?? {})
}

/** Variables with the files that a kind makes of the row beside them; `sealed` where the row was read already. */
export const withOwnFiles = async (
  parts: Pick<DeploymentParts, 'database' | 'sealer'>,
  kind: DeployableKind,
  organizationId: string,
  service: { id: string; spec: Record<string, unknown>; sealed?: SealedFields },
  variables: EffectiveVariables,
): Promise<EffectiveVariables> => {
  if (kind.files === undefined) return variables
  const secrets =
    service.sealed === undefined
      ? await openSealed(parts, organizationId, service.id)
      : await openFields(parts, organizationId, service.id, service.sealed)
  return {
    ...variables,
    files: [...variables.files, ...kind.files(service.spec, secrets)],
    secretValues: [...variables.secretValues, ...Object.values(secrets)],
  }
}

/** What runs gets: the variables that a service sees, or what its kind says. `commitId` is what is being deployed. */
export const environmentNow = async (
  parts: Pick<DeploymentParts, 'variables' | 'database' | 'sealer'>,
  kind: DeployableKind,
  organizationId: string,
  service: { id: string; spec: Record<string, unknown> },
  commitId?: string,
): Promise<EffectiveVariables> => {
  if (kind.environment === undefined)
    return withOwnFiles(parts, kind, organizationId, service, await variablesNow(parts, service.id, commitId))
  const secrets = await openSealed(parts, organizationId, service.id)
  const env = kind.environment(service.spec, secrets)
  const origins = Object.fromEntries(Object.keys(env).map((key) => [key, { scope: 'BUILT_IN' }]))
  return { env, files: [], secretValues: Object.values(secrets), origins }
}
