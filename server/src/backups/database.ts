/** A deployed database as the tools reach it: the image that runs, and the login of its own record. */
import { openRelease } from '../deployments/release/releases.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { Workload } from '../runtimes/runtime.ts'
import type { BackupParts } from './parts.ts'
import type { ToolUse } from './run-tool.ts'
import { backupToolOf } from './tools/tools.ts'

export type Reached = Omit<ToolUse, 'ownerId' | 'mode' | 'timeoutMs'> & { clusterId: string }

interface Row {
  organizationId: string
  environmentId: string
  type: string
  mode: string
  password: string | null
  releaseId: string | null
  desired: string
}

const sql = `select n.organization_id as "organizationId", n.parent_id as "environmentId", n.spec ->> 'type' as type,
    coalesce(n.spec ->> 'mode', 'CONTAINER') as mode, n.sealed ->> 'password' as password,
    s.current_release_id as "releaseId", s.desired
  from node n join service_state s on s.service_id = n.id where n.id = $1 and n.kind = 'database'`

const notRunning = (): DeploymentError =>
  new DeploymentError('not_running', 'The database does not run: deploy it first.')

/** Rejects with a sentence for users if it does not run, is deleted or is of another mode. */
export const reachDatabase = async (
  { database, sealer }: Pick<BackupParts, 'database' | 'sealer'>,
  id: string,
): Promise<Reached> => {
  const [row] = await database.query<Row>(sql, [id])
  if (row === undefined) throw new DeploymentError('database_deleted', 'The database has been deleted.')
  const { organizationId, environmentId, type, mode, password } = row
  const tool = backupToolOf(type)
  if (mode !== 'CONTAINER' || password === null)
    throw new DeploymentError('backup_unsupported', 'Only databases in the mode CONTAINER have backups here.')
  if (row.releaseId === null || row.desired !== 'RUNNING') throw notRunning()
  const opened = await openRelease(database, sealer, row.releaseId)
  if (opened === null || opened.workload.artifact !== 'image') throw notRunning()
  const { image, memoryMb, machineLabels, withoutRoot } = opened.workload satisfies Workload
  const word = await sealer.open(organizationId, { table: 'node', row: id, column: 'password' }, password)
  return {
    ...{ organizationId, environmentId, serviceId: id, type, image, clusterId: opened.release.clusterId },
    memoryMb: memoryMb + tool.memoryMb,
    login: { host: `service-${id}`, user: tool.user, password: word.reveal() },
    ...(machineLabels === undefined ? {} : { machineLabels }),
    ...(withoutRoot === undefined ? {} : { withoutRoot }),
  }
}
