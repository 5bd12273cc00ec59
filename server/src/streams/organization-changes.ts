/**
 * Changes in an organization, as they are committed, on whichever server: the kind of thing, its id, and what was
 * done; never its content, which a reader gets from the API. Each reader gets only the changes that it may see.
 * Changes are read from the audit log while there are followers, four times a second, so that writes cost nothing more
 * (decision 61); one read serves all readers of a process.
 *
 * Nothing is kept for disconnected readers: the first frame of a stream, and any after which notices may have been
 * lost, says `refetch`. The stream of a reader that is too slow is ended; it begins again with `refetch`.
 */

import type { Area, Place } from '../api/auth/permissions.ts'
import type { Principal } from '../api/auth/principal.ts'
import { mayReadIn } from '../api/operations/access.ts'
import type { Parts } from '../api/parts.ts'
import { stateWords } from '../deployments/status/audit.ts'
import { createLoop } from '../work/loop.ts'
import type { Sink } from './sink.ts'

/** In the words of the audit log. A change of a live state has the part `STATUS`. */
export interface Change {
  kind: string
  part: string | null
  verb: string
  id: string | null
  project_id: string | null
  environment_id: string | null
}

interface Notice extends Change {
  event_id: string
  organization_id: string
}

interface Located extends Place {
  id: string
  organizationId: string
  environmentId: string | null
}

type Locations = ReadonlyMap<string, Located>

interface Follower {
  principal: Principal
  sink: Sink
  /** By subject, so that repeated changes wait only once. */
  waiting: Map<string, Change>
  refetch: boolean
  busy: boolean
}

const periodMs = 250
/** A row becomes readable when it is committed: as long after it was written as its transaction may take. */
const overlapSeconds = 10
/** Different changes that wait for one reader, or for the database to locate them. */
const mostWaiting = 1000

const tooSlow = 'You read more slowly than things change: connect again.'
const away = 'Changes are temporarily unavailable: connect again.'

/** Kinds that belong to the organization itself; everything else is in a project. */
const areas: Readonly<Record<string, Area>> = {
  ORGANIZATION: 'resources',
  CLUSTER: 'clusters',
  CONTAINER_REGISTRY: 'resources',
  HELM_REPOSITORY: 'resources',
  MEMBERS_AND_ROLES: 'members',
  WEBHOOK: 'webhooks',
}

const areaOf = ({ kind, part }: Change): Area => {
  if (part === 'API_TOKEN') return 'tokens'
  if (kind === 'ORGANIZATION' && part === null) return 'settings'
  return areas[kind] ?? 'projects'
}

/** The id by which the change can be located: not every audit row has one. */
const anchorOf = ({ kind, id, project_id: projectId, environment_id: environmentId }: Change): string | null =>
  areas[kind] === undefined ? (environmentId ?? (projectId === null || kind === 'ENVIRONMENT' ? id : projectId)) : null

/** The change as a reader may see it: the change itself, that something in its project changed, or nothing. */
const shownTo = (principal: Principal, change: Change, locations: Locations): Change | null => {
  const area = areaOf(change)
  if (area !== 'projects') {
    const place: Place = { projectId: null, mode: null, clusterId: change.kind === 'CLUSTER' ? change.id : null }
    return mayReadIn(principal, area, place) ? change : null
  }
  const located = locations.get(anchorOf(change) ?? '')
  const projectId = located?.projectId ?? change.project_id
  const placed = { ...change, project_id: projectId, environment_id: located?.environmentId ?? change.environment_id }
  if (located !== undefined) return mayReadIn(principal, area, located) ? placed : null
  const isSeen = mayReadIn(principal, area, { projectId, mode: null, clusterId: null })
  if (principal.role?.grants == null) return isSeen ? placed : null
  // Gone: whether the reader could see it can no longer be known.
  return isSeen && projectId !== null
    ? { kind: 'PROJECT', part: null, verb: 'UPDATE', id: projectId, project_id: projectId, environment_id: null }
    : null
}

const keyOf = ({ kind, part, verb, id, environment_id: environmentId }: Change): string =>
  `${kind} ${part} ${verb} ${id} ${environmentId}`

const locationsSql = `select n.id, n.organization_id as "organizationId",
    case n.kind when 'project' then n.id when 'environment' then n.parent_id else e.parent_id end as "projectId",
    case n.kind when 'environment' then n.id else e.id end as "environmentId",
    coalesce(e.spec, n.spec) ->> 'mode' as mode, coalesce(e.spec, n.spec) ->> 'cluster_id' as "clusterId"
  from node n left join node e on e.id = n.parent_id and e.kind = 'environment'
  where n.id = any($1) and (n.kind in ('project', 'environment') or e.id is not null)`

/**
 * Changes of these organizations since $2 that are not in $3. For services, the event types $4 are left out: they are
 * reported as live states.
 */
const noticesSql = `select id as event_id, organization_id, target_type as kind, sub_target_type as part,
    event_type as verb, target_id as id, project_id, environment_id
  from event where organization_id = any($1) and created_at > $2::timestamptz - interval '${overlapSeconds} s'
    and id <> all($3) and (target_type = 'CLUSTER' or event_type <> all($4)) order by created_at limit ${mostWaiting + 1}`

