/**
 * Deliveries of git hosts, as rows: which webhook is meant, and what a genuine delivery leaves behind. Promises that
 * one is accepted once, by whichever server it reaches, and that it concerns only repositories that services of the
 * webhook's organization follow. What it leaves is a reason to look at these (deployments/sources); a process that dies
 * after the answer loses nothing.
 */
import type { Queryable } from '../../store/database.ts'
import { deleteInBatches } from '../../store/event-retention.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import type { Push } from './payload.ts'
import type { PushedImage } from './registries.ts'

/** Notified when a repository should be polled. */
export const pushChannel = 'slipway_push'

/** Notified when pull requests should be polled. */
export const requestChannel = 'slipway_preview_source'

/** Notified when the tag of an image should be polled. */
export const imageChannel = 'slipway_image'

export interface GitWebhook {
  id: string
  organizationId: string
  /** It concerns only repositories that are read with this token; null: all of the organization. */
  gitTokenId: string | null
  sealed: Record<string, string>
}

/** After a rotation, the former secret is accepted this long. */
export const graceHours = 24

/** SQL: the sealed secrets of a row `n` that are accepted now. */
const acceptedSql = `case when (n.spec ->> 'rotated_at')::timestamptz > clock_timestamp() - interval '${graceHours} hours'
  then n.sealed else n.sealed - 'previous_secret' end`

export const findGitWebhook = async (db: Queryable, id: string): Promise<GitWebhook | null> => {
  const [row] = await db.query<GitWebhook>(
    `select n.id, n.organization_id as "organizationId", n.spec ->> 'git_token_id' as "gitTokenId", ${acceptedSql} as sealed
     from node n where n.id = $1 and n.kind = 'git_webhook'`,
    [id],
  )
  return row ?? null
}

export const openSecrets = async (sealer: Sealer, { id, organizationId, sealed }: GitWebhook): Promise<string[]> => {
  const secrets: string[] = []
  for (const [column, text] of Object.entries(sealed))
    secrets.push((await sealer.open(organizationId, { table: 'node', row: id, column }, text)).reveal())
  return secrets
}

interface Delivery {
  digest: Buffer
  deliveryId: string | null
}

interface Accepted {
  /** False: it was accepted before. */
  isFresh: boolean
  /** How many of the organization's repositories will be polled. */
  repositories: number
}

/** `meant`: SQL that leaves a reason to look and returns the ids of what it concerns, with parameters from $5 on. */
const accepting = (meant: string, channel: string) => {
  const sql = `
    with fresh as (
      insert into git_delivery (webhook_id, digest, delivery_id) values ($1, $2, $3) on conflict do nothing returning 1
    ), ${meant}, told as (
      select pg_notify('${channel}', '') from (select from meant limit 1) any_row
    )
    select (select count(*) from fresh)::int as fresh, (select count(distinct id) from meant)::int as repositories,
      (select count(*) from told)::int as told`
  return async (
    db: Queryable,
    { id, organizationId }: GitWebhook,
    { digest, deliveryId }: Delivery,
    values: unknown[],
  ): Promise<Accepted> => {
    const parameters = [id, digest, deliveryId, organizationId, ...values]
    const [row] = await db.query<{ fresh: number; repositories: number }>(sql, parameters)
    return { isFresh: row!.fresh === 1, repositories: row!.repositories }
  }
}

const acceptPush = accepting(
  `followed as (
    select distinct w.id, p.branch, p.commit_id from unnest($7::text[], $8::text[]) as p (branch, commit_id)
    join watched_repository w on w.organization_id = $4 and w.path = any($6)
      and ($5::uuid is null or w.git_token_id = $5)
    where exists (select from fresh)
      and exists (select from followed_branch f where f.repository_id = w.id and f.branch = p.branch)
  ), meant as (
    insert into push_hint (repository_id, branch, commit_id, pusher) select id, branch, commit_id, $9 from followed
    returning repository_id as id
  )`,
  pushChannel,
)

/** `push` null: it was something else. */
export const acceptDelivery = (
  db: Queryable,
  webhook: GitWebhook,
  delivery: Delivery,
  push: Push | null,
): Promise<Accepted> => {
  const branches = push?.branches ?? []
  const columns = [branches.map(({ branch }) => branch), branches.map(({ commitId }) => commitId)]
  return acceptPush(db, webhook, delivery, [webhook.gitTokenId, push?.paths ?? [], ...columns, push?.pusher ?? ''])
}

const acceptPullRequest = accepting(
  `meant as (
    update preview_source s set asked = asked + 1, next_at = case when failures = 0 then '-infinity' else next_at end
    where exists (select from fresh) and s.organization_id = $4 and s.path = any($6)
      and ($5::uuid is null or s.git_token_id = $5) returning s.id
  )`,
  requestChannel,
)

/** The same for a delivery about a pull request. */
export const acceptRequest = (
  db: Queryable,
  webhook: GitWebhook,
  delivery: Delivery,
  { paths }: Pick<Push, 'paths'>,
): Promise<Accepted> => acceptPullRequest(db, webhook, delivery, [webhook.gitTokenId, paths])

// Compared by the end of the name: services name images as the registry does, or with a part of its address before it.
const acceptTags = accepting(
  `meant as (
    update watched_image w set asked = asked + 1, next_at = case when failures = 0 then '-infinity' else next_at end
    where exists (select from fresh) and w.organization_id = $4 and exists (
      select from unnest($5::text[], $6::text[]) as p (path, tag) where (p.tag is null or p.tag = w.tag)
        and (p.path = w.name or right(p.path, length(w.name) + 1) = '/' || w.name
          or right(w.name, length(p.path) + 1) = '/' || p.path))
    returning w.id
  )`,
  imageChannel,
)

/** The same for a delivery of a registry: the tags that it names are polled. */
export const acceptImages = (
  db: Queryable,
  webhook: GitWebhook,
  delivery: Delivery,
  images: readonly PushedImage[],
): Promise<Accepted> => {
  // A webhook of one git token is not for images.
  const meant = webhook.gitTokenId === null ? images : []
  return acceptTags(db, webhook, delivery, [meant.map(({ path }) => path), meant.map(({ tag }) => tag)])
}

/** Deliveries are remembered for this long. One that is sent again later causes a poll that finds nothing new. */
export const forgetDeliveries = (db: Queryable, signal: AbortSignal): Promise<void> =>
  deleteInBatches(
    db,
    `delete from git_delivery where (webhook_id, digest) in (select webhook_id, digest from git_delivery
       where received_at < clock_timestamp() - interval '7 days' order by received_at limit $1
       for update skip locked) returning 1`,
    [],
    signal,
  )
