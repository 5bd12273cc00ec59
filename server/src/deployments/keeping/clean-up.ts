/**
 * Everything of one organization that is no longer kept, now and in one list: what the loops remove by themselves, and
 * pulled images as soon as no release names them. A dry run makes the same decisions and removes nothing. If the
 * process dies here, the loops do the rest.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { keySql } from '../../clusters/local.ts'
import type { ListedImage } from '../../images/listed-image.ts'
import type { Queryable } from '../../store/database.ts'
import type { DeploymentParts } from '../parts.ts'
import { pulledImagesOf } from '../release/releases.ts'
import { readUnneeded, removeUnneeded } from './built-images.ts'
import { deleteOldDeployments, readOldDeployments } from './deployments.ts'
import { keepingOf } from './keep.ts'
import { judgeLayers, readLayers, removeOldLayers, sizesOf, withAncestors } from './layers.ts'
import { deleteOldReleases, type OldRelease, readOldReleases } from './releases.ts'

export const cleanUpKinds = ['RELEASE', 'DEPLOYMENTS', 'IMAGE', 'PULLED_IMAGE', 'BUILD_LAYER'] as const

export interface Removed {
  kind: (typeof cleanUpKinds)[number]
  /** An id, or the name on the engine. */
  name: string
  serviceId: string | null
  environmentId: string | null
  reason: string
  bytes: number
}

type Parts = Pick<DeploymentParts, 'database' | 'clusters' | 'keeping'>

export interface CleanUp {
  organizationId: string
  isDryRun: boolean
}

/** A build that has just pulled a base image needs it until its layers are on it. */
const pulledMs = 60 * 60_000

const nowhere = { serviceId: null, environmentId: null }

const servicesOf = async (db: Queryable, organizationId: string): Promise<Map<string, string[]>> => {
  const rows = await db.query<{ id: string; environmentId: string }>(
    'select service_id as id, environment_id as "environmentId" from service_state where organization_id = $1',
    [organizationId],
  )
  const groups = Map.groupBy(rows, ({ environmentId }) => environmentId)
  return new Map([...groups].map(([id, services]) => [id, services.map((service) => service.id)]))
}

const ofReleases = async (parts: Parts, { organizationId, isDryRun }: CleanUp, signal: AbortSignal) => {
  const { database } = parts
  const kept = keepingOf(parts).releases
  const old: OldRelease[] = []
  const removed: Removed[] = []
  for (const [environmentId, serviceIds] of await servicesOf(database, organizationId)) {
    signal.throwIfAborted()
    const found = await readOldReleases(database, serviceIds, kept)
    if (found.length > 0 && !isDryRun) await deleteOldReleases(database, environmentId, serviceIds, kept)
    for (const release of found) {
      const { id: name, serviceId, bytes } = release
      old.push(release)
      removed.push({
        ...{ kind: 'RELEASE', name, serviceId, environmentId, bytes },
        reason: `The service has ${kept} newer releases, or this one failed or repeats another one.`,
      })
    }
  }
  return { old, removed }
}

const ofDeployments = async (
  parts: Parts,
  { organizationId, isDryRun }: CleanUp,
  old: readonly OldRelease[],
  signal: AbortSignal,
) => {
  const { database } = parts
  const kept = keepingOf(parts).deployments
  const going = old.map((release) => release.id)
  const environments = await database.query<{ id: string }>(
    `select id from node where kind = 'environment' and organization_id = $1`,
    [organizationId],
  )
  const removed: Removed[] = []
  for (const { id } of environments) {
    signal.throwIfAborted()
    const { count, bytes } = await readOldDeployments(database, id, kept, going)
    if (count === 0) continue
    if (!isDryRun) await deleteOldDeployments(database, id, kept, signal)
    removed.push({
      ...{ kind: 'DEPLOYMENTS', name: `${count} deployments`, serviceId: null, environmentId: id, bytes },
      reason: `The environment has ${kept} newer deployments.`,
    })
  }
  return removed
}

/** Images that go, each with the bytes that no other image on the engine needs. */
const sized = (listed: readonly ListedImage[], ids: ReadonlySet<string>): Map<string, number> => {
  const images = new Map(listed.map((image) => [image.Id, image]))
  const stay = listed.filter(({ Id, RepoTags }) => !ids.has(Id) && (RepoTags ?? []).some((tag) => !tag.startsWith('<')))
  return sizesOf(images, [...ids], withAncestors(images, stay))
}