const tell = async (follower: Follower): Promise<void> => {
  const { sink, waiting } = follower
  if (follower.busy) return
  follower.busy = true
  while ((follower.refetch || waiting.size > 0) && !sink.gone.aborted) {
    const frame = { refetch: follower.refetch, changes: [...waiting.values()] }
    follower.refetch = false
    waiting.clear()
    await sink.send(JSON.stringify(frame))
  }
  follower.busy = false
}

interface Hub {
  follow(principal: Principal, sink: Sink): void
}

type HubParts = Pick<Parts, 'clock' | 'database' | 'log' | 'streams' | 'work'>

/** Reads what was committed in these organizations since it read last, each row once. */
const createReading = (database: HubParts['database']) => {
  /** The rows already read, by id, each with the number of its reading. */
  const known = new Map<string, number>()
  let since: string | undefined
  let readings = 0
  return async (organizationIds: string[]): Promise<Notice[]> => {
    const [clock] = await database.query<{ now: string }>('select clock_timestamp()::text as now')
    const { now } = clock!
    const found = await database.query<Notice>(noticesSql, [
      organizationIds,
      since ?? now,
      [...known.keys()],
      stateWords,
    ])
    since = now
    readings += 1
    for (const { event_id: id } of found) known.set(id, readings)
    const outOfReach = readings - (2 * overlapSeconds * 1000) / periodMs
    for (const [id, reading] of known) {
      if (reading >= outOfReach) break
      known.delete(id)
    }
    return found
  }
}

const createHub = (parts: HubParts, over: () => void): Hub => {
  const { database, log, streams } = parts
  const followers = new Map<string, Set<Follower>>()
  let statuses = new Set<string>()
  const readNotices = createReading(database)
  let isOver = false

  const all = (): Follower[] => [...followers.values()].flatMap((each) => [...each])
  const refetchAll = (): void => {
    statuses.clear()
    for (const follower of all()) {
      follower.refetch = true
      follower.waiting.clear()
      void tell(follower)
    }
  }
  const hearStatus = (environmentId: string): void => {
    if (environmentId === '') {
      refetchAll()
      return
    }
    statuses.add(environmentId)
    if (statuses.size > mostWaiting) refetchAll()
  }
  const leave = (organizationId: string, follower: Follower): void => {
    const mine = followers.get(organizationId)
    if (mine?.delete(follower) !== true || mine.size > 0) return
    followers.delete(organizationId)
    if (followers.size === 0) close()
  }
  const pass = ({ organization_id: organizationId, event_id: _, ...change }: Notice, locations: Locations) => {
    for (const follower of followers.get(organizationId) ?? []) {
      const shown = shownTo(follower.principal, change, locations)
      if (shown === null) continue
      follower.waiting.set(keyOf(shown), shown)
      if (follower.waiting.size > mostWaiting) {
        follower.sink.end(tooSlow)
        leave(organizationId, follower)
      } else void tell(follower)
    }
  }
  const passAll = async (): Promise<void> => {
    const notices = await readNotices([...followers.keys()])
    if (notices.length > mostWaiting) return refetchAll()
    if (notices.length + statuses.size === 0) return
    const found = new Map(notices.map((notice) => [`${notice.organization_id} ${keyOf(notice)}`, notice]))
    // Changes that arrive meanwhile wait for the next turn.
    const changed = statuses
    statuses = new Set()
    const ids = new Set([...changed, ...[...found.values()].flatMap((each) => anchorOf(each) ?? [])])
    const rows = await database.query<Located>(locationsSql, [[...ids]]).catch((error: unknown) => {
      refetchAll()
      throw error
    })
    const locations = new Map(rows.map((row) => [row.id, row]))
    for (const notice of found.values()) pass(notice, locations)
    for (const id of changed) {
      const at = locations.get(id)
      if (at === undefined) continue
      const status = { kind: 'ENVIRONMENT', part: 'STATUS', verb: 'UPDATE', id, environment_id: id }
      pass({ ...status, event_id: '', organization_id: at.organizationId, project_id: at.projectId }, locations)
    }
  }
  const loop = createLoop(parts, {
    name: 'changes of organizations',
    periodMs,
    backoff: { firstMs: 1000, longestMs: 1000 },
    failed: 'changes of organizations could not be sent; retrying',
    run: passAll,
  })
  const ending = streams.changes.subscribe(null, hearStatus)
  const close = (): void => {
    if (isOver) return
    isOver = true
    over()
    void loop.stop()
    ending.then(
      (end) => end(),
      () => {},
    )
  }
  return {
    follow(principal, sink) {
      const { organizationId } = principal
      const follower: Follower = { principal, sink, waiting: new Map(), refetch: false, busy: false }
      const mine = followers.get(organizationId) ?? new Set()
      followers.set(organizationId, mine.add(follower))
      sink.gone.addEventListener('abort', () => leave(organizationId, follower))
      ending.then(
        () => {
          follower.refetch = true
          return tell(follower)
        },
        (error: unknown) => {
          log.warn({ err: error }, 'a stream of changes could not start')
          sink.end(away)
          leave(organizationId, follower)
        },
      )
    },
  }
}

/** Sends a reader what changes in its organization, and may be seen by it, until it disconnects. */
export const followOrganization = (parts: HubParts, principal: Principal, sink: Sink): void => {
  if (sink.gone.aborted) return
  parts.streams.share('changes of organizations', (over) => createHub(parts, over)).follow(principal, sink)
}
