/**
 * Releases: the frozen content of one deployment. Immutable once written; the image, the configuration and the sealed
 * environment are stored together, so that the same can be started again at any time.
 */
import { keySql } from '../../clusters/local.ts'
import { newId } from '../../lib/ids.ts'
import type { Artifact } from '../../runtimes/runtime.ts'
import type { Database, Queryable } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import { type FrozenWorkload, type SealedContent, thawWorkload } from '../desired/workload.ts'
import type { EffectiveVariables } from '../parts.ts'

export interface Release {
  id: string
  organizationId: string
  serviceId: string
  clusterId: string
  /** Also the revision of its instances, unless it took them over as they were (compare/reroute.ts). */
  deploymentId: string
  image: string
  commit: unknown
  /** The reference that was pulled; null for a built image. */
  source: ReleaseSource | null
  workload: FrozenWorkload
  hash: string
}

export interface ReleaseSource {
  registryId: string | null
  name: string
  tag: string
  /** The tag in the configuration; a deploy may have named another one. */
  configured: string
}

export interface OpenedRelease {
  release: Release
  workload: Artifact
  environment: Environment
}

/** With the content of a release that has no image. */
export type Environment = Pick<EffectiveVariables, 'env' | 'files' | 'secretValues' | 'external'> & SealedContent

const columns = `id, organization_id as "organizationId", service_id as "serviceId", cluster_id as "clusterId",
  deployment_id as "deploymentId", image, commit, source, workload, hash`

const place = (id: string) => ({ table: 'release', row: id, column: 'sealed_env' })

const find = (db: Queryable, where: string, values: unknown[]): Promise<(Release & { sealed: string })[]> =>
  db.query(`select ${columns}, sealed_env as sealed from release where ${where}`, values)

/** Writes the release of one service in one deployment; a second call returns the first one's. */
export const freezeRelease = async (
  database: Database,
  sealer: Sealer,
  release: Omit<Release, 'id' | 'clusterId'>,
  environment: Environment,
): Promise<Release> => {
  const id = newId()
  const { env, files, secretValues, external, chart, app } = environment
  const text = JSON.stringify({ env, files, secretValues, ...(external?.length ? { external } : {}), chart, app })
  const sealed = await sealer.seal(release.organizationId, place(id), text)
  await database.query(
    `insert into release (id, organization_id, service_id, deployment_id, image, commit, workload, sealed_env, hash,
       source)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict (service_id, deployment_id) do nothing`,
    [
      id,
      release.organizationId,
      release.serviceId,
      release.deploymentId,
      release.image,
      release.commit === null ? null : JSON.stringify(release.commit),
      JSON.stringify(release.workload),
      sealed,
      release.hash,
      release.source === null ? null : JSON.stringify(release.source),
    ],
  )
  const [written] = await find(database, 'service_id = $1 and deployment_id = $2', [
    release.serviceId,
    release.deploymentId,
  ])
  // The answer is stored as the result of a step, which must not contain sealed values.
  const { sealed: _, ...kept } = written!
  return kept
}

/** The workload of a release with its environment opened; null when the release is gone. */
export const openRelease = async (
  database: Database,
  sealer: Sealer,
  releaseId: string,
): Promise<OpenedRelease | null> => {
  const [row] = await find(database, 'id = $1', [releaseId])
  if (row === undefined) return null
  const { sealed, ...release } = row
  const text = await sealer.open(release.organizationId, place(release.id), sealed)
  const environment = JSON.parse(text.reveal()) as Environment
  return { release, workload: thawWorkload(release.workload, release.image, environment), environment }
}

/** The image that the organization's services run for this public name; null if none was deployed from it. */
export const publicImageOf = async (
  db: Queryable,
  organizationId: string,
  { name, tag }: Pick<ReleaseSource, 'name' | 'tag'>,
): Promise<string | null> => {
  const [row] = await db.query<{ image: string }>(
    `select image from release
     where organization_id = $1 and source ->> 'name' = $2 and source ->> 'tag' = $3 and source ->> 'registryId' is null
     order by created_at desc, id desc limit 1`,
    [organizationId, name, tag],
  )
  return row?.image ?? null
}

/** Images from registries that releases of an organization's services on a cluster name, by service; `without` some. */
export const pulledImagesOf = async (
  db: Queryable,
  organizationId: string,
  clusterKey: string,
  without: readonly string[] = [],
): Promise<Map<string, Set<string>>> => {
  const rows = await db.query<{ serviceId: string; image: string }>(
    `select distinct r.service_id as "serviceId", r.image from release r
       join service_state s on s.service_id = r.service_id join node c on c.id = r.cluster_id
     where r.organization_id = $1 and r.source is not null and ${keySql('c')} = $2 and r.id <> all($3::uuid[])`,
    [organizationId, clusterKey, without],
  )
  const images = new Map<string, Set<string>>()
  for (const { serviceId, image } of rows) images.set(serviceId, (images.get(serviceId) ?? new Set()).add(image))
  return images
}

export const currentRelease = async (db: Queryable, serviceId: string): Promise<Release | null> => {
  const [row] = await db.query<Release>(
    `select r.id, r.organization_id as "organizationId", r.service_id as "serviceId",
       r.cluster_id as "clusterId", r.deployment_id as "deploymentId", r.image, r.commit, r.source, r.workload, r.hash
     from service_state s join release r on r.id = s.current_release_id where s.service_id = $1`,
    [serviceId],
  )
  return row ?? null
}
