/**
 * An environment moves from Docker to Kubernetes and back: a whole server, a real engine that builds, a registry with a
 * login on this machine, and the machines of the cluster, which pull from it.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { accessManifest } from '../../src/runtimes/kubernetes/rights.ts'
import { busyboxImage } from '../support/docker/busybox-image.ts'
import { login, registryIsMissing, startRegistry } from '../support/docker/registry.ts'
import type { Json } from '../support/slipway/slipway.ts'
import { withSlipway } from '../support/slipway/with-slipway.ts'
import { until } from '../support/until.ts'
import { leadTo, outsideAddress } from './cluster/registry.ts'
import { grantAccess, openCluster, ownNode, revokeAccess } from './cluster/scene.ts'

const skip =
  registryIsMissing ||
  (ownNode === undefined && 'it needs the cluster of the tests, whose node pulls from a registry here')
const patience = { timeoutMs: 180_000 }

/** Two ports of one page: hosts need an ingress controller, which the cluster of the tests has not. */
const site = (text: string): Record<string, string> => ({
  Dockerfile: [
    `FROM ${busyboxImage}`,
    'COPY index.html /www/index.html',
    'USER 10001',
    'CMD ["sh", "-c", "httpd -p 8081 -h /www; exec httpd -f -p 8080 -h /www"]',
    '',
  ].join('\n'),
  'index.html': `${text}\n`,
})
const ports = [
  { internal_port: 8080, protocol: 'HTTP', publicly_accessible: true },
  { internal_port: 8081, protocol: 'TCP', publicly_accessible: true },
]

test('an environment that is cloned from Docker to Kubernetes, and back, serves the same commit', {
  skip,
}, async () => {
  const outside = outsideAddress()
  const registry = await startRegistry({ address: outside })
  // Before the engine is let go.
  after(() => registry.close())
  const { slipway, git } = await withSlipway({ env: { SLIPWAY_OUTBOUND_ALLOW: `loopback,198.18.0.0/15` } })
  leadTo(registry.host, registry.url)
  const admin = await openCluster()
  const kubeconfig = await grantAccess(admin, accessManifest.items)
  after(async () => {
    await revokeAccess(admin)
    admin.close()
  })
  const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const answer = await slipway.api(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const base = `/organization/${(await send('GET', '/organization')).id}`
  const local = (await send('GET', `${base}/cluster`)).results[0]
  const { id: registryId } = await send('POST', `${base}/containerRegistry`, {
    ...{ name: 'images', kind: 'GENERIC_CR', url: `${registry.url}/team`, config: login },
  })
  const { id: credentials } = await send('POST', `${base}/onPremise/credentials`, { name: 'kubernetes', kubeconfig })
  const cluster = await send('POST', `${base}/cluster`, {
    ...{ name: 'kubernetes', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
    cloud_provider_credentials: { credentials: { id: credentials } },
    container_registry_id: registryId,
  })

  await git.createRepository('site')
  const first = await git.commit('site', site('first'), 'first')
  const project = await send('POST', `${base}/project`, { name: 'moving' })
  const origin = await send('POST', `/project/${project.id}/environment`, { name: 'docker', mode: 'DEVELOPMENT' })
  await send('POST', `/environment/${origin.id}/application`, {
    ...{ name: 'site', git_repository: { url: git.url('site'), branch: 'main' }, build_mode: 'DOCKER' },
    ...{ dockerfile_path: 'Dockerfile', cpu: 100, memory: 64, healthchecks: {}, ports },
  })
  const applicationOf = async (environmentId: string): Promise<Json> =>
    (await send('GET', `/environment/${environmentId}/application`)).results[0]
  const logOf = async (environmentId: string): Promise<string> =>
    JSON.stringify(await send('GET', `/environment/${environmentId}/logs`))
  const deploy = async (environmentId: string, body?: Json): Promise<void> => {
    const { id } = await applicationOf(environmentId)
    await send('POST', body === undefined ? `/environment/${environmentId}/deploy` : `/application/${id}/deploy`, body)
    const state = await until(
      async () => {
        const found = (await send('GET', `/application/${id}/status`)).state
        return /^(DEPLOYED|RUNNING|.*_ERROR)$/.test(found) ? found : null
      },
      { ...patience, what: `the deployment of ${environmentId}` },
    )
    assert.doesNotMatch(state, /ERROR/, await logOf(environmentId))
  }
  const pageOf = async (environmentId: string): Promise<string> => {
    const { id } = await applicationOf(environmentId)
    const { results } = await send('GET', `/application/${id}/link`)
    const url: string = results.find((one: Json) => one.url.startsWith('tcp:'))?.url ?? ''
    const answer = await fetch(url.replace('tcp:', 'http:'), { headers: { connection: 'close' } }).catch(() => null)
    return answer === null ? '' : (await answer.text()).trim()
  }
  const serves = async (environmentId: string, page: string, commit: string): Promise<void> => {
    await until(async () => (await pageOf(environmentId)) === page, { ...patience, what: `the page ${page}` })
    assert.equal((await applicationOf(environmentId)).git_repository.deployed_commit_id, commit)
  }
  const cloneTo = async (environmentId: string, name: string, clusterId: string): Promise<string> =>
    (await send('POST', `/environment/${environmentId}/clone`, { name, cluster_id: clusterId, mode: 'DEVELOPMENT' })).id

  await deploy(origin.id)
  await serves(origin.id, 'first', first)

  const moved = await cloneTo(origin.id, 'kubernetes', cluster.id)
  await deploy(moved)
  await serves(moved, 'first', first)
  const podsOf = async (environmentId: string): Promise<Json[]> =>
    (await admin.get(`/api/v1/namespaces/slipway-${environmentId}/pods`)).items
  const [pod] = await podsOf(moved)
  const image: string = pod.spec.containers[0].image
  assert.match(image, new RegExp(`^${registry.host}/team/slipway-[0-9a-f-]+@sha256:[0-9a-f]{64}$`))
  const secrets = (await admin.get(`/api/v1/namespaces/slipway-${moved}/secrets`)).items
  const pull = secrets.filter(({ type }: Json) => type === 'kubernetes.io/dockerconfigjson')
  assert.deepEqual(
    pull.map(({ metadata, immutable }: Json) => [metadata.name, immutable]),
    pod.spec.imagePullSecrets.map(({ name }: Json) => [name, true]),
  )
  const log = await logOf(moved)
  assert.match(log, /Pushing the image to .*Pushed a layer of .*Pushed as /s)
  assert.ok(!log.includes(login.password))

  const again = await cloneTo(moved, 'again', cluster.id)
  await deploy(again)
  await serves(again, 'first', first)
  assert.equal((await podsOf(again))[0].spec.containers[0].image, image, 'the same content has the same image')
  assert.doesNotMatch(await logOf(again), /Pushing the image/)

  const second = await git.commit('site', site('second'), 'second')
  await deploy(moved, { git_commit_id: second })
  await serves(moved, 'second', second)

  const back = await cloneTo(again, 'back', local.id)
  await deploy(back, { git_commit_id: first })
  await serves(back, 'first', first)
  await serves(origin.id, 'first', first)

  for (const id of [moved, again, back, origin.id]) await send('DELETE', `/environment/${id}`)
  for (const id of [moved, again])
    await until(async () => (await admin.ask('GET', `/api/v1/namespaces/slipway-${id}`)).status === 404, {
      ...patience,
      what: `the end of ${id}`,
    })
})
