/** The API of this process with the cluster of the tests registered, and a registry on this machine that its node pulls from. */
import assert from 'node:assert/strict'
import { after } from 'node:test'
import { newId } from '../../../src/lib/ids.ts'
import type { Pin } from '../../../src/lib/net/pinned-connector.ts'
import type { HelmTool } from '../../../src/runtimes/kubernetes/helm/tool.ts'
import { createOpenKubernetes } from '../../../src/runtimes/kubernetes/kubernetes.ts'
import { accessManifest } from '../../../src/runtimes/kubernetes/rights.ts'
import { type Json, startApi, type TestApi } from '../../support/api.ts'
import { createFakeEngines } from '../../support/docker/fake-engines.ts'
import type { FakeRegistry } from '../../support/docker/fake-registry.ts'
import { isSettled } from '../../support/slipway/story.ts'
import { until } from '../../support/until.ts'
import type { Admin } from './admin.ts'
import { onlyRegistry, outsideAddress, startNodeRegistry } from './registry.ts'
import { grantAccess, openCluster, ownNode, revokeAccess, outbound as toCluster } from './scene.ts'
import { askService } from './visit.ts'

export const needsOwnNode =
  ownNode === undefined && 'it needs the cluster of the tests, whose node pulls from a registry here'

export interface Place extends Pick<TestApi, 'call' | 'organizationId'> {
  admin: Admin
  registry: FakeRegistry
  /** Mark of what it has in the cluster. */
  ownerId: string
  clusterId: string
  registryId: string
  /** The body of an answer that is not a failure. */
  must(method: string, path: string, body?: unknown): Promise<Json>
  /** A new environment on the cluster; its id. */
  newEnvironment(name: string): Promise<string>
}

/** What a container service is created with: it serves what `PAGE` is on port 8080, and on port 8081. */
export const servingContainer = ({ registryId }: Pick<Place, 'registryId'>, name: string, more: Json = {}): Json => ({
  ...{ name, registry_id: registryId, image_name: 'shop/app', tag: '1', healthchecks: {}, cpu: 50, memory: 32 },
  ...{ entrypoint: 'sh -c', arguments: [servingScript], ports: [publicPort(8080, 'HTTP')] },
  ...more,
})

export const publicPort = (internal_port: number, protocol: string) => ({
  ...{ internal_port, protocol, publicly_accessible: true },
})

export const servingScript =
  'mkdir -p /tmp/w; echo "$PAGE $GREETING" > /tmp/w/index.html; httpd -p 8081 -h /tmp/w; exec httpd -f -p 8080 -h /tmp/w'

/** Waits until a service is at rest, and answers its state. */
export const atRest = ({ must }: Pick<Place, 'must'>, path: string, timeoutMs = 180_000): Promise<string> =>
  until(
    async () => {
      const { state } = await must('GET', `${path}/status`)
      return isSettled(state) ? state : null
    },
    { timeoutMs, what: `${path} to be at rest` },
  )

/** What answers for a service inside of the cluster. */
export const pageOf = ({ admin }: Pick<Place, 'admin'>, environmentId: string, serviceId: string): Promise<string> =>
  askService(admin, `slipway-${environmentId}`, `s-${serviceId}`, 8080)

/** Registers the cluster of the tests, by our own manifest, and a registry that its node pulls from. */
export const registerCluster = async (
  must: Place['must'],
  organizationId: string,
  admin: Admin,
  registry: FakeRegistry,
): Promise<Pick<Place, 'clusterId' | 'registryId'>> => {
  const base = `/organization/${organizationId}`
  const kubeconfig = await grantAccess(admin, accessManifest.items)
  const { id } = await must('POST', `${base}/onPremise/credentials`, { name: 'kubernetes', kubeconfig })
  const { id: clusterId } = await must('POST', `${base}/cluster`, {
    ...{ name: 'kubernetes', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
    cloud_provider_credentials: { credentials: { id } },
  })
  const images = { name: 'images', kind: 'GENERIC_CR', url: registry.url.origin, config: {} }
  const { id: registryId } = await must('POST', `${base}/containerRegistry`, images)
  return { clusterId, registryId }
}

/** Ends with the test file. `pin`: of connections to the API server. `helm`: what installs charts. */
export const startPlace = async (pin: Pin = toCluster.checkMachine, helm?: HelmTool): Promise<Place> => {
  const ownerId = newId()
  const registry = await startNodeRegistry()
  const { call, organizationId } = await startApi({
    engines: createFakeEngines(),
    openKubernetes: createOpenKubernetes(pin),
    kubernetes: { outbound: onlyRegistry(() => registry), ownerId, helm },
    allow: [outsideAddress()],
  })
  const admin = await openCluster()
  after(async () => {
    for (const { metadata } of (await admin.get(`/api/v1/namespaces?labelSelector=slipway.owner=${ownerId}`)).items)
      await admin.remove({ apiVersion: 'v1', kind: 'Namespace', metadata })
    await revokeAccess(admin)
    admin.close()
    await registry.close()
  })
  const must: Place['must'] = async (method, path, body) => {
    const answer = await call(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const { clusterId, registryId } = await registerCluster(must, organizationId, admin, registry)
  const { id: projectId } = await must('POST', `/organization/${organizationId}/project`, { name: 'project' })
  return {
    ...{ call, organizationId, admin, registry, ownerId, clusterId, registryId, must },
    async newEnvironment(name) {
      const environment = await must('POST', `/project/${projectId}/environment`, { name, cluster: clusterId })
      return environment.id
    },
  }
}
