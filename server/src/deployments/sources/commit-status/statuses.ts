/**
 * Reports the results of deployments caused by a push to git hosts: pending, success with the address, failure with
 * the reason. Promises that no deployment waits for it, that the final state is reported or given up after some hours,
 * and that it contains no secret of a service. A status may be reported twice, which changes nothing at the host. When
 * the process dies: the lease of the row ends, and another server reports the state at that time.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { Outbound } from '../../../lib/net/outbound.ts'
import { LeaseLost } from '../../../work/lease.ts'
import { startTurns } from '../../../work/turns.ts'
import { oneLine } from '../../git-hosts/answers.ts'
import { GitHostError, openGitHost } from '../../git-hosts/git-host.ts'
import type { CommitState, CommitStatus } from '../../git-hosts/hosts.ts'
import type { DeploymentParts } from '../../parts.ts'
import {
  claimStatuses,
  finishReport,
  putOff,
  readStanding,
  type Standing,
  type StatusRow,
  statusChannel,
  statusLeases,
} from './rows.ts'

const concurrency = 8
const longestPauseMs = 30_000
const patienceMs = 20_000
const maxDescription = 140
const maxName = 100

type StatusParts = DeploymentParts & { outbound: Outbound }

const words: Record<CommitState, string> = {
  PENDING: 'The deployment is under way.',
  SUCCESS: 'Deployed.',
  FAILURE: 'The deployment failed.',
  CANCELED: 'The deployment was canceled.',
}

const firstSentence = (text: string): string => /^[\s\S]*?[.!?](?=\s|$)/.exec(text)?.[0] ?? text

/** The reason of a failure, without any secret of the service. */
const reasonOf = async (
  parts: StatusParts,
  { serviceId, reason }: StatusRow,
  error: string | null,
): Promise<string> => {
  const said = reason ?? error
  if (said === null || said === '') return words.FAILURE
  const seen = (await parts.variables([serviceId])).get(serviceId)
  let text = firstSentence(said)
  for (const secret of seen?.secretValues ?? []) if (secret !== '') text = text.replaceAll(secret, '***')
  return text
}

const addressOf = async (parts: StatusParts, { host, clusterId }: Standing): Promise<string | null> => {
  if (host === null || clusterId === null) return null
  return (await parts.clusters.of(clusterId)).ingress.url(host)
}

const statusOf = async (parts: StatusParts, row: StatusRow): Promise<CommitStatus> => {
  const standing: Standing =
    row.deploymentId === null
      ? { state: 'FAILURE', error: null, host: null, clusterId: null }
      : await readStanding(parts.database, row)
  const { state } = standing
  const description = state === 'FAILURE' ? await reasonOf(parts, row, standing.error) : words[state]
  return {
    ...{ state, commitId: row.commitId, key: `slipway-${row.serviceId.replaceAll('-', '')}` },
    name: oneLine(`slipway/${row.name}`, maxName),
    description: oneLine(description, maxDescription),
    url: state === 'SUCCESS' ? await addressOf(parts, standing) : null,
  }
}

const report = async (parts: StatusParts, row: StatusRow, signal: AbortSignal): Promise<void> => {
  const status = await statusOf(parts, row)
  if (status.state === row.told) return finishReport(parts.database, row, row.told)
  const { organizationId, url, gitTokenId } = row
  const host = await openGitHost(parts, organizationId, url, gitTokenId)
  await host?.report(status, AbortSignal.any([signal, AbortSignal.timeout(patienceMs)]))
  return finishReport(parts.database, row, host === null ? null : status.state)
}

/** Errors that will not pass within an hour: nothing is reported, and the deployment continues. */
const isHopeless = (error: unknown): boolean =>
  error instanceof DeploymentError || (error instanceof GitHostError && error.code !== 'unreachable')

const reportOrPutOff = async (parts: StatusParts, row: StatusRow, signal: AbortSignal): Promise<void> => {
  try {
    await report(parts, row, signal)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseLost) throw error
    const { log, database } = parts
    const about = { organizationId: row.organizationId, service: row.serviceId, commit: row.commitId }
    if (isHopeless(error)) {
      log.info(
        { ...about, reason: (error as Error).message },
        'the status of a commit was not reported to its git host',
      )
      return finishReport(database, row, null)
    }
    const isAgain = await putOff(database, row, error instanceof GitHostError ? error.waitMs : 0)
    log[isAgain ? 'debug' : 'warn'](
      { ...about, err: error },
      'the status of a commit could not be reported to its git host',
    )
  }
}

/** Does nothing without outgoing requests. */
export const startStatuses = async (parts: DeploymentParts, worker: string): Promise<{ stop(): Promise<void> }> => {
  const { outbound } = parts
  if (outbound === undefined) return { stop: async () => {} }
  return startTurns<StatusRow>(parts, worker, {
    ...{ name: 'commit statuses', concurrency, longestPauseMs, leases: statusLeases, channel: statusChannel },
    about: ({ id }) => ({ commitStatus: id }),
    claim: claimStatuses,
    run: (claimed, signal) => reportOrPutOff({ ...parts, outbound }, claimed, signal),
    failed: 'reporting a commit status was interrupted and waits for its next claim',
  })
}
