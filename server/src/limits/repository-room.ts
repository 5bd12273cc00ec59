/** Room for repositories pushed to this server: the size of one, and of all of an organization. */
import type { Queryable } from '../store/database.ts'
import { type Limits, limitReached, takeTurns } from './limits.ts'

const mb = 2 ** 20

const inMb = (bytes: number): number => Math.ceil(bytes / mb)

const ofOrganization = `select coalesce(sum(p.bytes), 0)::float8 as bytes from git_repository r
  join git_pack p on p.repository_id = r.id where r.organization_id = $1 and p.accepted`

const ofRepository = `select coalesce(sum(bytes), 0)::float8 as bytes from git_pack where repository_id = $1 and accepted`

const read = async (db: Queryable, sql: string, id: string): Promise<number> => {
  const [row] = await db.query<{ bytes: number }>(sql, [id])
  return inMb(row!.bytes)
}

export const readRepositories = (db: Queryable, organizationId: string): Promise<number> =>
  read(db, ofOrganization, organizationId)

/** Throws a 409 if there is too much now. Call it last in the transaction that accepted a pack. */
export const refuseLargeRepositories = async (
  tx: Queryable,
  limits: Pick<Limits, 'repositoryMb' | 'repositoriesMb'>,
  organizationId: string,
  repositoryId: string,
): Promise<void> => {
  const { repositoryMb, repositoriesMb } = limits
  const own = repositoryMb === 0 ? 0 : await read(tx, ofRepository, repositoryId)
  if (own > repositoryMb) throw limitReached('repositoryMb', repositoryMb, own)
  if (repositoriesMb === 0) return
  await takeTurns(tx, organizationId, 'repositories')
  const all = await readRepositories(tx, organizationId)
  if (all > repositoriesMb) throw limitReached('repositoriesMb', repositoriesMb, all)
}
