/** The servers that share one database, by the leases that they renew. */
import { topic, warning } from '../lib/finding.ts'
import type { Queryable } from '../store/database.ts'

export interface ServerFacts {
  alive: number
  /** Their leases have ended, but they did not stop in order. */
  lost: number
}

/** A lost server is forgotten after an hour (clusters/servers.ts). */
export const readServers = async (db: Queryable): Promise<ServerFacts> => {
  const [row] = await db.query<ServerFacts>(
    `select count(*) filter (where lease_until > clock_timestamp())::int as alive,
       count(*) filter (where lease_until <= clock_timestamp())::int as lost from server`,
  )
  return row!
}

const servers = topic('servers', 'Servers')

export const judgeServers = (facts: ServerFacts | null) => {
  if (facts === null) return servers.skipped('This is the only server: it has its own database.')
  const { alive, lost } = facts
  const own =
    alive === 0
      ? [
          warning(
            'This server has not renewed its lease: others consider it dead.',
            'Look at the work "presence" in its log, and at the connection to the database.',
          ),
        ]
      : []
  const gone =
    lost === 0
      ? []
      : [
          warning(
            `${lost === 1 ? 'A server' : `${lost} servers`} stopped answering within the last hour without stopping in order.`,
            'Look at its machine and its log, and start it again; if it is gone for good, this is forgotten after an hour.',
          ),
        ]
  return servers.judge(
    [...own, ...gone],
    alive === 1 ? 'One server works on this database.' : `All ${alive} servers on this database are alive.`,
  )
}
