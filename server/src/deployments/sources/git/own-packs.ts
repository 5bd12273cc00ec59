/**
 * Merges the packs of repositories on this server into one each, without objects that are no longer needed: each push
 * adds a pack, and objects that left a branch would count forever. Promises that pushes wait for it only at its very
 * end, that nothing is lost which a branch, a tag, a release for a rollback or a deployment needs, and that one
 * repository is worked on for a bounded time. When the process dies: an unused pack is left, and the next turn
 * follows.
 */
import { internalUrlOf, isCommitId } from '../../../builds/git/names.ts'
import type { Repositories } from '../../../builds/pushed/repositories.ts'
import {
  dropLeftPacks,
  dropPack,
  emptyPackBytes,
  type KeptPack,
  readPacks,
  readRefs,
  replacePacks,
  writePack,
} from '../../../builds/pushed/rows.ts'
import { newId } from '../../../lib/ids.ts'
import type { Log } from '../../../lib/log.ts'
import { type Limits, usualLimits } from '../../../limits/limits.ts'
import type { Database, Queryable } from '../../../store/database.ts'
import { createLoop } from '../../../work/loop.ts'
import type { DeploymentParts } from '../../parts.ts'

interface TidyParts {
  database: Database
  log: Pick<Log, 'warn' | 'info'>
  repositories: Pick<Repositories, 'intake'>
  limits?: Limits | undefined
}

/** Packs of a repository before they are merged. */
const usualPacks = 20
const pauseMinutes = 15
/** Less than the pause, so that no two work on one repository. */
const deadlineMs = 10 * 60_000
/** Releases of an application whose commits are kept, wherever its branches are. */
const keptReleases = 20

interface Due {
  id: string
  organizationId: string
}

/** With many packs; or with half of its room used, and new objects. */
const claimSql = `
  with size as (
    select repository_id as id, count(*) as packs, sum(bytes) as bytes, max(created_at) as newest
    from git_pack where accepted group by repository_id
  ), due as (
    select r.id from git_repository r join size s using (id)
    where r.tidied_at < clock_timestamp() - $1 * interval '1 minute' and s.packs > 1
      and (s.packs > $2 or ($3 > 0 and s.bytes > $3::float8 * 524288 and s.newest > r.tidied_at))
    order by r.tidied_at limit 1 for update of r skip locked
  )
  update git_repository set tidied_at = clock_timestamp() where id in (select id from due)
  returning id, organization_id as "organizationId"`

const neededSql = `
  select commit ->> 'git_commit_id' as id from (select commit from release where service_id = $1 and commit is not null
    order by created_at desc limit ${keptReleases}) recent
  union select r.commit ->> 'git_commit_id' from service_state s join release r on r.id = s.current_release_id
    where s.service_id = $1
  union select requested ->> 'commitId' from deployment_service where service_id = $1 and finished_at is null`

/** Objects that all others depend on. Applications that once had another repository may lack some of them. */
const readNeeded = async (db: Queryable, id: string): Promise<{ needed: string[]; perhaps: string[] }> => {
  const refs = await readRefs(db, id)
  const rows = await db.query<{ id: string | null }>(neededSql, [id])
  const needed = new Set(refs.map(({ objectId }) => objectId))
  const perhaps = new Set([...refs.map(({ baseId }) => baseId), ...rows.map((row) => row.id)])
  const others = [...perhaps].filter((each) => each !== null && isCommitId(each) && !needed.has(each))
  return { needed: [...needed], perhaps: others as string[] }
}

async function* until(signal: AbortSignal, chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    signal.throwIfAborted()
    yield chunk
  }
}

const merge = async (
  { database, repositories }: TidyParts,
  { id, organizationId }: Due,
  packs: readonly KeptPack[],
  signal: AbortSignal,
): Promise<void> => {
  // Read after the packs: objects pushed in between are in a pack that is kept.
  const { needed, perhaps } = await readNeeded(database, id)
  const intake = await repositories.intake({ organizationId, branch: 'main', url: internalUrlOf(id) }, signal)
  const packId = newId()
  try {
    const there: string[] = []
    for (const each of perhaps) if ((await intake.target(each)) !== null) there.push(each)
    const wanted = [...needed, ...there]
    if (wanted.length === 0) return
    const chunks = until(signal, intake.pack(wanted, []))
    const written = await writePack(database, { id: packId, repositoryId: id }, chunks)
    if (written.bytes <= emptyPackBytes) return
    await database.transaction((tx) => replacePacks(tx, id, packs, { id: packId, ...written }))
  } finally {
    await intake.remove()
    await dropPack(database, packId)
  }
}

/** One after the other, until none is due. */
export const tidyRepositories = async (
  parts: TidyParts,
  stopping: AbortSignal,
  mostPacks = usualPacks,
): Promise<void> => {
  const { database, log, limits = usualLimits } = parts
  for (;;) {
    stopping.throwIfAborted()
    const [due] = await database.query<Due>(claimSql, [pauseMinutes, mostPacks, limits.repositoryMb])
    if (due === undefined) return
    const signal = AbortSignal.any([stopping, AbortSignal.timeout(deadlineMs)])
    try {
      await merge(parts, due, await readPacks(database, due.id), signal)
    } catch (error) {
      stopping.throwIfAborted()
      log.warn({ err: error, applicationId: due.id }, 'the packs of a repository could not be merged')
    }
  }
}

const minuteMs = 60_000
const hourMs = 3_600_000

/** Nothing for a server without repositories of its own. */
export const startPacks = (parts: DeploymentParts): { stop(): Promise<void> } => {
  const { database, repositories } = parts
  if (repositories === undefined) return { stop: async () => {} }
  const forgetLeft = createLoop(parts, {
    name: 'packs of broken pushes',
    periodMs: hourMs,
    waits: true,
    failed: 'packs of broken pushes could not be deleted',
    run: () => dropLeftPacks(database),
  })
  const mergePacks = createLoop(parts, {
    name: 'packs of repositories',
    periodMs: minuteMs,
    waits: true,
    failed: 'packs of repositories could not be merged',
    run: (signal) => tidyRepositories({ ...parts, repositories }, signal),
  })
  return {
    async stop() {
      await Promise.all([forgetLeft.stop(), mergePacks.stop()])
    },
  }
}