const ofBuiltImages = async (
  { database }: Parts,
  cluster: Cluster,
  { organizationId, isDryRun }: CleanUp,
  old: readonly OldRelease[],
  listed: readonly ListedImage[],
  signal: AbortSignal,
): Promise<Removed[]> => {
  const going = old.map(({ id }) => id)
  const found = isDryRun
    ? await readUnneeded(database, cluster.key, organizationId, going)
    : await removeUnneeded(database, cluster, organizationId, signal)
  const there = new Set(listed.map(({ Id }) => Id))
  const ids = new Set(found.map(({ imageId }) => imageId).filter((id) => there.has(id)))
  const reason = 'No release of any service names this image.'
  return [...sized(listed, ids)].map(([name, bytes]) => ({ kind: 'IMAGE', name, ...nowhere, reason, bytes }))
}

const ofPulledImages = async (
  { database }: Parts,
  { key, images }: Cluster,
  { organizationId, isDryRun }: CleanUp,
  old: readonly OldRelease[],
  listed: readonly ListedImage[],
  signal: AbortSignal,
): Promise<Removed[]> => {
  const named = await pulledImagesOf(database, organizationId, key, isDryRun ? old.map(({ id }) => id) : [])
  const needed = [...named.values()].flatMap((each) => [...each])
  const tags = new Set((await images.stale?.(organizationId, needed, pulledMs, signal)) ?? [])
  if (!isDryRun) await images.sweep(organizationId, needed, pulledMs, signal)
  const found = listed.filter(({ RepoTags }) => (RepoTags ?? []).some((tag) => tags.has(tag)))
  const sizes = sized(listed, new Set(found.map(({ Id }) => Id)))
  return found.map(({ Id, RepoTags }) => ({
    ...{ kind: 'PULLED_IMAGE', name: RepoTags!.find((tag) => tags.has(tag))!, ...nowhere },
    ...{ reason: 'No release of any service names this image, and nothing has used it for an hour.' },
    bytes: sizes.get(Id) ?? 0,
  }))
}

const whyLayer = {
  unused: 'No build has used this layer for SLIPWAY_BUILD_CACHE_DAYS.',
  'too much': 'The layers of the organization exceed SLIPWAY_BUILD_CACHE_MB, and this is among the longest unused.',
} as const

const ofLayers = async (
  parts: Parts,
  cluster: Cluster,
  { organizationId, isDryRun }: CleanUp,
  listed: readonly ListedImage[],
  signal: AbortSignal,
): Promise<Removed[]> => {
  const { database } = parts
  const keeping = keepingOf(parts)
  const found = isDryRun
    ? judgeLayers(await readLayers(database, cluster.key, organizationId), listed, keeping).old
    : await removeOldLayers(database, cluster, keeping, organizationId, signal)
  return found.map(({ imageId, why, bytes }) => ({
    ...{ kind: 'BUILD_LAYER', name: imageId, ...nowhere, reason: whyLayer[why], bytes },
  }))
}

/** The connected engines on which the organization has clusters. */
const enginesOf = async ({ database, clusters }: Parts, organizationId: string): Promise<Cluster[]> => {
  const rows = await database.query<{ key: string }>(
    `select distinct ${keySql('c')} as key from node c where c.kind = 'cluster' and c.organization_id = $1`,
    [organizationId],
  )
  const keys = new Set(rows.map(({ key }) => key))
  return clusters.all().filter(({ key, builder }) => keys.has(key) && builder.images !== undefined)
}

/** Removes what an organization no longer keeps, and lists it; with `isDryRun` only lists it. */
export const cleanUp = async (parts: Parts, what: CleanUp, signal: AbortSignal): Promise<Removed[]> => {
  const { old, removed } = await ofReleases(parts, what, signal)
  const lists = [removed, await ofDeployments(parts, what, old, signal)]
  for (const cluster of await enginesOf(parts, what.organizationId)) {
    const listed = await cluster.builder.images!(signal)
    lists.push(await ofBuiltImages(parts, cluster, what, old, listed, signal))
    lists.push(await ofPulledImages(parts, cluster, what, old, listed, signal))
    lists.push(await ofLayers(parts, cluster, what, listed, signal))
  }
  return lists.flat()
}
