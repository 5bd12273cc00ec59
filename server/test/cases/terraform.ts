/** Cases of terraform services. */
import type { Cases, Scene, Values } from './case.ts'

const git_repository = { url: 'https://github.com/example/infra.git', branch: 'main', root_path: '/' }

export const terraformBody = (name: string) => ({
  name,
  description: '',
  auto_deploy_config: { auto_deploy: false, terraform_action: 'DEFAULT' },
  terraform_files_source: { git_repository },
  terraform_variables_source: { tf_var_file_paths: [], tf_vars: [{ key: 'region', value: 'eu', secret: false }] },
  backend: { kubernetes: {} },
  engine: 'TERRAFORM',
  provider_version: { read_from_terraform_block: false, explicit_version: '1.9.7' },
  job_resources: { cpu_milli: 500, ram_mib: 512, gpu: 0, storage_gib: 1 },
})

/** Something was asked of it, so that there may be something to remove. */
const uninstallable = (values: Values, { api }: Scene): Promise<unknown> =>
  api.database.query(`update service_state set state = 'DEPLOYED' where service_id = $1`, [values.terraformId])

export const terraformCases: Cases = {
  makers: {
    async terraformId(values, scene) {
      const environment = await scene.need(values, 'environmentId')
      return (await scene.post(`/environment/${environment}/terraform`, terraformBody(`terraform ${scene.count}`))).id
    },
  },
  cases: {
    createTerraform: { body: (_, { count }) => terraformBody(`made ${count}`) },
    editTerraform: { body: () => ({ timeout_sec: 60 }) },
    deployTerraform: { body: () => ({ action: 'PLAN' }) },
    redeployTerraform: {},
    uninstallTerraform: { before: uninstallable, scopes: [] },
    listTerraforms: { before: (values, { need }) => need(values, 'terraformId') },
  },
}
