/** Container registries: where images are pulled from, and the credentials for that. */
import Type from 'typebox'
import { type Operation, operation, reading } from '../../api/operations/operation.ts'
import { resource, type Spec } from '../../api/operations/resource.ts'
import {
  AllRecorded,
  Computed,
  Maybe,
  Name,
  Nullable,
  OneOf,
  Results,
  Secret,
  Text,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import { loginStateOf } from '../../deployments/credentials/registry-credentials.ts'
import { Status } from '../../facets/status-schema.ts'
import { associated, refuseInUse, UsersCount, usersCount } from '../references.ts'
import { type RegistryKind, registryKinds } from '../service/image-source.ts'
import {
  availableKinds,
  cloudKeys,
  commonConfig,
  completePlace,
  type PlaceKinds,
  scalewayKeys,
} from './repository-config.ts'

const https = ['https']

const kinds: Record<RegistryKind, PlaceKinds[string]> = {
  ECR: { schemes: https, needs: cloudKeys },
  SCALEWAY_CR: { schemes: https, needs: scalewayKeys },
  DOCKER_HUB: { schemes: https, url: 'https://docker.io', hosts: /^(.+\.)?docker\.(io|com)$/ },
  GITHUB_CR: { schemes: https, url: 'https://ghcr.io', hosts: /^ghcr\.io$/ },
  GITHUB_ENTERPRISE_CR: { schemes: https },
  GITLAB_CR: { schemes: https, url: 'https://registry.gitlab.com' },
  PUBLIC_ECR: { schemes: https, url: 'https://public.ecr.aws' },
  DOCR: { schemes: https, url: 'https://registry.digitalocean.com' },
  GENERIC_CR: { schemes: ['https', 'http'] },
  GCP_ARTIFACT_REGISTRY: {
    schemes: https,
    needs: [
      ['json_credentials'],
      ['gcp_credentials_type', 'project_id', 'service_account_email', 'workload_identity_provider_resource'],
    ],
  },
  AZURE_CR: {
    schemes: https,
    needs: [
      ['azure_tenant_id', 'azure_subscription_id'],
      ['username', 'password'],
    ],
  },
}

const tag = 'Container Registries'
const collection = '/organization/{organizationId}/containerRegistry'
const item = `${collection}/{containerRegistryId}`

const unused = 'this server cannot log in with it; a deployment that needs it fails and says so.'

const config = Type.Object(
  {
    ...commonConfig(['username', 'password', 'scaleway_access_key', 'scaleway_secret_key'], unused),
    json_credentials: Maybe(Secret(65_536)),
    azure_application_id: Maybe(Text()),
    ...AllRecorded(
      {
        gcp_credentials_type: Maybe(OneOf(['workload_identity_federation'])),
        project_id: Maybe(Text()),
        service_account_email: Maybe(Text()),
        workload_identity_provider_resource: Maybe(Text(2048)),
        token_lifetime_seconds: Maybe(Whole(600, 43_200)),
        azure_application_object_id: Maybe(Text()),
      },
      unused,
    ),
  },
  { default: {} },
)

const registry = resource({
  kind: 'container_registry',
  area: 'resources',
  parent: { kind: 'organization', param: 'organizationId' },
  tag,
  words: ['a container registry', 'container registries'],
  collection,
  item,
  param: 'containerRegistryId',
  ids: {
    list: 'listContainerRegistry',
    create: 'createContainerRegistry',
    read: 'getContainerRegistry',
    edit: 'editContainerRegistry',
    remove: 'deleteContainerRegistry',
  },
  reads: 'sensitive',
  spec: Type.Object({
    name: Name(),
    kind: OneOf(registryKinds),
    description: Maybe(Text(2048)),
    url: Maybe(Text(2048)),
    config,
  }),
  record: {
    associated_services_count: UsersCount(),
    // For registries that come with a cluster; the engine of this machine has none.
    cluster: Maybe(Computed(Type.Object({ id: Uuid(), name: Text() }))),
    login: Computed(
      Type.Object(
        { state: OneOf(['CREDENTIALS', 'ANONYMOUS', 'NOT_POSSIBLE']), message: Nullable(Text()) },
        {
          description: 'How deployments log in. If that is not possible, the message says why, and they fail with it.',
        },
      ),
    ),
  },
  columns: {
    associated_services_count: usersCount,
    secrets: `(select coalesce(jsonb_agg(name), '[]') from jsonb_object_keys(n.sealed) name)`,
  },
  view: ({ secrets, ...record }) => {
    const set = new Set((secrets as string[]).map((name) => name.replace(/^config\./, '')))
    return {
      ...record,
      login: loginStateOf(String(record.kind), (record.config ?? {}) as Spec, (name) => set.has(name)),
    }
  },
  validate: completePlace(kinds),
  audit: { target: 'CONTAINER_REGISTRY' },
  onDelete: refuseInUse(
    'container_registry_in_use',
    'A service still pulls its image from this registry, or a cluster names it: change or delete that first.',
  ),
})

const containerStatus = operation({
  id: 'getContainerRegistryContainerStatus',
  ...reading,
  path: `${item}/container/status`,
  tag: 'Containers',
  summary: 'Read the statuses of the containers whose images come from a registry',
  area: 'resources',
  reads: 'sensitive',
  owner: registry.owner,
  answer: Results(Status),
  async run({ parts, db, node }) {
    const rows = await db.query<{ id: string }>(
      `select id from node where organization_id = $1 and kind = 'container' and lower(spec ->> 'registry_id') = $2
       order by created_at, id`,
      [node.organizationId, node.id],
    )
    const ids = rows.map(({ id }) => id)
    return { results: ids.length === 0 ? [] : await parts.deployments.statuses(db, ids) }
  },
})

export const containerRegistryOperations: Operation[] = [
  availableKinds('listAvailableContainerRegistry', '/availableContainerRegistry', tag, kinds),
  ...registry.operations,
  containerStatus,
  associated({
    id: 'getContainerRegistryAssociatedServices',
    form: 'associatedServices',
    tag: 'Organization Main Calls',
    item,
    words: 'a container registry',
    owner: registry.owner,
    reads: 'sensitive',
  }),
]
