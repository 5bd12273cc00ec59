/** What is on the pictures: an installation with something of everything. */
import type { Json, Slipway } from '../server/test/support/slipway/slipway.ts'
import { until } from '../server/test/support/until.ts'
import { type Bare, furnishBare } from './screenshots-of-bare.ts'
import { furnishPreviews, type Previewed } from './screenshots-of-previews.ts'
import { furnishOthers, type Others } from './screenshots-of-services.ts'

const hostile = `<script>alert(1)</script> \u202egnp.exe ${'long'.repeat(40)}`

export interface Place {
  organizationId: string
  projectId: string
  environmentId: string
  emptyId: string
  containerId: string
  databaseId: string
  executionId: string
  /** Takes longer to be ready than the pictures of it take. */
  slow: { environmentId: string; containerId: string }
  others: Others
  previewed: Previewed
  bare: Bare
  /** A token that may only read. */
  readerToken: string
}

const send = async (slipway: Slipway, method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const settle = (slipway: Slipway, environmentId: string): Promise<unknown> =>
  until(
    async () => {
      const { state } = await send(slipway, 'GET', `/environment/${environmentId}/status`)
      return /^(DEPLOYED|.*_ERROR|READY|STOPPED|CANCELED)$/.test(state)
    },
    { what: 'the deployment to end', timeoutMs: 60_000 },
  )

type Call = (method: string, path: string, body?: unknown) => Promise<Json>

/** Rules by which environments are placed, and a cluster that nobody has made yet. */
const furnishPlaces = async (call: Call, inOrganization: string, projectId: string): Promise<void> => {
  const [cluster] = (await call('GET', `${inOrganization}/cluster`)).results
  for (const [name, wildcard, mode] of [
    ['Features', 'feature-*', 'DEVELOPMENT'],
    ['Everything else', '*', 'STAGING'],
  ])
    await call('POST', `/project/${projectId}/deploymentRule`, {
      ...{ name, wildcard, mode, cluster_id: cluster.id, auto_stop: wildcard !== '*', timezone: 'Europe/Paris' },
      ...{ start_time: '1970-01-01T08:00:00Z', stop_time: '1970-01-01T19:00:00Z', weekdays: ['MONDAY', 'TUESDAY'] },
    })
  const keys = { name: 'keys', type: 'AWS_STATIC', access_key_id: 'AKIAEXAMPLE', secret_access_key: 'a secret' }
  const { id: keysId } = await call('POST', `${inOrganization}/aws/credentials`, keys)
  const { id: cloudId } = await call('POST', `${inOrganization}/cluster`, {
    ...{ name: 'eu-production', region: 'eu-west-3', cloud_provider: 'AWS', kubernetes: 'MANAGED' },
    cloud_provider_credentials: { credentials: { id: keysId }, region: 'eu-west-3' },
  })
  await call('POST', `${inOrganization}/cluster/${cloudId}/deploy?dry_run=true`)
}

const furnishSources = async (call: Call, inOrganization: string): Promise<void> => {
  await call('POST', `${inOrganization}/helmRepository`, {
    ...{ name: 'our charts', kind: 'HTTPS', url: 'https://charts.example.org', config: {} },
  })
  await call('POST', `${inOrganization}/annotationsGroups`, {
    ...{ name: 'owner', annotations: [{ key: 'example.org/owner', value: 'shop' }], scopes: ['PODS'] },
  })
}

/** An installation with something of everything. */
export const furnish = async (slipway: Slipway): Promise<Place> => {
  const call = (method: string, path: string, body?: unknown) => send(slipway, method, path, body)
  const organizationId = (await call('GET', '/organization')).results[0].id
  const registries = (await call('GET', `/organization/${organizationId}/containerRegistry`)).results
  const registryId =
    registries[0]?.id ??
    (
      await call('POST', `/organization/${organizationId}/containerRegistry`, {
        name: 'Docker Hub',
        kind: 'DOCKER_HUB',
        url: 'https://docker.io',
        config: {},
      })
    ).id
  const project = await call('POST', `/organization/${organizationId}/project`, { name: 'Shop' })
  const other = await call('POST', `/organization/${organizationId}/project`, { name: hostile })
  const environment = await call('POST', `/project/${project.id}/environment`, {
    name: 'production',
    mode: 'PRODUCTION',
  })
  const empty = await call('POST', `/project/${project.id}/environment`, {
    name: 'feature-checkout',
    mode: 'DEVELOPMENT',
  })
  await call('POST', `/project/${other.id}/environment`, { name: hostile, mode: 'STAGING' })
  const idle = await call('POST', `/project/${other.id}/environment`, { name: 'idle', mode: 'DEVELOPMENT' })
  const container = (name: string, image: string, more: object = {}) =>
    call('POST', `/environment/${environment.id}/container`, {
      name,
      image_name: image,
      tag: '1.4.2',
      registry_id: registryId,
      memory: 256,
      ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
      ...more,
    })
  const web = await container('web', 'fake/serve')
  await container('prices', 'fake/serve', { ports: [] })
  const database = await call('POST', `/environment/${environment.id}/database`, {
    name: 'main',
    type: 'POSTGRESQL',
    version: '16',
    mode: 'CONTAINER',
  })
  await call('POST', '/variable', {
    key: 'PAYMENT_URL',
    value: 'https://pay.example.org',
    is_secret: false,
    variable_scope: 'ENVIRONMENT',
    variable_parent_id: environment.id,
  })
  await call('POST', '/variable', {
    key: 'PAYMENT_KEY',
    value: 'secret',
    is_secret: true,
    variable_scope: 'CONTAINER',
    variable_parent_id: web.id,
  })
  await call('POST', `/environment/${environment.id}/deploy`)
  await settle(slipway, environment.id)
  await call('POST', `/container/${web.id}/customDomain`, { domain: 'shop.example.org', generate_certificate: true })
  const others = await furnishOthers(call, { environmentId: environment.id, registryId }, () =>
    settle(slipway, environment.id),
  )
  const broken = await container('reviews', 'fake/crash')
  await call('POST', `/container/${broken.id}/deploy`)
  await settle(slipway, environment.id)
  await call('PUT', `/container/${web.id}`, { memory: 300 })
  const inOrganization = `/organization/${organizationId}`
  await call('POST', `${inOrganization}/labelsGroups`, { name: 'team', labels: [{ key: 'team', value: 'shop' }] })
  await call('POST', `${inOrganization}/gitToken`, { name: 'forge', type: 'GITHUB', token: 'x' })
  await call('POST', `${inOrganization}/gitWebhook`, { description: 'our git host' })
  await call('POST', `${inOrganization}/customRole`, {
    name: 'Shop team',
    description: 'Deploys the shop everywhere but in production',
    project_permissions: [
      {
        project_id: project.id,
        permissions: ['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION'].map((mode) => ({
          environment_type: mode,
          permission: mode === 'PRODUCTION' ? 'VIEWER' : 'DEPLOYER',
        })),
      },
    ],
  })
  await call('POST', `/organization/${organizationId}/webhook`, {
    kind: 'STANDARD',
    target_url: 'http://127.0.0.1:9/hook',
    events: ['DEPLOYMENT_FAILURE'],
    target_secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  }).catch(() => undefined)
  await furnishPlaces(call, inOrganization, project.id)
  await furnishSources(call, inOrganization)
  const slowId = (await call('POST', `/project/${project.id}/environment`, { name: 'rollout', mode: 'STAGING' })).id
  const slow = await call('POST', `/environment/${slowId}/container`, {
    ...{ name: 'importer', image_name: 'fake/slow', tag: '600000', registry_id: registryId, memory: 128 },
    ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
  })
  const { token: readerToken } = await call('POST', `${inOrganization}/apiToken`, { name: 'reader', scopes: ['Read'] })
  const previewed = await furnishPreviews(call, { organizationId, projectId: project.id })
  const { results } = await call('GET', `/environment/${environment.id}/deploymentHistoryV2`)
  return {
    organizationId,
    projectId: project.id,
    environmentId: environment.id,
    emptyId: empty.id,
    containerId: web.id,
    databaseId: database.id,
    executionId: results[0].identifier.execution_id,
    slow: { environmentId: slowId, containerId: slow.id },
    others,
    previewed,
    bare: await furnishBare(call, { environmentId: idle.id, registryId }),
    readerToken,
  }
}
