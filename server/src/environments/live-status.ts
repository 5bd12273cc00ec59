/**
 * The live statuses of an environment, or of all environments of a project: as server-sent events and on the websocket
 * of the public API. Each message is what the operations of `environments/status.ts` would return.
 */
import Type from 'typebox'
import { type Place, sees } from '../api/auth/permissions.ts'
import { isSelective, rightsOf } from '../api/operations/access.ts'
import { type Context, nodeInPath, type Operation, operation, reading } from '../api/operations/operation.ts'
import { Maybe, Text } from '../api/operations/schema.ts'
import type { Parts } from '../api/parts.ts'
import { type Placement, readPlacement } from '../deployments/request/stage-rows.ts'
import type { Queryable } from '../store/database.ts'
import { followShared, type Shared, type View } from '../streams/shared-read.ts'
import { endAway, eventSink, lastEventId, type Sink, socketSink } from '../streams/sink.ts'
import { executionOf } from './deployment-log-lines.ts'
import { pastStatuses } from './past-statuses.ts'
import { type EnvironmentRead, groupByType, readEnvironment, withStages } from './status.ts'
import { EnvironmentOrProject, environmentOrProject } from './stream-query.ts'

interface Live extends EnvironmentRead {
  placement: Placement
}

const isThere = async (db: Queryable, id: string): Promise<boolean> =>
  (await db.query('select 1 from node where id = $1', [id])).length > 0

const ofEnvironment = ({ database, deployments, streams }: Parts, id: string): Shared<Live> => ({
  subscribe: (changed) => streams.changes.subscribe(id, changed),
  async read() {
    const live = { ...(await readEnvironment(deployments, database, id)), placement: await readPlacement(database, id) }
    return (await isThere(database, id)) ? live : null
  },
})

const asStatuses: View<Live> = {
  name: 'statuses',
  show: ({ environment, services }) => ({ environment, ...groupByType(services) }),
}

const asStages: View<Live> = { name: 'stages', show: (live) => withStages(live, live.placement) }

const followEnvironment = ({ parts, node }: Context, view: View<Live>, sink: Sink, has?: string): void =>
  followShared(parts, `environment ${node.id}`, () => ofEnvironment(parts, node.id), { sink, view, has })

/** Where an environment is, for roles that can see only some. */
interface Placed {
  id: string
  place: Place
}

interface PlacedRow {
  id: string
  mode: Place['mode']
  clusterId: string | null
}

const readEnvironments = async (db: Queryable, projectId: string): Promise<Placed[] | null> => {
  const rows = await db.query<PlacedRow>(
    `select id, spec ->> 'mode' as mode, spec ->> 'cluster_id' as "clusterId" from node
     where parent_id = $1 and kind = 'environment' order by created_at, id`,
    [projectId],
  )
  if (rows.length === 0 && !(await isThere(db, projectId))) return null
  return rows.map(({ id, mode, clusterId }) => ({ id, place: { projectId, mode, clusterId } }))
}

/** Every environment of a project with the result of `readOne`; only changed ones are read again. */
export const ofProject = <T>(
  { database, streams }: Parts,
  projectId: string,
  readOne: (environmentId: string) => Promise<T>,
): Shared<(Placed & { value: T })[]> => {
  const kept = new Map<string, T>()
  const unknownIds = new Set<string>()
  let changed = new Set<string>()
  let all = true
  const refresh = async (ids: readonly string[], which: ReadonlySet<string>, everything: boolean): Promise<void> => {
    for (const id of kept.keys()) if (!ids.includes(id)) kept.delete(id)
    for (const id of ids) if (everything || which.has(id) || !kept.has(id)) kept.set(id, await readOne(id))
    for (const id of which) if (!kept.has(id)) unknownIds.add(id)
  }
  return {
    subscribe: (tell) =>
      streams.changes.subscribe(null, (id) => {
        if (unknownIds.has(id)) return
        if (id === '') all = true
        else changed.add(id)
        tell()
      }),
    async read(sweep) {
      const [which, everything] = [changed, all || sweep]
      changed = new Set()
      all = false
      const found = await readEnvironments(database, projectId)
      if (found === null) return null
      await refresh(
        found.map(({ id }) => id),
        which,
        everything,
      )
      return found.map((placed) => ({ ...placed, value: kept.get(placed.id)! }))
    },
  }
}

/** Shows only what the caller's role may see: when that changes, the client must connect again. */
export const seenBy = <T>({ principal }: Context, show: (values: T[]) => unknown): View<(Placed & { value: T })[]> => {
  const values = (all: (Placed & { value: T })[]) => all.map(({ value }) => value)
  if (!isSelective(principal)) return { name: 'all', show: (all) => show(values(all)) }
  const grants = principal.role!.grants!
  const seen = (all: (Placed & { value: T })[]) => all.filter(({ place }) => sees(grants, place))
  return { name: `seen by ${rightsOf(principal)}`, show: (all) => show(values(seen(all))) }
}

const followProject = (context: Context, sink: Sink): void => {
  const { parts, node } = context
  const readOne = async (id: string) => (await readEnvironment(parts.deployments, parts.database, id)).environment
  const view = seenBy<EnvironmentRead['environment']>(context, (results) => ({ results }))
  followShared(parts, `project ${node.id}`, () => ofProject(parts, node.id, readOne), { sink, view })
}

const statusEvents = operation({
  id: 'streamEnvironmentStatuses',
  ...reading,
  path: '/environment/{environmentId}/statuses/stream',
  tag: 'Environment Main Calls',
  summary: 'Follow the status of an environment and of every service in it, as server-sent events',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  produces: 'text/event-stream',
  async run(context) {
    const sink = eventSink(context, 'the statuses of this environment, now and on every change')
    followEnvironment(context, asStatuses, sink, lastEventId(context))
  },
})

/** A finished execution is sent once, with its final state. */
const sendPast = async (context: Context, sink: Sink): Promise<boolean> => {
  const execution = executionOf(context)
  if (execution === null) return false
  const past = execution === undefined ? null : await pastStatuses(context, execution)
  if (past === 'newest') return false
  if (past === null) sink.end('This environment has no such execution.')
  else await sink.send(JSON.stringify(past))
  return true
}

const connect = async (context: Context, sink: Sink): Promise<void> => {
  if (context.node.kind === 'project') followProject(context, sink)
  else if (!(await sendPast(context, sink))) followEnvironment(context, asStages, sink)
}

const statusSocket = operation({
  id: 'handleDeploymentStatus',
  ...reading,
  path: '/deployment/status',
  tag: 'Websocket',
  summary: 'Follow the statuses of an environment by deployment stage, or those of all environments of a project',
  area: 'projects',
  owner: environmentOrProject,
  query: Type.Object({ ...EnvironmentOrProject, version: Maybe(Text(200)) }),
  produces: 'websocket',
  socket(context, socket) {
    const sink = socketSink(socket)
    connect(context, sink).catch((error: unknown) => {
      context.parts.log.warn({ err: error }, 'a status stream ended early')
      endAway(sink, 'status')
    })
  },
})

export const liveStatusOperations: Operation[] = [statusEvents, statusSocket]
