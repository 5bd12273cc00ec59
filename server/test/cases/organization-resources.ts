/** Cases of the records of an organization beside projects: registries, repositories, groups, credentials. */
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { Operation } from '../../src/api/operations/operation.ts'
import { engineWith } from '../support/docker/fake-engines.ts'
import { kubeconfigWith } from '../support/peers/kubernetes.ts'
import { s3Keys, startS3Server } from '../support/peers/s3-server.ts'
import type { Case, Cases, Scene, Values } from './case.ts'

const base = ({ api }: Scene): string => `/organization/${api.organizationId}`

const registry = (count: number) => ({
  name: `registry ${count}`,
  kind: 'GENERIC_CR',
  url: 'https://registry.invalid',
  config: { username: 'u', password: 'p' },
})
const helm = (count: number) => ({ ...registry(count), kind: 'HTTPS', skip_tls_verification: false })
const labels = (count: number) => ({ name: `labels ${count}`, labels: [{ key: 'team', value: 'shop' }] })
const annotations = (count: number) => ({
  name: `annotations ${count}`,
  annotations: [{ key: 'a.example/b', value: 'any text' }],
  scopes: ['PODS'],
})

const credentials: Record<string, object> = {
  aws: { type: 'AWS_STATIC', access_key_id: 'a', secret_access_key: 's' },
  azure: { azure_subscription_id: 's', azure_tenant_id: 't' },
  gcp: { gcp_credentials: '{}' },
  scaleway: {
    scaleway_access_key: 'a',
    scaleway_secret_key: 's',
    scaleway_project_id: 'p',
    scaleway_organization_id: 'o',
  },
  onPremise: {},
}

const machineWith = (field: string, text: string): object =>
  field === 'kubeconfig' ? { kubeconfig: kubeconfigWith(text) } : engineWith(field, text)

const bodyOf = (provider: string, { count }: Scene) => ({ name: `${provider} ${count}`, ...credentials[provider] })

const family = ({ method, path }: Operation): Case | undefined => {
  const [, provider, item] = /^\/organization\/\{organizationId\}\/(\w+)\/credentials(\/\{\w+\})?$/.exec(path) ?? []
  if (provider === undefined) return undefined
  const scopes: Case['scopes'] = method === 'GET' ? ['Read', 'Write'] : []
  const before = async (values: Values, scene: Scene): Promise<void> => {
    const made = await scene.post(`${base(scene)}/${provider}/credentials`, bodyOf(provider, scene))
    values.credentialsId = made.id
  }
  return {
    scopes,
    ...(item === undefined ? {} : { before }),
    ...(provider === 'onPremise' ? { withSecret: machineWith } : {}),
    ...(method === 'POST' ? { body: (_: Values, scene: Scene) => bodyOf(provider, scene) } : {}),
    ...(method === 'PUT' ? { body: (_: Values, { count }: Scene) => ({ name: `changed ${count}` }) } : {}),
  }
}

const json = (response: ServerResponse, body: unknown): void =>
  void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body))

