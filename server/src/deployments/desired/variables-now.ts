import type { DeployableKind } from '../deployments.ts'
import type { DeploymentParts, EffectiveVariables } from '../parts.ts'

/** Everything that a service sees, as of now; of what is in a secret manager, the reference. */
const variablesNow = async (
  parts: Pick<DeploymentParts, 'variables'>,
  serviceId: string,
  commitId: string | undefined,
): Promise<EffectiveVariables> => {
  const commits = commitId === undefined ? {} : { [serviceId]: commitId }
  return (await parts.variables([serviceId], undefined, commits)).get(serviceId)!
}

/** Puts values in place of references to secret managers. */
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
 * What runs gets: the variables that a service sees, or what its kind says. `commitId` is what is being deployed. Secrets
 * of managers outside are left as references without `fill`.
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
