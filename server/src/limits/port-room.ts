/** Room for published ports: how many ports of this machine the services of one organization use. */
import type { Queryable } from '../store/database.ts'
import { type Limits, limitReached, takeTurns } from './limits.ts'

export const readPorts = async (db: Queryable, organizationId: string): Promise<number> => {
  const [row] = await db.query<{ ports: number }>(
    `select count(*)::int as ports from outside_port o join node n on n.id = o.service_id where n.organization_id = $1`,
    [organizationId],
  )
  return row!.ports
}

/** Throws a 409 if there are too many now. Call it last in the transaction that claimed some; `before` are those before. */
export const refuseManyPorts = async (
  tx: Queryable,
  { ports: most }: Pick<Limits, 'ports'>,
  organizationId: string,
  before: number,
): Promise<void> => {
  if (most === 0 || (await readPorts(tx, organizationId)) <= before) return
  await takeTurns(tx, organizationId, 'ports')
  const ports = await readPorts(tx, organizationId)
  if (ports > most) throw limitReached('ports', most, ports)
}
