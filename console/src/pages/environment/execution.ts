/** One deployment of an environment, as its history has it, and what it is called. */
import * as read from '../../api/queries.ts'

export const verbs: Record<string, string> = {
  DEPLOY: 'Deploy',
  DELETE: 'Delete',
  RESTART: 'Restart',
  STOP: 'Stop',
  UNINSTALL: 'Uninstall',
}

export const titleOf = (row: read.Execution): string =>
  `${verbs[row.trigger_action] ?? row.trigger_action} #${read.numberOf(row.identifier.execution_id)}`
