/** The cluster of KUBECONFIG as a test begins with it: its administrator, and an account made by our own manifest. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { parseKubeconfig } from '../../../src/lib/kubernetes/kubeconfig.ts'
import { createOutbound } from '../../../src/lib/net/outbound.ts'
import { accessManifest } from '../../../src/runtimes/kubernetes/rights.ts'
import type { Json } from '../../support/api.ts'
import { until } from '../../support/until.ts'
import { type Admin, openAdmin } from './admin.ts'

const kubeconfigFile = process.env.KUBECONFIG
assert.ok(kubeconfigFile, 'KUBECONFIG is not set: run npm run test:kubernetes')

/** The folder of the cluster that was started for the tests; undefined for another one. */
export const ownNode: string | undefined = process.env.SLIPWAY_TEST_NODE

/** With the administrator's credentials. */
export const kubeconfig: string = readFileSync(kubeconfigFile, 'utf8')

/** Where its API server is. */
export const { host, port } = await parseKubeconfig(kubeconfig)

/** An outbound client that may reach the API server. */
export const outbound = createOutbound({ allow: ['loopback', `${host}:${port}`, host] })

export const openCluster = (): Promise<Admin> => openAdmin(kubeconfig)

/** The manifest with other rules of its role. */
export const manifestWith = (change: (rules: Json[]) => Json[]): Json[] =>
  structuredClone(accessManifest.items as Json[]).map((each) =>
    each.kind === 'ClusterRole' ? { ...each, rules: change(each.rules) } : each,
  )

const secretPath = '/api/v1/namespaces/slipway/secrets/slipway-token'

/** Applies a manifest of access; returns a kubeconfig of its account, as the guide to Kubernetes clusters makes one. */
export const grantAccess = async (admin: Admin, manifest: readonly Json[]): Promise<string> => {
  for (const each of manifest) await admin.apply(each)
  const { data } = await until(
    async () => {
      const { status, body } = await admin.ask('GET', secretPath)
      return status === 200 && body.data?.token !== undefined ? body : null
    },
    { timeoutMs: 60_000, what: 'the token of the account' },
  )
  const known = { server: `https://${host}:${port}`, 'certificate-authority-data': data['ca.crt'] }
  const token = Buffer.from(data.token, 'base64').toString()
  return JSON.stringify({
    ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'slipway' },
    clusters: [{ name: 'cluster', cluster: known }],
    users: [{ name: 'slipway', user: { token } }],
    contexts: [{ name: 'slipway', context: { cluster: 'cluster', user: 'slipway' } }],
  })
}

/** Takes away what `grantAccess` made, to the end. */
export const revokeAccess = async (admin: Admin): Promise<void> => {
  for (const each of accessManifest.items.toReversed()) await admin.remove(each)
  const gone = async () => (await admin.ask('GET', '/api/v1/namespaces/slipway')).status === 404
  await until(gone, { timeoutMs: 120_000, what: 'the namespace slipway to be gone' })
}
