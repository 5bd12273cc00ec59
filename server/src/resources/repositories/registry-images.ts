/** The contents of a registry: its images and their tags, and whether an image exists before a service uses it. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { checkRefs } from '../../api/operations/resource.ts'
import { Maybe, Nullable, Ref, Results, Text } from '../../api/operations/schema.ts'
import { readRegistryCredentials } from '../../deployments/credentials/registry-credentials.ts'
import { ImageTag } from '../../facets/deployment-request.ts'
import { createRegistryClient, type RegistryClient, RegistryError } from '../../lib/docker/docker-registry.ts'
import { badRequest, DeploymentError, invalidField, notFound } from '../../lib/errors.ts'
import { OutboundFailed, OutboundRefused } from '../../lib/net/outbound.ts'
import { ImageName } from '../service/image-source.ts'

const maxImages = 20
const patienceMs = 30_000
const publicRegistry = { url: 'https://docker.io', username: null, password: null }

const connect = async ({ parts, principal }: Context, registryId: string | null): Promise<RegistryClient> => {
  const { database, sealer, outbound } = parts
  const signal = AbortSignal.timeout(patienceMs)
  if (registryId === null) return createRegistryClient(outbound, publicRegistry, signal)
  const access = await readRegistryCredentials(database, sealer, principal.organizationId, registryId)
  if (access === null) throw notFound()
  return createRegistryClient(outbound, access, signal)
}

/** Turns a registry's refusal into an `ApiError`. */
const asking = async <T>(work: () => Promise<T>): Promise<T> => {
  try {
    return await work()
  } catch (error) {
    if (error instanceof RegistryError) throw badRequest(error.message, undefined, `registry_${error.code}`)
    if (error instanceof DeploymentError) throw badRequest(error.message, undefined, error.code)
    if (error instanceof OutboundRefused || error instanceof OutboundFailed)
      throw badRequest(`The registry cannot be reached: ${error.message}.`, undefined, 'registry_unreachable')
    throw error
  }
}

const findImages = async (client: RegistryClient, image: unknown, search: unknown): Promise<string[]> => {
  if (typeof image === 'string') return [image]
  const all = await client.images()
  return all.filter((name) => typeof search !== 'string' || name.includes(search)).slice(0, maxImages)
}

const listImages = operation({
  id: 'getContainerVersions',
  ...reading,
  path: '/organization/{organizationId}/containerRegistry/{containerRegistryId}/images',
  tag: 'Container Registries',
  summary: 'List images of a registry and their tags: one by name, or the first 20 whose names contain a text',
  area: 'resources',
  reads: 'sensitive',
  owner: nodeInPath('container_registry', 'containerRegistryId', 'organizationId'),
  query: Type.Object({ imageName: Maybe(ImageName()), search: Maybe(Text()) }),
  answer: Results(Type.Object({ image_name: Text(), versions: Type.Array(Text()) })),
  run: (context) =>
    asking(async () => {
      const { imageName, search } = context.query
      const client = await connect(context, context.node.id)
      const results: { image_name: string; versions: string[] }[] = []
      for (const name of await findImages(client, imageName, search))
        results.push({ image_name: name, versions: await client.tags(name) })
      return { results }
    }),
})

const checkBody = Type.Object({
  registry_id: Maybe(Nullable(Ref('container_registry'))),
  image_name: ImageName(),
  tag: ImageTag(),
})

const checkImage = operation({
  id: 'checkContainerImage',
  method: 'POST',
  path: '/environment/{environmentId}/checkContainerImage',
  tag: 'Environment',
  summary: 'Check whether a registry has an image with a tag; the default registry is Docker Hub',
  // It logs in with the registry's password, like the service that will use it.
  scope: 'Write',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  body: checkBody,
  status: 200,
  answer: Type.Object({}),
  async run(context) {
    const { body, db, principal } = context
    await checkRefs(db, checkBody, body, principal.organizationId)
    const client = await asking(() => connect(context, body.registry_id ?? null))
    if (!(await asking(() => client.hasTag(body.image_name, body.tag))))
      throw invalidField('/tag', 'the registry has no such image with this tag')
    return {}
  },
})

export const registryImageOperations: Operation[] = [listImages, checkImage]
