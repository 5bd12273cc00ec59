/**
 * The least that drains the product's outbox table: claim a row with SKIP LOCKED, post it by an undici pool, mark it
 * delivered. No signature, no order per service, no limit per receiver, no record of the attempt, no lease.
 */
import pg from 'pg'
import { Pool } from 'undici'

const claim = `update outbox set worker = 'floor', attempts = attempts + 1
  where id = (select id from outbox where state = 'PENDING' and worker is null order by seq limit 1 for update skip locked)
  returning id, body`
const finish = `update outbox set state = 'DELIVERED', finished_at = clock_timestamp() where id = $1`

const workers = 16

/** The one index that this claim wants; the product's tables serve another. */
const index = `create index if not exists floor_outbox on outbox (seq) where state = 'PENDING' and worker is null`

export interface FloorOutbox {
  /** Delivers until nothing waits. */
  drain(): Promise<void>
  close(): Promise<void>
}

export const openFloorOutbox = async (databaseUrl: string, receiverUrl: string): Promise<FloorOutbox> => {
  const database = new pg.Pool({ connectionString: databaseUrl, max: workers })
  await database.query(index)
  const receiver = new Pool(new URL(receiverUrl).origin, { connections: workers, pipelining: 1 })
  const run = async (name: string, text: string, values: unknown[] = []) =>
    (await database.query({ name, text, values })).rows as { id: string; body: string }[]
  const post = async ({ id, body }: { id: string; body: string }): Promise<void> => {
    const headers = { 'content-type': 'application/json', 'webhook-id': id }
    const answer = await receiver.request({ path: '/', method: 'POST', headers, body })
    await answer.body.dump()
    if (answer.statusCode !== 200) throw new Error(`the receiver answered ${answer.statusCode}`)
  }
  const work = async (): Promise<void> => {
    for (;;) {
      const [row] = await run('claim-outbox', claim)
      if (row === undefined) return
      await post(row)
      await run('finish-outbox', finish, [row.id])
    }
  }
  return {
    drain: async () => void (await Promise.all(Array.from({ length: workers }, work))),
    async close() {
      await receiver.close()
      await database.end()
    },
  }
}
