/**
 * Images for a cluster whose machines pull their images: built by a Docker engine, this machine's or another one of
 * the organization, and pushed to the container registry that the cluster names.
 *
 * Promises: the returned digest exists in the registry. The same content is built and pushed once. Without a registry,
 * or an engine that builds for the machines of the cluster, the error says what to do. When the process dies: the next
 * build finds the image in the registry, or pushes it again.
 */
import type { BuildRequest, Destination, ImageBuilder } from '../builds/builder.ts'
import { createImageStore } from '../builds/image-store.ts'
import type { ImageAccess } from '../images/images.ts'
import type { ImagePush } from '../images/push.ts'
import { joinTag, splitTag } from '../lib/docker/image-name.ts'
import { isHub } from '../lib/docker/registry-session.ts'
import { DeploymentError } from '../lib/errors.ts'
import { isUuid } from '../lib/ids.ts'
import { isKubernetesSql, isLocalSql } from '../store/cluster-rows.ts'
import type { Queryable } from '../store/database.ts'
import { readCapacity } from './capacity.ts'
import type { Cluster } from './clusters.ts'
import { isEngineSql, keySql } from './local.ts'

/** A registry as its organization set it up. */
export interface RegistryPlace {
  url: string
  login: ImageAccess['login']
}

export interface PushParts {
  push: ImagePush
  /** Null when it was deleted. Rejects with a `DeploymentError` for one that this server cannot log in to. */
  registry(organizationId: string, registryId: string): Promise<RegistryPlace | null>
}

interface PushedBuilderParts extends PushParts {
  database: Queryable
  of(clusterId: string): Promise<Cluster>
}

const noRegistry =
  'The cluster of this environment has no container registry, so what is built cannot reach its machines: create a container registry in the organization, and name it as container_registry_id of the cluster.'

const noEngine =
  'There is no Docker engine that builds for the cluster of this environment: register one as a cluster of the organization, or deploy images.'

/** Why nothing can be built for services of the cluster with this key; null when it can. */
export const buildRefusal = async (db: Queryable, key: string): Promise<string | null> => {
  if (!isUuid(key)) return null
  const [row] = await db.query<{ hasRegistry: boolean; hasEngine: boolean }>(
    `select c.spec ->> 'container_registry_id' is not null as "hasRegistry", exists (
       select from node d where d.kind = 'cluster' and d.organization_id = c.organization_id and ${isEngineSql('d')}
     ) as "hasEngine"
     from node c where c.id = $1 and ${isKubernetesSql('c')}`,
    [key],
  )
  if (row === undefined) return null
  if (!row.hasRegistry) return noRegistry
  return row.hasEngine ? null : noEngine
}

/** The name of a service's images in a registry: below the path of its URL, or, at Docker Hub, below the user. */
export const pushedName = ({ url, login }: RegistryPlace, serviceId: string): string => {
  const { host, pathname } = new URL(url)
  const path = pathname.split('/').filter((part) => part !== '')
  const atHub = isHub(host)
  if (atHub && path.length === 0 && login !== null) path.push(login.reveal().username)
  return [atHub ? 'docker.io' : host, ...path, `slipway-${serviceId}`].join('/').toLowerCase()
}

interface Row {
  organizationId: string
  registryId: string | null
  key: string
}

const readRow = async (db: Queryable, clusterId: string): Promise<Row> => {
  const [row] = await db.query<Row>(
    `select organization_id as "organizationId", spec ->> 'container_registry_id' as "registryId", ${keySql('c')} as key
     from node c where id = $1 and kind = 'cluster'`,
    [clusterId],
  )
  if (row?.registryId == null) throw new DeploymentError('registry_missing', noRegistry)
  return row
}

/** Clusters of the organization that are Docker engines: this machine's first. */
const readEngineIds = async (db: Queryable, organizationId: string): Promise<string[]> => {
  const rows = await db.query<{ id: string }>(
    `select c.id from node c where c.kind = 'cluster' and c.organization_id = $1
       and ${isEngineSql('c')}
     order by ${isLocalSql('c')} desc, c.created_at, c.id limit 50`,
    [organizationId],
  )
  return rows.map(({ id }) => id)
}

/** The first engine whose images the machines of the cluster can run. */
const chooseEngine = async (
  { database, of }: Pick<PushedBuilderParts, 'database' | 'of'>,
  { organizationId, key }: Row,
): Promise<{ clusterId: string; builder: Cluster['builder'] }> => {
  const wanted = (await readCapacity(database, key))?.architecture
  const ids = await readEngineIds(database, organizationId)
  if (ids.length === 0) throw new DeploymentError('builder_missing', noEngine)
  for (const clusterId of ids) {
    const { builder, key: own } = await of(clusterId)
    const architecture = (await readCapacity(database, own))?.architecture
    if (wanted === undefined || architecture === undefined || architecture === wanted) return { clusterId, builder }
  }
  throw new DeploymentError(
    'builder_missing',
    `The machines of the cluster are ${wanted}, and there is no Docker engine of this architecture to build for them: register one as a cluster of the organization.`,
  )
}

const lineOf = (text: string): string => `${text}\n`

export const createPushedBuilder = (
  parts: PushedBuilderParts,
  clusterId: string,
): Pick<ImageBuilder, 'build' | 'built'> => {
  const { database, push, registry } = parts
  const store = createImageStore(database)

  const destinationOf = async (
    { organizationId, registryId }: Row,
    { serviceId }: BuildRequest,
  ): Promise<Destination> => {
    const place = await registry(organizationId, registryId!)
    if (place === null) throw new DeploymentError('registry_missing', noRegistry)
    const repository = pushedName(place, serviceId)
    const { origin, login } = { origin: new URL(place.url), login: place.login }
    const folder = repository.slice(0, repository.lastIndexOf('/') + 1)
    const owner = { organizationId, clusterId }
    return {
      async find(contentKey, signal) {
        const stored = await store.find(owner, contentKey)
        // An image of another registry than the one that is configured now.
        if (stored === null || !stored.reference.startsWith(folder)) return null
        const { name, tag } = splitTag(stored.reference)
        const isThere = await push.isThere({ organizationId, repository: name, tag, origin, login }, signal)
        return isThere ? stored : null
      },
      async take({ imageId, contentKey, save }, onLog, signal) {
        const image = { organizationId, repository, tag: contentKey.slice(0, 32), origin, login }
        const digest = await push.push(image, imageId, save, (text) => onLog(lineOf(text)), signal)
        const reference = joinTag(repository, digest)
        await store.save(owner, contentKey, { reference, imageId })
        onLog(lineOf(`Pushed as ${reference}.`))
        return { reference, imageId }
      },
    }
  }

  const prepare = async (request: BuildRequest) => {
    const row = await readRow(database, clusterId)
    const [engine, destination] = [await chooseEngine(parts, row), await destinationOf(row, request)]
    return { builder: engine.builder, request: { ...request, clusterId: engine.clusterId }, destination }
  }
  return {
    async build(asked, onLog, signal) {
      const { builder, request, destination } = await prepare(asked)
      return builder.build(request, onLog, signal, destination)
    },
    async built(asked, signal) {
      const { builder, request, destination } = await prepare(asked)
      return builder.built(request, signal, destination)
    },
  }
}
