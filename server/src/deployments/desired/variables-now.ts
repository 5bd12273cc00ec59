import type { DeployableKind } from '../deployments.ts'
import type { DeploymentParts, EffectiveVariables } from '../parts.ts'

/** All variables that a service sees now; for those in a secret manager, the reference. */
const variablesNow = async (
  parts: Pick<DeploymentParts, 'variables'>,
  serviceId: string,
  commitId: string | undefined,
): Promise<EffectiveVariables> => {
  const commits = commitId === undefined ? {} : { [serviceId]: commitId }
  return (await parts.variables([serviceId], undefined, commits)).get(serviceId)!
}

/** Replaces references to secret managers with values. */
export type Fill = (variables: EffectiveVariables) => Promise<EffectiveVariables>

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

/** Variables with the files that a kind makes from the row; `sealed` if the row was read already. */
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
  const own = kind.files(service.spec, secrets)
  const { asWritten } = variables
  return {
    ...variables,
    files: [...variables.files, ...own],
    ...(asWritten === undefined ? {} : { asWritten: { ...asWritten, files: [...asWritten.files, ...own] } }),
    secretValues: [...variables.secretValues, ...Object.values(secrets)],
  }
}

/**
 * The environment of a service's programs: the variables that it sees, or its kind's own. `commitId` is the one being
 * deployed. Without `fill`, secrets of external managers stay references.
 */
export const environmentNow = async (
  parts: Pick<DeploymentParts, 'variables' | 'database' | 'sealer'>,
  kind: DeployableKind,
  organizationId: string,
  service: { id: string; spec: Record<string, unknown> },
  { commitId, fill = async (variables) => variables }: { commitId?: string | undefined; fill?: Fill } = {},
): Promise<EffectiveVariables> => {
  if (kind.environment === undefined) {
    const variables = await fill(await variablesNow(parts, service.id, commitId))
    return withOwnFiles(parts, kind, organizationId, service, variables)
  }
  const secrets = await openSealed(parts, organizationId, service.id)
  const env = kind.environment(service.spec, secrets)
  const origins = Object.fromEntries(Object.keys(env).map((key) => [key, { scope: 'BUILT_IN' }]))
  return { env, files: [], secretValues: Object.values(secrets), origins }
}
