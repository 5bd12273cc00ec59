import { DeploymentError } from '../lib/errors.ts'
import type { DeployableKind } from './deployments.ts'
import type { EngineParts } from './engine-parts.ts'
import type { EffectiveVariables } from './workload.ts'

/** Everything that a service sees, as of now. Rejects if a value is in a secret manager, because none is connected. */
export const variablesNow = async (
  parts: Pick<EngineParts, 'variables'>,
  serviceId: string,
): Promise<EffectiveVariables> => {
  const variables = await parts.variables(serviceId)
  const keys = variables.unresolved ?? []
  if (keys.length > 0)
    throw new DeploymentError(
      'secret_not_resolved',
      `${keys.slice(0, 10).join(', ')}: the value is in an external secret manager, which this server is not connected to. Set it as a secret instead.`,
    )
  return variables
}

/** The sealed fields of a service's own row, opened. */
const openSealed = async (
  { database, sealer }: Pick<EngineParts, 'database' | 'sealer'>,
  organizationId: string,
  serviceId: string,
): Promise<Record<string, string>> => {
  const [row] = await database.query<{ sealed: Record<string, string> }>('select sealed from node where id = $1', [
    serviceId,
  ])
  const open = async ([column, text]: [string, string]) => {
    const opened = await sealer.open(organizationId, { table: 'node', row: serviceId, column }, text)
    return [column, opened.reveal()] as const
  }
  return Object.fromEntries(await Promise.all(Object.entries(row?.sealed ?? {}).map(open)))
}

/** Variables with the files that a kind makes of the row beside them. */
export const withOwnFiles = async (
  parts: Pick<EngineParts, 'database' | 'sealer'>,
  kind: DeployableKind,
  organizationId: string,
  service: { id: string; spec: Record<string, unknown> },
  variables: EffectiveVariables,
): Promise<EffectiveVariables> => {
  if (kind.files === undefined) return variables
  const secrets = await openSealed(parts, organizationId, service.id)
  return {
    ...variables,
    files: [...variables.files, ...kind.files(service.spec, secrets)],
    secretValues: [...variables.secretValues, ...Object.values(secrets)],
  }
}

/** What runs gets: the variables that a service sees, or what its kind says. */
export const environmentNow = async (
  parts: Pick<EngineParts, 'variables' | 'database' | 'sealer'>,
  kind: DeployableKind,
  organizationId: string,
  service: { id: string; spec: Record<string, unknown> },
): Promise<EffectiveVariables> => {
  if (kind.environment === undefined)
    return withOwnFiles(parts, kind, organizationId, service, await variablesNow(parts, service.id))
  const secrets = await openSealed(parts, organizationId, service.id)
  const env = kind.environment(service.spec, secrets)
  const origins = Object.fromEntries(Object.keys(env).map((key) => [key, { scope: 'BUILT_IN' }]))
  return { env, files: [], secretValues: Object.values(secrets), origins }
}
