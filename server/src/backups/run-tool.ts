/** One container of a database's own image that dumps, loads or checks; and what can go wrong, in sentences. */
import type { Cluster } from '../clusters/clusters.ts'
import { DeploymentError } from '../lib/errors.ts'
import { tellingLine } from '../lib/last-words.ts'
import { Secret } from '../lib/secret.ts'
import type { Pipes } from '../runtimes/pipes.ts'
import type { Task } from '../runtimes/runtime.ts'
import { createReports, type Reports } from './tools/reports.ts'
import { backupToolOf, type Login, programOf, type ToolMode } from './tools/tools.ts'

export interface ToolUse
  extends Pick<Task, 'organizationId' | 'environmentId' | 'serviceId' | 'machineLabels' | 'withoutRoot'> {
  /** Id of the backup or restore that it is part of: its container is found by it. */
  ownerId: string
  type: string
  mode: ToolMode
  image: string
  memoryMb: number
  login: Login
  timeoutMs: number
}

const cpuMillicores = 1000
const verbs: Record<ToolMode, string> = {
  dump: 'The dump',
  load: 'The load',
  'load-into-empty': 'The load',
  check: 'The load for the check',
}

/** The first line that names a cause: what follows from it comes after. */
const causeOf = (lines: readonly string[]): string | null => {
  const wrong = lines.filter((line) => !/warning/i.test(line))
  return wrong.find((line) => /error|fatal|denied|refused|no space/i.test(line)) ?? tellingLine(wrong)
}

const failure = (use: ToolUse, code: string, how: string, reports: Reports): DeploymentError => {
  const said = causeOf(reports.said())
  const message = said === null ? `${verbs[use.mode]} ${how}.` : `${verbs[use.mode]} ${how}: ${said}`
  return new DeploymentError(code, message.slice(0, 1000), { lines: [...reports.said()] })
}

/** Rejects with a `DeploymentError` whose sentence is for users, or with the error of the streams. */
export const runTool = async (
  { runtime }: Pick<Cluster, 'runtime'>,
  use: ToolUse,
  streams: Pick<Pipes, 'stdin' | 'stdout'>,
  signal: AbortSignal,
): Promise<Reports> => {
  const tool = backupToolOf(use.type)
  const reports = createReports()
  const { organizationId, environmentId, serviceId, image, memoryMb, timeoutMs, machineLabels, withoutRoot } = use
  const end = await runtime.pipe(
    {
      ...{ organizationId, environmentId, serviceId, image, memoryMb, timeoutMs, cpuMillicores, volumes: [] },
      ...(machineLabels === undefined ? {} : { machineLabels }),
      ...(withoutRoot === undefined ? {} : { withoutRoot }),
      taskId: `${use.ownerId}-${use.mode}`,
      ...(await programOf(tool, use.mode)),
      env: new Secret({
        ...tool.environment(use.login),
        ...(use.mode === 'check' ? tool.serverEnvironment(use.login.password) : {}),
      }),
      files: new Secret([]),
      isAlone: use.mode === 'check',
    },
    { ...streams, onLine: reports.add },
    signal,
  )
  if (end.timedOut) throw failure(use, 'backup_late', `did not end within ${Math.round(timeoutMs / 1000)} s`, reports)
  if (end.oomKilled) throw failure(use, 'backup_memory', `needed more than ${memoryMb} MB of memory`, reports)
  if (reports.isOccupied())
    throw new DeploymentError(
      'database_not_empty',
      'The database has tables already: restore with `confirm` to replace them.',
    )
  if (end.notStarted !== undefined) throw new DeploymentError('backup_failed', end.notStarted)
  if (end.exitCode !== 0) throw failure(use, 'backup_failed', 'failed', reports)
  if (!reports.isDone()) throw failure(use, 'backup_failed', 'ended early', reports)
  return reports
}
