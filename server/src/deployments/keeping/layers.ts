/** What builds leave on an engine besides images: layers without a name, and names without a row. */
import type { Cluster } from '../../clusters/clusters.ts'
import type { ListedImage } from '../../images/listed-image.ts'
import type { Keeping } from '../../limits/keeping.ts'
import type { Database, Queryable } from '../../store/database.ts'
import { type BuiltImage, mayBeInUseSql, onEngineSql } from './built-images.ts'

/** The image that a step of a build left. */
export interface Layer {
  key: string
  organizationId: string
  imageId: string
  idleDays: number
  mayBeInUse: boolean
}

/** Of one engine, the longest unused first. */
export const readLayers = (db: Queryable, key: string, organizationId: string | null): Promise<Layer[]> =>
  db.query<Layer>(
    `select s.step_key as key, s.organization_id as "organizationId", s.image_id as "imageId",
       (extract(epoch from clock_timestamp() - s.used_at) / 86400)::float8 as "idleDays", ${mayBeInUseSql('s')} as "mayBeInUse"
     from build_step s where ${onEngineSql('s')} and ($2::uuid is null or s.organization_id = $2)
     order by s.used_at, s.created_at`,
    [key, organizationId],
  )

const mb = 2 ** 20

/** The ids of images and of all that they are made from. */
export const withAncestors = (
  images: ReadonlyMap<string, ListedImage>,
  starts: readonly ListedImage[],
): Set<string> => {
  const found = new Set<string>()
  for (const start of starts)
    for (let at: ListedImage | undefined = start; at !== undefined && !found.has(at.Id); at = images.get(at.ParentId))
      found.add(at.Id)
  return found
}

/** Bytes by image, of each with the layers below it that no earlier one has. */
export const sizesOf = (
  images: ReadonlyMap<string, ListedImage>,
  ids: readonly string[],
  taken: ReadonlySet<string>,
) => {
  const counted = new Set(taken)
  const sizes = new Map<string, number>()
  for (const id of ids) {
    let bytes = 0
    for (let at = images.get(id); at !== undefined && !counted.has(at.Id); at = images.get(at.ParentId)) {
      counted.add(at.Id)
      bytes += Math.max(0, at.Size - (images.get(at.ParentId)?.Size ?? 0))
    }
    sizes.set(id, bytes)
  }
  return sizes
}

export interface OldLayer {
  organizationId: string
  imageId: string
  bytes: number
  why: 'unused' | 'too much'
}

export interface JudgedLayers {
  old: OldLayer[]
  /** Keys of those that the engine has no more. */
  lost: string[]
}

/**
 * Which layers go. Those of images with a name cost nothing of their own and stay with them; of the others, those that
 * no build has used for some days, and the longest unused ones above the limit of their organization.
 */
export const judgeLayers = (
  layers: readonly Layer[],
  listed: readonly ListedImage[],
  { buildCacheDays, buildCacheMb }: Pick<Keeping, 'buildCacheDays' | 'buildCacheMb'>,
): JudgedLayers => {
  const images = new Map(listed.map((image) => [image.Id, image]))
  const named = withAncestors(
    images,
    listed.filter(({ RepoTags }) => (RepoTags ?? []).some((tag) => !tag.startsWith('<none>'))),
  )
  const lost = layers.filter(({ imageId }) => !images.has(imageId)).map(({ key }) => key)
  const left = layers.filter(({ imageId }) => images.has(imageId) && !named.has(imageId))
  const old: OldLayer[] = []
  for (const [organizationId, all] of Map.groupBy(left, (layer) => layer.organizationId)) {
    const byImage = new Map(all.map((layer) => [layer.imageId, layer]))
    const sizes = sizesOf(images, [...byImage.keys()], named)
    let total = [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0)
    for (const { imageId, idleDays, mayBeInUse } of byImage.values()) {
      const why = idleDays > buildCacheDays ? 'unused' : total > buildCacheMb * mb ? 'too much' : null
      if (why === null || mayBeInUse) continue
      const bytes = sizes.get(imageId)!
      total -= bytes
      old.push({ organizationId, imageId, bytes, why })
    }
  }
  return { old, lost }
}

/** Removes old layers from a cluster's engine; resolves to those that are gone. */
export const removeOldLayers = async (
  database: Database,
  { key, builder }: Cluster,
  keeping: Keeping,
  organizationId: string | null,
  signal: AbortSignal,
): Promise<OldLayer[]> => {
  if (builder.images === undefined || builder.removeLayers === undefined) return []
  // The rows first: what is made in between has no row yet, rather than no image.
  const layers = await readLayers(database, key, organizationId)
  const { old, lost } = judgeLayers(layers, await builder.images(signal), keeping)
  // The newest first: an image goes only after those that were made from it.
  const kept = new Set(await builder.removeLayers(old.map(({ imageId }) => imageId).reverse()))
  const gone = old.filter(({ imageId }) => !kept.has(imageId))
  const ids = new Set(gone.map(({ imageId }) => imageId))
  const keys = [...lost, ...layers.filter(({ imageId }) => ids.has(imageId)).map((layer) => layer.key)]
  await database.query('delete from build_step where step_key = any($1)', [keys])
  return gone
}

const builtName = /^slipway\/([0-9a-f-]{36})\/[0-9a-f-]{36}:[0-9a-f]{16}$/

/**
 * Images that have the name of a build of one of our organizations, and no row: a process died between the two, or the
 * row says now that the content is another image.
 */
export const readStrays = async (db: Queryable, listed: readonly ListedImage[]): Promise<BuiltImage[]> => {
  const found = listed.flatMap(({ Id, RepoTags }) =>
    (RepoTags ?? []).flatMap((tag) => {
      const owner = builtName.exec(tag)?.[1]
      return owner === undefined ? [] : [{ organizationId: owner, imageId: Id }]
    }),
  )
  return db.query<BuiltImage>(
    `select f.owner as "organizationId", f.image as "imageId" from unnest($1::uuid[], $2::text[]) as f (owner, image)
       join node n on n.id = f.owner and n.kind = 'organization'
     where not exists (select from image i where i.image_id = f.image)
       and not exists (select from release r where r.image = f.image)
     group by 1, 2`,
    [found.map(({ organizationId }) => organizationId), found.map(({ imageId }) => imageId)],
  )
}
