/**
 * The results of each organization's builds: images by their content (table `image`), steps (`build_step`), the base
 * images that it last got (`base_image`), and the secret that keeps its layers in the engine's cache separate
 * (`build_secret`).
 */
import type { Queryable } from '../store/database.ts'

export interface StoredImage {
  reference: string
  imageId: string
}

/** The organization that owns a built image, and the image's cluster. */
export interface ImageOwner {
  organizationId: string
  clusterId: string
}

export interface ImageStore {
  find(owner: ImageOwner, contentKey: string): Promise<StoredImage | null>
  /** Replaces the entry of the key. Without an owner it is the operator's, which no organization finds. */
  save(owner: ImageOwner | null, contentKey: string, image: StoredImage): Promise<void>
  owns(organizationId: string, imageId: string): Promise<boolean>
  /** The image that a step produced; `stepKey` includes the organization and the cluster. */
  findStep(stepKey: string): Promise<string | null>
  saveStep(owner: ImageOwner, stepKey: string, imageId: string): Promise<void>
  /**
   * The image that a base image's name referred to when the organization last pulled it, on any cluster: ids are
   * hashes.
   */
  findBase(organizationId: string, name: string): Promise<string | null>
  saveBase(organizationId: string, name: string, imageId: string): Promise<void>
  /** Known only to this database and to the organization itself. */
  cacheSecret(organizationId: string): Promise<string>
}

type Row = Record<string, string>

export const createImageStore = (database: Queryable): ImageStore => ({
  async find({ organizationId, clusterId }, contentKey) {
    const [row] = await database.query<Row>(
      `update image set used_at = clock_timestamp() where content_key = $1 and organization_id = $2
         and cluster_id = $3 returning reference, image_id`,
      [contentKey, organizationId, clusterId],
    )
    return row === undefined ? null : { reference: row.reference!, imageId: row.image_id! }
  },
  async save(owner, contentKey, { reference, imageId }) {
    await database.query(
      `insert into image (content_key, organization_id, cluster_id, reference, image_id) values ($1, $2, $3, $4, $5)
       on conflict (content_key, (coalesce(cluster_id, '00000000-0000-0000-0000-000000000000'))) do update set organization_id = excluded.organization_id,
         reference = excluded.reference, image_id = excluded.image_id, used_at = clock_timestamp()`,
      [contentKey, owner?.organizationId ?? null, owner?.clusterId ?? null, reference, imageId],
    )
  },
  async owns(organizationId, imageId) {
    const rows = await database.query('select from image where organization_id = $1 and image_id = $2 limit 1', [
      organizationId,
      imageId,
    ])
    return rows.length > 0
  },
  async findStep(stepKey) {
    const [row] = await database.query<Row>(
      'update build_step set used_at = clock_timestamp() where step_key = $1 returning image_id',
      [stepKey],
    )
    return row?.image_id ?? null
  },
  async saveStep({ organizationId, clusterId }, stepKey, imageId) {
    await database.query(
      `insert into build_step (step_key, organization_id, cluster_id, image_id) values ($1, $2, $3, $4)
       on conflict (step_key) do update set image_id = excluded.image_id, used_at = clock_timestamp()`,
      [stepKey, organizationId, clusterId, imageId],
    )
  },
  async findBase(organizationId, name) {
    const [row] = await database.query<Row>(
      'select image_id from base_image where organization_id = $1 and name = $2',
      [organizationId, name],
    )
    return row?.image_id ?? null
  },
  async saveBase(organizationId, name, imageId) {
    await database.query(
      `insert into base_image (organization_id, name, image_id) values ($1, $2, $3)
       on conflict (organization_id, name) do update set image_id = excluded.image_id`,
      [organizationId, name, imageId],
    )
  },
  async cacheSecret(organizationId) {
    await database.query('insert into build_secret (organization_id) values ($1) on conflict do nothing', [
      organizationId,
    ])
    const [row] = await database.query<Row>('select secret from build_secret where organization_id = $1', [
      organizationId,
    ])
    return row!.secret!
  },
})
