/** One service of every other kind, and the pages of them all and of the ways in which they are made. */
import type { Page } from 'playwright-core'
import type { Json } from '../server/test/support/slipway/slipway.ts'
import { until } from '../server/test/support/until.ts'
import type { Shots } from './screenshot.ts'

type Call = (method: string, path: string, body?: unknown) => Promise<Json>

export interface Others {
  cronId: string
  lifecycleId: string
  helmId: string
  terraformId: string
  argoId: string
}

const git_repository = { url: 'https://git.example.org/shop/infra.git', branch: 'main', root_path: '/live' }

/** A job by the clock and one by hand, a chart, a module and an app of Argo CD; `settle` waits for a deployment. */
export const furnishOthers = async (
  call: Call,
  { environmentId, registryId }: { environmentId: string; registryId: string },
  settle: () => Promise<unknown>,
): Promise<Others> => {
  const make = async (kind: string, body: object): Promise<string> =>
    (await call('POST', `/environment/${environmentId}/${kind}`, body)).id
  const image = { image_name: 'fake/task', tag: '1.0', registry_id: registryId }
  const output = 'write /slipway-output/slipway-output.json {"BUCKET":{"value":"reports-7","sensitive":false}}'
  const cronId = await make('job', {
    ...{ name: 'nightly-report', source: { image }, healthchecks: {} },
    schedule: { cronjob: { scheduled_at: '0 3 * * *', arguments: ['collecting', 'sending', output] } },
  })
  const lifecycleId = await make('job', {
    ...{ name: 'migrate', source: { image }, healthchecks: {} },
    schedule: { on_start: { arguments: ['3 migrations', output] } },
  })
  const helmId = await make('helm', {
    ...{ name: 'search', source: { git_repository }, arguments: ['--wait'] },
    values_override: {
      set: [['replicas', '2']],
      file: { raw: { values: [{ name: 'values.yaml', content: 'ingress:\n  enabled: true\n' }] } },
    },
  })
  const terraformId = await make('terraform', {
    ...{ name: 'network', engine: 'TERRAFORM', backend: { kubernetes: {} } },
    terraform_files_source: { git_repository },
    terraform_variables_source: { tf_var_file_paths: [], tf_vars: [{ key: 'region', value: 'eu', secret: false }] },
    provider_version: { read_from_terraform_block: false, explicit_version: '1.9.7' },
  })
  const argoId = await make('argocdApp', { name: 'ledger', git_repository })
  for (const id of [cronId, lifecycleId]) {
    await call('POST', `/job/${id}/deploy`)
    await settle()
  }
  const isIdle = async (): Promise<boolean> =>
    (await call('GET', `/job/${cronId}/run`)).results.every(({ state }: Json) => state !== 'RUNNING')
  for (let runs = 0; runs < 3; runs += 1) {
    await call('POST', `/job/${cronId}/run`)
    await until(isIdle, { what: 'the run to end' })
  }
  return { cronId, lifecycleId, helmId, terraformId, argoId }
}

const openCode = async (page: Page): Promise<void> => {
  await page.getByText('The same with curl').click()
  await page.locator('details').getByText('Terraform', { exact: true }).click()
  await page.locator('details pre').first().evaluate('(code) => code.scrollIntoView({ block: "center" })')
}

export const shotsOfServices = (
  { cronId, lifecycleId, helmId, terraformId, argoId }: Others,
  { containerId, databaseId, emptyId }: { containerId: string; databaseId: string; emptyId: string },
): Shots => ({
  'create-template': { path: `/e/${emptyId}/new/template` },
  'create-template-one': { path: `/e/${emptyId}/new/template?template=nextcloud` },
  'create-template-code': { path: `/e/${emptyId}/new/template?template=wordpress`, act: openCode },
  'create-job': { path: `/e/${emptyId}/new/job` },
  'create-job-lifecycle': {
    path: `/e/${emptyId}/new/job`,
    act: (page) => page.getByText('With deployments', { exact: true }).click(),
  },
  'create-helm': { path: `/e/${emptyId}/new/helm` },
  'create-terraform': { path: `/e/${emptyId}/new/terraform` },
  'service-advanced': { path: `/s/container/${containerId}/advanced` },
  'service-advanced-search': { path: `/s/container/${containerId}/advanced?q=hpa` },
  'service-certificate': {
    path: `/s/container/${containerId}/domains`,
    act: (page) => page.getByRole('button', { name: 'Certificate', exact: true }).first().click(),
  },
  'database-settings': { path: `/s/database/${databaseId}/settings` },
  job: { path: `/s/job/${cronId}/overview` },
  'job-run': {
    path: `/s/job/${cronId}/runs`,
    act: (page) => page.getByRole('button', { name: 'Log', exact: true }).first().click(),
  },
  'job-settings': { path: `/s/job/${cronId}/settings` },
  'job-lifecycle': { path: `/s/job/${lifecycleId}/overview` },
  helm: { path: `/s/helm/${helmId}/overview` },
  'helm-settings': { path: `/s/helm/${helmId}/settings` },
  terraform: { path: `/s/terraform/${terraformId}/overview` },
  'terraform-state': { path: `/s/terraform/${terraformId}/state` },
  'terraform-destroy': {
    path: `/s/terraform/${terraformId}/overview`,
    async act(page) {
      await page.getByRole('button', { name: 'More actions' }).click()
      await page.getByRole('menuitem', { name: 'Destroy' }).click()
    },
  },
  'job-log': { path: `/s/job/${cronId}/logs` },
  'helm-domains': { path: `/s/helm/${helmId}/domains` },
  'terraform-settings': { path: `/s/terraform/${terraformId}/settings` },
  'terraform-plan': {
    path: `/s/terraform/${terraformId}/overview`,
    act: (page) => page.getByRole('button', { name: 'Plan only' }).click(),
  },
  'database-credentials': {
    path: `/s/database/${databaseId}/overview`,
    act: (page) => page.getByRole('button', { name: 'Show credentials' }).click(),
  },
  'argocd-settings': { path: `/s/argocdApp/${argoId}/settings` },
  argocd: { path: `/s/argocdApp/${argoId}/overview` },
})
