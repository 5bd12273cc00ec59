/**
 * Requests that may be sent twice: with an Idempotency-Key, the second gets the answer to the first. The key's row is
 * written in the same transaction as the effect, so neither exists without the other, whenever a process dies.
 */
import { createHash } from 'node:crypto'
import { badRequest, conflict } from '../lib/errors.ts'
import type { Queryable } from '../store/database.ts'
import { deleteInBatches } from '../store/event-retention.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { idempotencyLockSql } from '../store/locks.ts'

export interface KeyedRequest {
  organizationId: string
  method: string
  path: string
  key: string
  bodyHash: string
}

/** Thrown to leave the transaction: the request has already been answered. */
export class Replay extends Error {
  readonly status: number
  readonly sealed: string

  constructor(status: number, sealed: string) {
    super('answered before')
    this.status = status
    this.sealed = sealed
  }
}

export const openReplay = async (sealer: Sealer, request: KeyedRequest, replay: Replay): Promise<string> =>
  (await sealer.open(request.organizationId, placeOfAnswer(request), replay.sealed)).reveal()

/** The key of a request, checked; null without the header. */
export const readKey = (header: string | string[] | undefined): string | null => {
  if (header === undefined) return null
  if (typeof header !== 'string' || !/^[\x21-\x7e]{1,255}$/.test(header))
    throw badRequest('The Idempotency-Key must be 1 to 255 visible ASCII characters.')
  return header
}

export const hashBody = (body: unknown): string => createHash('sha256').update(JSON.stringify(body)).digest('hex')

export const placeOfAnswer = ({ method, path, key }: Pick<KeyedRequest, 'method' | 'path' | 'key'>) => ({
  table: 'idempotency_key',
  row: createHash('sha256').update(`${method} ${path} ${key}`).digest('hex'),
  column: 'body',
})

const address = ({ organizationId, method, path, key }: KeyedRequest): string[] => [organizationId, method, path, key]

/**
 * Claims the key in this transaction. Throws `Replay`, or a 409 while the first request runs or if the body differs.
 */
export const claimKey = async (tx: Queryable, request: KeyedRequest): Promise<void> => {
  const [lock] = await tx.query<{ taken: boolean }>(idempotencyLockSql, [JSON.stringify(address(request))])
  if (!lock!.taken)
    throw conflict('idempotency_in_progress', 'A request with this Idempotency-Key is still in progress.')
  const [row] = await tx.query<{ status: number; body: string; hash: string; old: boolean }>(
    `select status, body, body_hash as hash, created_at < clock_timestamp() - interval '24 hours' as old
     from idempotency_key where organization_id = $1 and method = $2 and path = $3 and key = $4`,
    address(request),
  )
  if (row === undefined || row.old) return
  if (row.hash !== request.bodyHash)
    throw conflict('idempotency_mismatch', 'This Idempotency-Key was already used with a different body.')
  throw new Replay(row.status, row.body)
}

/** Stores the answer, sealed because some answers contain a secret that is shown once. */
export const storeAnswer = async (
  tx: Queryable,
  sealer: Sealer,
  request: KeyedRequest,
  status: number,
  body: string,
): Promise<void> => {
  const sealed = await sealer.seal(request.organizationId, placeOfAnswer(request), body)
  await tx.query(
    `insert into idempotency_key (organization_id, method, path, key, body_hash, status, body)
     values ($1, $2, $3, $4, $5, $6, $7)
     on conflict (organization_id, method, path, key) do update set body_hash = excluded.body_hash,
       status = excluded.status, body = excluded.body, created_at = clock_timestamp()`,
    [...address(request), request.bodyHash, status, sealed],
  )
}

export const deleteOldKeys = (db: Queryable, hours: number, signal: AbortSignal): Promise<void> =>
  deleteInBatches(
    db,
    `delete from idempotency_key where (organization_id, method, path, key) in (
       select organization_id, method, path, key from idempotency_key
       where created_at < clock_timestamp() - $1 * interval '1 hour' order by created_at limit $2
       for update skip locked) returning 1`,
    [hours],
    signal,
  )
