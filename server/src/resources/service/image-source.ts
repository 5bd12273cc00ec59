/** Images of services: registry, repository and tag; requests and responses. Pure. */
import Type from 'typebox'
import { Computed, OneOf, Ref, Text, Uuid } from '../../api/operations/schema.ts'
import type { Source } from '../../deployments/deployments.ts'
import { ImageTag } from '../../facets/deployment-request.ts'

export const registryKinds = [
  'ECR',
  'SCALEWAY_CR',
  'DOCKER_HUB',
  'GITHUB_CR',
  'GITHUB_ENTERPRISE_CR',
  'GITLAB_CR',
  'PUBLIC_ECR',
  'DOCR',
  'GENERIC_CR',
  'GCP_ARTIFACT_REGISTRY',
  'AZURE_CR',
] as const
export type RegistryKind = (typeof registryKinds)[number]

const part = '[a-z0-9]+(?:(?:\\.|__?|-+)[a-z0-9]+)*'

/** A repository without tag: `library/postgres`. */
export const ImageName = () =>
  Text(255, { pattern: `^${part}(?:/${part})*$`, description: 'A repository without host, tag or digest.' })

/** In a create or an edit. */
export const ImageRequest = () => ({ image_name: ImageName(), tag: ImageTag(), registry_id: Ref('container_registry') })

/** In responses. */
export const Registry = () =>
  Computed(
    Type.Object(
      { id: Uuid(), name: Text(), url: Text(2048), kind: OneOf(registryKinds) },
      { title: 'RegistryDetails' },
    ),
  )

export type ImageSpec = {
  image_name: string
  tag: string
  registry_id: string
}

/** SQL for the registry of the image at `path` in a row `n`; null if there is none. */
export const registrySql = (path: readonly string[]): string =>
  `(select jsonb_build_object('id', r.id, 'name', r.name, 'url', coalesce(r.spec ->> 'url', ''),
      'kind', coalesce(r.spec ->> 'kind', 'GENERIC_CR'))
    from node r where r.id = (n.spec #>> '{${[...path, 'registry_id'].join(',')}}')::uuid)`

export const imageSourceOf = ({ registry_id: registryId, image_name: name, tag }: ImageSpec): Source => ({
  from: 'image',
  registryId,
  name,
  tag,
})
