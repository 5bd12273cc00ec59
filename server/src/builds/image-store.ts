/** Which content was built already: table `image`. */
import type { Queryable } from '../store/database.ts'

export interface StoredImage {
  reference: string
  imageId: string
}

export interface ImageStore {
  find(contentKey: string): Promise<StoredImage | null>
  /** Replaces what was known of the key. */
  save(contentKey: string, image: StoredImage): Promise<void>
}

export const createImageStore = (database: Queryable): ImageStore => ({
  async find(contentKey) {
    const [row] = await database.query<{ reference: string; image_id: string }>(
      'update image set used_at = clock_timestamp() where content_key = $1 returning reference, image_id',
      [contentKey],
    )
    return row === undefined ? null : { reference: row.reference, imageId: row.image_id }
  },
  async save(contentKey, { reference, imageId }) {
    await database.query(
      `insert into image (content_key, reference, image_id) values ($1, $2, $3)
       on conflict (content_key) do update
       set reference = excluded.reference, image_id = excluded.image_id, used_at = clock_timestamp()`,
      [contentKey, reference, imageId],
    )
  },
})
