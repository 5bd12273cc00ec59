/** The tables of the repositories on this server itself: their branches and tags, and their packs in parts. */
import type { Database, Queryable } from '../../store/database.ts'

export interface KeptRef {
  /** `refs/heads/main` */
  name: string
  objectId: string
  /** The commit of an annotated tag, else the same. */
  commitId: string
  /**
   * The commit that pushing clients see while the last deployment of the branch's head has failed; null: no such
   * branch.
   */
  baseId: string | null
}

export const readRefs = (db: Queryable, id: string): Promise<KeptRef[]> =>
  db.query<KeptRef>(
    `select name, object_id as "objectId", commit_id as "commitId", base_id as "baseId" from git_ref
     where repository_id = $1 order by name collate "C"`,
    [id],
  )

/** Sets a reference, or deletes it (`to` null). */
export const writeRef = async (
  tx: Queryable,
  id: string,
  name: string,
  to: Pick<KeptRef, 'objectId' | 'commitId' | 'baseId'> | null,
): Promise<void> => {
  if (to === null) await tx.query('delete from git_ref where repository_id = $1 and name = $2', [id, name])
  else
    await tx.query(
      `insert into git_ref (repository_id, name, object_id, commit_id, base_id) values ($1, $2, $3, $4, $5)
       on conflict (repository_id, name) do update set object_id = excluded.object_id, commit_id = excluded.commit_id,
         base_id = excluded.base_id`,
      [id, name, to.objectId, to.commitId, to.baseId],
    )
}

export interface KeptPack {
  id: string
  /** Git's name of its file: `pack-<name>.pack`. */
  name: string
}

export const readPacks = (db: Queryable, id: string): Promise<KeptPack[]> =>
  db.query<KeptPack>('select id, name from git_pack where repository_id = $1 and accepted order by created_at, id', [
    id,
  ])

export const countPacks = async (db: Queryable, id: string): Promise<number> => {
  const [row] = await db.query<{ count: number }>(
    'select count(*)::int as count from git_pack where repository_id = $1 and accepted',
    [id],
  )
  return row!.count
}

/** One statement a part, so that a large pack is never in memory as a whole. */
export async function* readParts(db: Queryable, packId: string): AsyncGenerator<Buffer> {
  for (let part = 0; ; part += 1) {
    const [row] = await db.query<{ bytes: Buffer }>(
      'select bytes from git_pack_part where pack_id = $1 and part = $2',
      [packId, part],
    )
    if (row === undefined) return
    yield row.bytes
  }
}

const partBytes = 2 ** 20

/** `chunks` in parts of one size, except the last. */
async function* inParts(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer[] = []
  let size = 0
  for await (const chunk of chunks) {
    held.push(chunk)
    size += chunk.length
    if (size < partBytes) continue
    yield Buffer.concat(held)
    held = []
    size = 0
  }
  if (size > 0) yield Buffer.concat(held)
}

/** A pack ends with its checksum, which git names it after. */
const sumBytes = 20
export const emptyPackBytes = 12 + sumBytes

/**
 * Writes a pack that is not used yet; each part is a statement of its own. Rejects with 23503 once the repository is
 * gone.
 */
export const writePack = async (
  database: Database,
  { id, repositoryId }: { id: string; repositoryId: string },
  chunks: AsyncIterable<Buffer>,
): Promise<{ bytes: number; name: string }> => {
  await database.query('insert into git_pack (id, repository_id) values ($1, $2)', [id, repositoryId])
  let part = 0
  let bytes = 0
  let end = Buffer.alloc(0)
  for await (const piece of inParts(chunks)) {
    await database.query('insert into git_pack_part (pack_id, part, bytes) values ($1, $2, $3)', [id, part, piece])
    part += 1
    bytes += piece.length
    end = Buffer.concat([end, piece.subarray(-sumBytes)]).subarray(-sumBytes)
  }
  return { bytes, name: end.toString('hex') }
}

/** From now on the pack belongs to its repository. */
export const acceptPack = async (
  tx: Queryable,
  { id, name, bytes }: { id: string; name: string; bytes: number },
): Promise<void> => {
  await tx.query('update git_pack set accepted = true, name = $2, bytes = $3 where id = $1', [id, name, bytes])
}

/**
 * Replaces these packs with one, which must contain all their needed objects; false if some of them no longer exist.
 * Pushes wait meanwhile; packs that were added since are kept.
 */
export const replacePacks = async (
  tx: Queryable,
  repositoryId: string,
  old: readonly KeptPack[],
  pack: { id: string; name: string; bytes: number },
): Promise<boolean> => {
  await tx.query('select 1 from git_repository where id = $1 for update', [repositoryId])
  const there = new Set((await readPacks(tx, repositoryId)).map(({ id }) => id))
  if (!old.every(({ id }) => there.has(id))) return false
  await tx.query('delete from git_pack where id = any($1)', [old.map(({ id }) => id)])
  await acceptPack(tx, pack)
  return true
}

export const dropPack = async (db: Queryable, id: string): Promise<void> => {
  await db.query('delete from git_pack where id = $1 and not accepted', [id])
}

/** Deletes leftovers of dead processes. No push lasts that long. */
export const dropLeftPacks = async (db: Queryable): Promise<void> => {
  await db.query(`delete from git_pack where not accepted and created_at < clock_timestamp() - interval '1 day'`)
}
