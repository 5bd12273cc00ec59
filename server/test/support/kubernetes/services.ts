/** Services on a Kubernetes cluster in memory, through the API: a registered cluster, a registry with images, an API. */
import assert from 'node:assert/strict'
import { after } from 'node:test'
import { createOutbound } from '../../../src/lib/net/outbound.ts'
import { type Json, startApi } from '../api.ts'
import { createFakeEngines } from '../docker/fake-engines.ts'
import { makeImage, startFakeRegistry } from '../docker/fake-registry.ts'
import { until } from '../until.ts'
import { startMemoryCluster } from './api-server.ts'

/** What such a container has that is public. */
export const port = { internal_port: 8080, publicly_accessible: true, protocol: 'HTTP' }

export const startServices = async () => {
  const registry = await startFakeRegistry()
  const kubernetes = await startMemoryCluster()
  const local = createOutbound({ allow: ['loopback'] })
  /** The public registry is that of the test. */
  const outbound = {
    ...local,
    open: (wanted: Parameters<typeof local.open>[0]) => {
      const { pathname, search } = new URL(String(wanted.url))
      return local.open({ ...wanted, url: new URL(pathname + search, registry.url) })
    },
  }
  const api = await startApi({ engines: createFakeEngines(), kubernetes: { outbound } })
  const { call, organizationId } = api
  const base = `/organization/${organizationId}`
  after(async () => {
    await kubernetes.close()
    await registry.close()
  })
  for (const name of ['shop/api:1', 'shop/api:2', 'shop/task:1', 'library/redis:7'])
    registry.publish(name, await makeImage())

  const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const answer = await call(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }

  const register = async (): Promise<string> => {
    const credentials = { name: 'kubernetes', kubeconfig: kubernetes.kubeconfig() }
    const { id } = await must('POST', `${base}/onPremise/credentials`, credentials)
    const cluster = await must('POST', `${base}/cluster`, {
      ...{ name: 'kubernetes', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
      cloud_provider_credentials: { credentials: { id } },
    })
    return cluster.id
  }
  const clusterId = await register()
  const { id: registryId } = await must('POST', `${base}/containerRegistry`, {
    ...{ name: 'images', kind: 'GENERIC_CR', url: registry.url.origin, config: {} },
  })
  let made = 0
  const newEnvironment = async (): Promise<string> => {
    made += 1
    const project = await must('POST', `${base}/project`, { name: `project ${made}` })
    const body = { name: 'production', cluster: clusterId }
    return (await must('POST', `/project/${project.id}/environment`, body)).id
  }
  const containerBody = (more: Json = {}): Json => ({
    ...{ registry_id: registryId, image_name: 'shop/api', tag: '1', healthchecks: {}, ports: [port] },
    ...more,
  })
  const atRest = (path: string, wanted: RegExp): Promise<string> =>
    until(
      async () => {
        const { state } = (await call('GET', `${path}/status`)).body
        return /^(READY|DEPLOYED|RESTARTED|STOPPED|CANCELED|.*_ERROR)$/.test(state) && wanted.test(state) ? state : null
      },
      { what: `${path} to be ${wanted}`, timeoutMs: 60_000 },
    )
  const deploy = async (path: string, body: Json = {}, wanted = /^DEPLOYED$/): Promise<string> => {
    await must('POST', `${path}/deploy`, body)
    return atRest(path, wanted)
  }
  const namesOf = (kind: string, environmentId: string): string[] =>
    kubernetes.store.all(kind, `slipway-${environmentId}`).map(({ metadata }) => metadata.name)
  const specOf = (kind: string, environmentId: string, name: string): Json =>
    kubernetes.store.find(kind, `slipway-${environmentId}`, name)?.spec
  return {
    ...{ api, call, base, kubernetes, registryId, clusterId },
    ...{ must, newEnvironment, containerBody, atRest, deploy, namesOf, specOf },
  }
}
