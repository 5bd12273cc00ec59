/** A deployment as a waiting client sees it: its lines as they are written, and finally its result. */
import type { Clock } from '../../../lib/time/clock.ts'
import type { Queryable } from '../../../store/database.ts'
import { openStates } from '../../status/states.ts'

export interface Ending {
  /** Whether the service runs the deployed version. */
  isDeployed: boolean
  /** The reason if not; one sentence or two. */
  reason: string
}

const pauseMs = 500
const sayAgainMs = 30_000

interface Seen {
  state: string
  isOpen: boolean
  serviceState: string | null
  reason: string | null
  ahead: number
}

const seenSql = `select d.state, d.state in ${openStates} as "isOpen", w.state as "serviceState",
    coalesce(w.error ->> 'message', d.error ->> 'message') as reason,
    (select count(*)::int from deployment o where o.environment_id = d.environment_id and o.seq < d.seq
      and o.state in ${openStates}) as ahead
  from deployment d left join deployment_service w on w.deployment_id = d.id and w.service_id = $2 where d.id = $1`

const linesSql = `select id, lines from deployment_log where deployment_id = $1 and id > $3
  and (service_id = $2 or service_id is null) and run_id is null order by id limit 100`

interface Chunk {
  id: string
  lines: { text: string }[]
}

const endingOf = (seen: Seen | undefined): Ending => {
  if (seen === undefined) return { isDeployed: false, reason: 'The application was deleted.' }
  const { state, serviceState, reason } = seen
  if (state === 'SUCCEEDED' && serviceState?.endsWith('_ERROR') !== true) return { isDeployed: true, reason: '' }
  if (state === 'CANCELED') return { isDeployed: false, reason: reason ?? 'The deployment was canceled.' }
  return { isDeployed: false, reason: reason ?? 'The deployment failed.' }
}

const waitingFor = ({ ahead }: Seen): string =>
  ahead === 0
    ? 'The deployment waits for a free place on its cluster.'
    : `The deployment waits for ${ahead === 1 ? 'another one' : `${ahead} others`} of this environment.`

/** Yields lines until the deployment has ended. Rejects with the signal's reason. */
export async function* followDeployment(
  db: Queryable,
  clock: Clock,
  { deploymentId, serviceId }: { deploymentId: string; serviceId: string },
  signal: AbortSignal,
): AsyncGenerator<string, Ending> {
  let after = '0'
  let saidMs = clock.monotonicMs()
  let waited = false
  for (;;) {
    // Read before the lines, so that all lines of an ended deployment exist.
    const [seen] = await db.query<Seen>(seenSql, [deploymentId, serviceId])
    for (let chunks: Chunk[] = [{ id: after, lines: [] }]; chunks.length > 0; ) {
      chunks = await db.query<Chunk>(linesSql, [deploymentId, serviceId, after])
      for (const { id, lines } of chunks) {
        for (const { text } of lines) yield text
        after = id
        saidMs = clock.monotonicMs()
      }
    }
    if (seen === undefined || !seen.isOpen) return endingOf(seen)
    const quietMs = clock.monotonicMs() - saidMs
    if (seen.state === 'QUEUED' && quietMs > (waited ? sayAgainMs : 4 * pauseMs)) {
      yield waitingFor(seen)
      waited = true
      saidMs = clock.monotonicMs()
    }
    await clock.sleep(pauseMs, signal)
  }
}