/** A host on loopback that answers every request the same, while the case runs. */
const hosts = new Map<Values, { close(): unknown }>()
const serve = async (values: Values, answer: unknown): Promise<string> => {
  const server = createServer((_, response) => json(response, answer)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  hosts.set(values, server)
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`
}
const close: Case['after'] = async (values) => void hosts.get(values)?.close()

const listing: Record<string, unknown> = { github: [], gitlab: [], bitbucket: { values: [] } }
const cloneUrl = 'https://git.invalid/o/r.git'
const one = {
  ...{ id: 1, name: 'o/r', full_name: 'o/r', path_with_namespace: 'o/r' },
  ...{ clone_url: cloneUrl, http_url_to_repo: cloneUrl, links: { clone: [{ name: 'https', href: cloneUrl }] } },
}

const browsing = ({ path }: Operation): Case | undefined => {
  const [, provider, branch] = /\/account\/(\w+)\/repository(\/branch)?$/.exec(path) ?? []
  if (provider === undefined) return undefined
  return {
    ...sensitive,
    async before(values, scene) {
      const git_api_url = await serve(values, branch === undefined ? listing[provider] : one)
      const body = {
        name: `browsing ${scene.count}`,
        type: provider.toUpperCase(),
        token: 'x',
        workspace: 'o',
        git_api_url,
        repository_origins: ['https://git.invalid'],
      }
      values.gitTokenId = (await scene.post(`${base(scene)}/gitToken`, body)).id
    },
    after: close,
    query: ({ gitTokenId }) => ({ gitTokenId: gitTokenId!, name: 'o/r' }),
  }
}

const atRegistry = (answer: unknown): Case => ({
  async before(values, scene) {
    const url = await serve(values, answer)
    const made = await scene.post(`${base(scene)}/containerRegistry`, {
      name: `at ${scene.count}`,
      kind: 'GENERIC_CR',
      url,
    })
    values.containerRegistryId = made.id
  },
  after: close,
})

/** A storage that answers, which every storage must before it is made. */
const s3Bodies = new WeakMap<Values, object>()
const startS3 = async (values: Values): Promise<object> => {
  const s3 = await startS3Server()
  hosts.set(values, s3)
  const body = { kind: 'S3', endpoint: s3.url, bucket: 'bucket', ...s3Fields }
  s3Bodies.set(values, body)
  return body
}
const s3Fields = { access_key_id: s3Keys.accessKeyId, secret_access_key: s3Keys.secretAccessKey }
const newStorage: Case = {
  before: startS3,
  after: close,
  body: (values, { count }) => ({ name: `storage ${count}`, ...s3Bodies.get(values) }),
}
const changedStorage: Case = {
  async before(values, scene) {
    const body = { name: `storage ${scene.count}`, ...(await startS3(values)) }
    values.backupStorageId = (await scene.post(`${base(scene)}/backupStorage`, body)).id
  },
  after: close,
  body: () => ({ description: 'changed' }),
}
const folder = (count: number) => ({ name: `folder ${count}`, kind: 'FOLDER' })

const sensitive: Case = { scopes: ['Read', 'Write'] }
const maker = (path: string, body: (count: number) => object) => async (_: Values, scene: Scene) =>
  (await scene.post(`${base(scene)}/${path}`, body(scene.count))).id
const made = (body: (count: number) => object): Case => ({
  body: (_, { count }) => ({ ...body(count), name: `n ${count}` }),
})
const described: Case = { body: () => ({ description: 'changed' }) }

const anyRepository = { url: 'https://git.invalid/a/b.git', branch: 'main', provider: 'GITHUB' }

export const organizationResourceCases: Cases = {
  makers: {
    containerRegistryId: maker('containerRegistry', registry),
    helmRepositoryId: maker('helmRepository', helm),
    labelsGroupId: maker('labelsGroups', labels),
    annotationsGroupId: maker('annotationsGroups', annotations),
    backupStorageId: maker('backupStorage', folder),
  },
  family: (operation) => family(operation) ?? browsing(operation),
  cases: {
    // Its repository does not exist.
    getHelmCharts: { ...sensitive, refused: 400 },
    listContainerRegistry: sensitive,
    getContainerRegistry: sensitive,
    getContainerRegistryContainerStatus: sensitive,
    getContainerRegistryAssociatedServices: sensitive,
    createContainerRegistry: made(registry),
    editContainerRegistry: described,
    listHelmRepository: sensitive,
    getHelmRepository: sensitive,
    getHelmRepositoryAssociatedServices: sensitive,
    createHelmRepository: made(helm),
    editHelmRepository: described,
    createOrganizationLabelsGroup: made(labels),
    editOrganizationLabelsGroup: { body: (_, { count }) => ({ name: `changed ${count}` }) },
    createOrganizationAnnotationsGroup: made(annotations),
    editOrganizationAnnotationsGroup: { body: () => ({ scopes: ['INGRESS'] }) },
    listOrganizationCredentials: sensitive,
    listBackupStorage: sensitive,
    getBackupStorage: sensitive,
    createBackupStorage: newStorage,
    editBackupStorage: changedStorage,
    getContainerVersions: { ...sensitive, ...atRegistry({ repositories: [] }) },
    checkContainerImage: {
      ...atRegistry({}),
      body: ({ containerRegistryId }) => ({ registry_id: containerRegistryId, image_name: 'shop', tag: '1' }),
    },
    getGitProviderAccount: sensitive,
    getOrganizationGitProviderAccount: sensitive,
    // Repositories of tests have no files.
    checkDockerfile: { body: () => ({ git_repository: anyRepository, dockerfile_path: 'Dockerfile' }), refused: 400 },
    inspectRepository: { body: () => ({ git_repository: anyRepository }) },
    listTfVarsFilesFromGitRepo: { body: () => ({ git_repository: anyRepository, mode: { type: 'AutoDiscover' } }) },
    parseTerraformVariablesFromGitRepo: { body: () => ({ git_repository: anyRepository }) },
    listDirectoriesFromGitRepository: {
      body: () => ({ url: 'https://git.invalid/a/b.git', branch: 'main', provider: 'GITHUB' }),
    },
  },
}
