/** Something of everything that an installation holds, made by the API of whatever revision runs. */
import assert from 'node:assert/strict'
import type { Json, Slipway } from '../support/slipway/slipway.ts'
import { isSettled } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'

/** What the program of a running service says of its secret. */
export const secretValue = 'an old secret, kept'

const web = {
  image_name: 'busybox',
  tag: '1',
  entrypoint: 'sh',
  arguments: [
    '-c',
    "trap 'exit 0' TERM; mkdir /w; echo $KEPT_SECRET > /w/index.html; httpd -p 8080 -h /w; while :; do sleep 0.2; done",
  ],
  cpu: 100,
  memory: 64,
  ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
  healthchecks: {},
}

const git_repository = { url: 'https://git.invalid/shop.git', branch: 'main', root_path: '/' }

const bodies = (registryId: string): Record<string, [path: string, body: object]> => ({
  containerId: ['container', { ...web, name: 'web', registry_id: registryId }],
  stoppedId: ['container', { ...web, name: 'resting', registry_id: registryId }],
  failedId: ['container', { ...web, name: 'failing', registry_id: registryId, arguments: ['-c', 'exit 3'] }],
  jobId: [
    'job',
    {
      name: 'nightly',
      source: { image: { registry_id: registryId, image_name: 'busybox', tag: '1' } },
      schedule: { cronjob: { scheduled_at: '0 3 * * *', entrypoint: 'sh', arguments: ['-c', 'echo it is night'] } },
      healthchecks: {},
    },
  ],
  lifecycleId: [
    'job',
    {
      name: 'prepare',
      source: { image: { registry_id: registryId, image_name: 'busybox', tag: '1' } },
      schedule: {
        on_start: {
          entrypoint: 'sh',
          arguments: [
            '-c',
            `echo '{"MADE": {"value": "by a job", "sensitive": true}}' > /qovery-output/qovery-output.json`,
          ],
        },
        lifecycle_type: 'GENERIC',
      },
      healthchecks: {},
    },
  ],
  applicationId: [
    'application',
    {
      ...{ name: 'shop', git_repository, build_mode: 'DOCKER', dockerfile_path: 'Dockerfile', healthchecks: {} },
      ports: [{ internal_port: 3000, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    },
  ],
  databaseId: ['database', { name: 'orders', type: 'POSTGRESQL', version: '16', mode: 'CONTAINER' }],
  helmId: ['helm', { name: 'chart', auto_deploy: false, source: { git_repository }, arguments: [] }],
  terraformId: [
    'terraform',
    {
      ...{ name: 'infra', description: '', auto_deploy_config: { auto_deploy: false, terraform_action: 'DEFAULT' } },
      terraform_files_source: { git_repository },
      terraform_variables_source: { tf_var_file_paths: [], tf_vars: [{ key: 'region', value: 'eu', secret: true }] },
      ...{ backend: { kubernetes: {} }, engine: 'TERRAFORM' },
      provider_version: { read_from_terraform_block: false, explicit_version: '1.9.7' },
      job_resources: { cpu_milli: 500, ram_mib: 512, gpu: 0, storage_gib: 1 },
    },
  ],
  argocdAppId: ['argocdApp', { name: 'of argo', namespace: 'shop' }],
})

const ofOrganization: Record<string, [path: string, body: object]> = {
  webhookId: [
    'webhook',
    {
      target_url: 'http://127.0.0.1:9/hook',
      events: ['DEPLOYMENT_STARTED', 'DEPLOYMENT_FAILURE'],
      target_secret: 'shh',
    },
  ],
  apiTokenId: ['apiToken', { name: 'ci', scope: 'ADMIN' }],
  gitTokenId: ['gitToken', { name: 'git', type: 'GITHUB', token: 'a git token' }],
  labelsGroupId: ['labelsGroups', { name: 'labels', labels: [{ key: 'team', value: 'shop' }] }],
  annotationsGroupId: [
    'annotationsGroups',
    { name: 'notes', annotations: [{ key: 'a.example/b', value: 'any text' }], scopes: ['PODS'] },
  ],
  helmRepositoryId: [
    'helmRepository',
    { name: 'charts', kind: 'HTTPS', url: 'https://charts.invalid', config: {}, skip_tls_verification: false },
  ],
  customRoleId: ['customRole', { name: 'readers' }],
}

/** Makes it, deploys what can be, stops one of the deployed; answers the ids by the names of parameters. */
export const makeEverything = async (slipway: Slipway): Promise<Record<string, string>> => {
  const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const answer = await slipway.api(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const settled = (path: string): Promise<string> =>
    until(
      async () => {
        const { state } = await send('GET', `${path}/status`)
        return isSettled(state) ? state : null
      },
      { timeoutMs: 180_000, what: `${path} to settle` },
    )
  const organization = await send('GET', '/organization')
  const ids: Record<string, string> = { organizationId: organization.id ?? organization.results[0].id }
  const base = `/organization/${ids.organizationId}`
  ids.clusterId = (await send('GET', `${base}/cluster`)).results[0].id
  for (const [name, [path, body]] of Object.entries(ofOrganization))
    ids[name] = (await send('POST', `${base}/${path}`, body)).id
  const registry = { name: 'hub', kind: 'DOCKER_HUB', url: 'https://docker.io', config: {} }
  ids.containerRegistryId = (await send('POST', `${base}/containerRegistry`, registry)).id
  ids.projectId = (await send('POST', `${base}/project`, { name: 'Old project' })).id
  const project = `/project/${ids.projectId}`
  const environment = await send('POST', `${project}/environment`, { name: 'old', mode: 'STAGING' })
  ids.environmentId = environment.id
  const place = `/environment/${ids.environmentId}`
  await send('POST', `${project}/environmentVariable`, { key: 'COLOUR', value: 'green' })
  ids.secretId = (await send('POST', `${place}/secret`, { key: 'KEPT_SECRET', value: secretValue })).id
  await send('POST', `${place}/secret/${ids.secretId}/alias`, { key: 'ALSO_KEPT' })
  ids.deploymentStageId = (await send('POST', `${place}/deploymentStage`, { name: 'last of all' })).id
  for (const [name, [path, body]] of Object.entries(bodies(ids.containerRegistryId!)))
    ids[name] = (await send('POST', `${place}/${path}`, body)).id
  await send('PUT', `/deploymentStage/${ids.deploymentStageId}/service/${ids.stoppedId}`)
  await send('POST', `/container/${ids.containerId}/customDomain`, {
    domain: 'old.example',
    generate_certificate: false,
  })
  await send('POST', `/container/${ids.containerId}/environmentVariable`, { key: 'OWN', value: 'of the container' })
  for (const [path, name] of [
    ['container', 'containerId'],
    ['container', 'stoppedId'],
    ['job', 'jobId'],
    ['job', 'lifecycleId'],
  ]) {
    await send('POST', `/${path}/${ids[name!]}/deploy`, {})
    assert.equal(await settled(`/${path}/${ids[name!]}`), 'DEPLOYED', name)
  }
  await send('POST', `/container/${ids.containerId}/deploy`, {})
  await settled(`/container/${ids.containerId}`)
  await send('POST', `/job/${ids.jobId}/deploy?forceEvent=CRON`, {})
  await settled(`/job/${ids.jobId}`)
  await send('POST', `/container/${ids.stoppedId}/stop`)
  assert.equal(await settled(`/container/${ids.stoppedId}`), 'STOPPED')
  await send('POST', `/container/${ids.failedId}/deploy`, {})
  assert.match(await settled(`/container/${ids.failedId}`), /_ERROR$/)
  return ids
}
