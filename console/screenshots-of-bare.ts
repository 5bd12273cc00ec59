/** An organization without projects, one without services, and services that were never deployed. */
import type { Json } from '../server/test/support/slipway/slipway.ts'

type Call = (method: string, path: string, body?: unknown) => Promise<Json>

export interface Bare {
  /** Without projects. */
  unusedId: string
  organizationId: string
  /** Without environments. */
  plannedId: string
  projectId: string
  environmentId: string
  containerId: string
  databaseId: string
  cronId: string
  terraformId: string
}

export const furnishBare = async (call: Call, within: { environmentId: string; registryId: string }): Promise<Bare> => {
  const make = async (path: string, body: object): Promise<string> => (await call('POST', path, body)).id
  const unusedId = await make('/organization', { name: 'Not begun' })
  const organizationId = await make('/organization', { name: 'Fresh start' })
  const projectId = await make(`/organization/${organizationId}/project`, { name: 'First project' })
  const plannedId = await make(`/organization/${organizationId}/project`, { name: 'Second project' })
  const environmentId = await make(`/project/${projectId}/environment`, { name: 'development', mode: 'DEVELOPMENT' })
  const inside = `/environment/${within.environmentId}`
  const image = { image_name: 'fake/task', tag: '1.0', registry_id: within.registryId }
  return {
    unusedId,
    organizationId,
    plannedId,
    projectId,
    environmentId,
    containerId: await make(`${inside}/container`, {
      ...{ name: 'never-deployed', image_name: 'fake/serve', tag: '2.0', registry_id: within.registryId },
    }),
    databaseId: await make(`${inside}/database`, {
      ...{ name: 'cache', type: 'REDIS', version: '7', mode: 'CONTAINER' },
    }),
    cronId: await make(`${inside}/job`, {
      ...{ name: 'cleanup', source: { image }, healthchecks: {}, schedule: { cronjob: { scheduled_at: '0 4 * * *' } } },
    }),
    terraformId: await make(`${inside}/terraform`, {
      ...{ name: 'dns', engine: 'OPEN_TOFU', backend: { kubernetes: {} } },
      terraform_files_source: { git_repository: { url: 'https://git.example.org/shop/dns.git', branch: 'main' } },
      terraform_variables_source: { tf_var_file_paths: [], tf_vars: [] },
      provider_version: { read_from_terraform_block: false, explicit_version: '1.9.0' },
    }),
  }
}
