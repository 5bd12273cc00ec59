/** The objects that `npm run reset` removes on the engines of other machines. */
import { connectionOf, openSecrets, readEngineRows } from '../clusters/engines.ts'
import type { EngineConnection } from '../lib/docker/engine-connection.ts'
import { createOutbound } from '../lib/net/outbound.ts'
import type { Settings } from '../settings.ts'
import type { Database } from '../store/database.ts'
import { createSealer } from '../store/keys/seal.ts'

export interface ConnectedEngine {
  clusterId: string
  organizationId: string
  /** As the user wrote it. */
  url: string
  connection: EngineConnection
}

/** The engines that credentials name. Rejects without the master key, where there is one. */
export const readConnectedEngines = async (
  database: Database,
  { masterKeyFile, outboundAllow }: Settings,
): Promise<ConnectedEngine[]> => {
  const rows = await readEngineRows(database)
  if (rows.length === 0) return []
  const sealer = await createSealer({ database, masterKeyFile })
  const { checkMachine } = createOutbound({ allow: [...outboundAllow] })
  return Promise.all(
    rows.map(async (row) => {
      const connection = connectionOf(row.spec, await openSecrets(sealer, row), checkMachine)
      const { clusterId, organizationId } = row
      return { clusterId, organizationId, url: row.spec.engine_url, connection }
    }),
  )
}
