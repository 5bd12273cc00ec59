/** Cases of clusters, of the records below them, and of the offers of providers. */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { newId } from '../../src/lib/ids.ts'
import type { Case, Cases, Scene, Values } from './case.ts'

const path = ({ api }: Scene): string => `/organization/${api.organizationId}`

/** A cluster that is only recorded: one of the caller's own machines. */
export const ownCluster = (name: string) => ({
  name,
  region: 'on-premise',
  cloud_provider: 'ON_PREMISE',
  kubernetes: 'SELF_MANAGED',
})

// Without a mode: a secret beside it selects one of the modes that have secrets.
const access = {
  name: 'vault',
  endpoint: { region: 'eu-west-3' },
  authentication: { region: 'eu-west-3', access_key: 'AKIA', role_arn: 'arn:aws:iam::1:role/r' },
}

/** Credentials are valid for one kind of manager only. */
const withSecret = (field: string, secret: string): object | undefined =>
  field.endsWith('json_credentials')
    ? {
        secret_manager_accesses: [
          {
            name: 'google',
            endpoint: { region: 'europe-west9', project_id: 'p' },
            authentication: { json_credentials: secret },
          },
        ],
      }
    : undefined

const made = async (values: Values, scene: Scene): Promise<void> => {
  values.clusterId = (await scene.post(`${path(scene)}/cluster`, ownCluster(`cluster ${scene.count}`))).id
}
const own: Case = { before: made }

const withKubeconfig = async (values: Values, scene: Scene): Promise<void> => {
  await made(values, scene)
  await scene.api.call('PUT', `${path(scene)}/cluster/${values.clusterId}/kubeconfig`, JSON.stringify(kubeconfig))
}
const kubeconfig = 'apiVersion: v1\nkind: Config\nclusters: []\nusers: []\n'

const withLock = async (values: Values, scene: Scene): Promise<void> => {
  await made(values, scene)
  await scene.post(`/cluster/${values.clusterId}/lock`, { reason: 'moving house' })
}

/** An Argo CD on loopback, while a case runs. */
const servers = new Map<Values, Server>()
const listen = async (values: Values, scene: Scene): Promise<void> => {
  await made(values, scene)
  const server = createServer((_, response) =>
    response.setHeader('content-type', 'application/json').end('{"items":[]}'),
  )
  await once(server.listen(0, '127.0.0.1'), 'listening')
  server.unref()
  servers.set(values, server)
  values.argoUrl = `http://127.0.0.1:${(server.address() as { port: number }).port}`
}
const close: Case['after'] = async (values) => void servers.get(values)?.close()
const argoBody: Case['body'] = ({ argoUrl }) => ({ argocd_url: argoUrl, argocd_token: 'a-token' })
const argo: Case = { before: listen, after: close, body: argoBody }

const withArgo = async (values: Values, scene: Scene): Promise<void> => {
  await listen(values, scene)
  await scene.post(`/cluster/${values.clusterId}/argoCdConfig`, argoBody!(values, scene) as object)
}
const mapping: Case['body'] = ({ clusterId, argoUrl }) => ({
  agent_cluster_id: clusterId,
  argocd_cluster_url: argoUrl,
  cluster_id: clusterId,
})
const withMapping = async (values: Values, scene: Scene): Promise<void> => {
  await withArgo(values, scene)
  await scene.post(`${path(scene)}/argoCdDestinationClusterMapping`, mapping!(values, scene) as object)
}

const orphanIds: Case['body'] = () => ({ ids: [newId()] })

const among = (values: Values): Case => ({ before: async (known) => Object.assign(known, values) })

const credentials = { type: 'STATIC', aws_access_key_id: 'AKIA', aws_secret_access_key: 'x' }

export const clusterCases: Cases = {
  makers: {
    async secretManagerAccessId(_, scene) {
      const body = { ...ownCluster(`accessed ${scene.count}`), secret_manager_accesses: [access] }
      return (await scene.post(`${path(scene)}/cluster`, body)).secret_manager_accesses[0].id
    },
  },
  cases: {
    createCluster: {
      body: (_, { count }) => ({ ...ownCluster(`made ${count}`), secret_manager_accesses: [access] }),
      withSecret,
    },
    editCluster: { body: () => ({ description: 'this machine', secret_manager_accesses: [access] }), withSecret },
    deleteCluster: own,
    StopCluster: { refused: 409 },
    'get-cluster-logs': {
      before: (values, scene) => scene.need(values, 'applicationId'),
      query: ({ applicationId }) => ({
        endpoint: '/loki/api/v1/query_range',
        query: `{qovery_com_service_id="${applicationId}"} |= "line"`,
      }),
    },
    upgradeCluster: {},
    editRoutingTable: {
      ...own,
      body: () => ({ routes: [{ destination: '10.9.0.0/16', target: 'peering-1', description: 'the office' }] }),
    },
    specifyClusterCloudProviderInfo: { ...own, scopes: [], body: () => ({ region: 'on-premise' }) },
    getClusterKubeconfig: { before: withKubeconfig, scopes: [] },
    editClusterKubeconfig: { ...own, scopes: [], body: () => JSON.stringify(kubeconfig) },
    getInstallationHelmValues: own,
    editClusterAdvancedSettings: { body: () => ({ 'registry.mirroring_mode': 'Cluster' }) },
    lockCluster: { ...own, body: () => ({ reason: 'moving house', ttl_in_days: 2 }) },
    'unlock-cluster': { before: withLock },
    'list-cluster-lock': { before: withLock },
    removeClusterOrphans: { ...own, scopes: [], body: orphanIds },
    ignoreClusterOrphans: { ...own, body: orphanIds },
    adoptClusterOrphans: { ...own, scopes: [], body: orphanIds },
    resolveClusterConflict: { ...own, scopes: [], body: () => ({ action: 'ignore' }), refused: 409 },
    editClusterDnsProvider: {
      ...own,
      scopes: [],
      body: () => ({
        dns_provider: {
          provider: 'CLOUDFLARE',
          domain: 'shop.test',
          email: 'a@shop.test',
          api_token: 'x',
          credentials,
        },
      }),
    },
    checkArgoCdConnection: argo,
    saveArgoCdCredentials: { ...argo, scopes: [] },
    getArgoCdCredentials: { before: withArgo, after: close },
    deleteArgoCdCredentials: { before: withArgo, after: close },
    listArgoCdDestinationClusterMappings: { before: withMapping, after: close },
    saveArgoCdDestinationClusterMapping: { before: withArgo, after: close, body: mapping },
    deleteArgoCdDestinationClusterMapping: {
      before: withMapping,
      after: close,
      query: ({ clusterId, argoUrl }) => ({ agentClusterId: clusterId!, argocdClusterUrl: argoUrl! }),
    },
    listAWSEKSInstanceType: among({ region: 'eu-west-3' }),
    listAWSManagedDatabaseInstanceType: among({ region: 'eu-west-3', databaseType: 'POSTGRESQL' }),
    listScalewayKapsuleInstanceType: among({ zone: 'fr-par-1' }),
    listGcpGkeInstanceType: among({ region: 'europe-west9' }),
    listAzureAKSInstanceType: among({ region: 'francecentral' }),
    listInstanceType: among({ cloudProvider: 'SCW' }),
    listManagedDatabaseInstanceType: among({ cloudProvider: 'AWS', region: 'eu-west-3', databaseType: 'POSTGRESQL' }),
  },
}
