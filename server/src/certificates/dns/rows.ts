/** TXT records that this installation may have set, as rows. */
import type { Database, Queryable } from '../../store/database.ts'
import type { TxtRecord } from './provider.ts'

/** In the transaction that stores the challenge which needs it. */
export const noteRecord = (tx: Queryable, { name, value }: TxtRecord): Promise<unknown> =>
  tx.query('insert into dns_record (name, value) values ($1, $2) on conflict (name, value) do nothing', [name, value])

interface Leftover extends TxtRecord {
  id: string
}

const isNeeded = `exists (select from certificate c
  where c.challenge ->> 'kind' = 'dns-01' and c.challenge ->> 'answer' = dns_record.value)`

/** Records that no order needs; other servers do not claim them for some minutes. */
export const claimLeftovers = (database: Database, now: Date): Promise<Leftover[]> =>
  database.query<Leftover>(
    `update dns_record set next_at = $1::timestamptz + interval '5 minutes' where id in (
       select id from dns_record where next_at <= $1 and not ${isNeeded} order by next_at, id limit 20
       for update skip locked)
     returning id, name, value`,
    [now],
  )

/** A record that is needed again meanwhile is kept. */
export const forgetRecord = async (database: Database, id: string): Promise<void> => {
  await database.query(`delete from dns_record where id = $1 and not ${isNeeded}`, [id])
}

const rememberDays = 30

/** For example records of a provider that is no longer configured. */
export const forgetOldRecords = async (database: Queryable, now: Date): Promise<void> => {
  await database.query(
    `delete from dns_record where created_at < $1::timestamptz - $2 * interval '1 day' and not ${isNeeded}`,
    [now, rememberDays],
  )
}
