/** Helm repositories: where charts are pulled from, and the credentials for that. */
import Type from 'typebox'
import type { Operation } from '../../api/operations/operation.ts'
import { resource } from '../../api/operations/resource.ts'
import { Flag, Maybe, Name, OneOf, Recorded, Text } from '../../api/operations/schema.ts'
import { associated, refuseInUse, UsersCount, usersCount } from '../references.ts'
import {
  availableKinds,
  cloudKeys,
  commonConfig,
  completePlace,
  type PlaceKinds,
  scalewayKeys,
} from '../repositories/repository-config.ts'

const noLogin = 'this server does not log in with it.'

const oci = ['oci', 'https']

const kinds: PlaceKinds = {
  HTTPS: { schemes: ['https', 'http'] },
  OCI_ECR: { schemes: oci, needs: cloudKeys },
  OCI_SCALEWAY_CR: { schemes: oci, needs: scalewayKeys },
  OCI_DOCKER_HUB: { schemes: oci, url: 'oci://registry-1.docker.io', hosts: /^(.+\.)?docker\.(io|com)$/ },
  OCI_PUBLIC_ECR: { schemes: oci, url: 'oci://public.ecr.aws' },
  OCI_GENERIC_CR: { schemes: oci },
  OCI_GITHUB_CR: { schemes: oci, url: 'oci://ghcr.io', hosts: /^ghcr\.io$/ },
  OCI_GITLAB_CR: { schemes: oci, url: 'oci://registry.gitlab.com' },
}

const tag = 'Helm Repositories'
const collection = '/organization/{organizationId}/helmRepository'
const item = `${collection}/{helmRepositoryId}`

const repository = resource({
  kind: 'helm_repository',
  area: 'resources',
  parent: { kind: 'organization', param: 'organizationId' },
  tag,
  words: ['a helm repository', 'helm repositories'],
  collection,
  item,
  param: 'helmRepositoryId',
  ids: {
    list: 'listHelmRepository',
    create: 'createHelmRepository',
    read: 'getHelmRepository',
    edit: 'editHelmRepository',
    remove: 'deleteHelmRepository',
  },
  reads: 'sensitive',
  spec: Type.Object({
    name: Name(),
    description: Maybe(Text(2048)),
    kind: OneOf(Object.keys(kinds)),
    url: Maybe(Text(2048)),
    skip_tls_verification: Maybe(Recorded(Flag({ default: false }))),
    config: Type.Object(commonConfig(['username', 'password'], noLogin), { default: {} }),
  }),
  record: { associated_services_count: UsersCount() },
  columns: { associated_services_count: usersCount },
  validate: completePlace(kinds),
  audit: { target: 'HELM_REPOSITORY' },
  onDelete: refuseInUse(
    'helm_repository_in_use',
    'A service still uses a chart from this repository: change or delete it first.',
  ),
})

export const helmRepositoryOperations: Operation[] = [
  availableKinds('listAvailableHelmRepository', '/availableHelmRepository', tag, kinds),
  ...repository.operations,
  associated({
    id: 'getHelmRepositoryAssociatedServices',
    form: 'associatedServices',
    tag: 'Organization Main Calls',
    item,
    words: 'a helm repository',
    owner: repository.owner,
    reads: 'sensitive',
  }),
]
