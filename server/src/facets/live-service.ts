/** The live status of one service, as server-sent events: each is what a read would return. */
import { type Context, type Operation, operation } from '../api/operations/operation.ts'
import type { Parts } from '../api/parts.ts'
import type { ServiceStatus } from '../deployments/deployments.ts'
import { followShared, type Shared, type View } from '../streams/shared-read.ts'
import { eventSink, lastEventId } from '../streams/sink.ts'
import { itemOf, ownerOf, type Self } from './self.ts'

const ofService = (
  { database, deployments, streams }: Parts,
  environmentId: string,
  id: string,
): Shared<ServiceStatus> => ({
  subscribe: (changed) => streams.changes.subscribe(environmentId, changed),
  read: async () => (await deployments.statuses(database, [id]))[0] ?? null,
})

/** `viewFor` says in which form the caller wants the status. */
export const liveService = (self: Self, viewFor: (context: Context) => View<ServiceStatus>): Operation =>
  operation({
    id: `stream${self.noun}Status`,
    method: 'GET',
    path: `${itemOf(self)}/status/stream`,
    tag: `${self.noun} Main Calls`,
    summary: `Follow the status of ${self.nounWithArticle}, as server-sent events`,
    scope: 'Read',
    area: 'projects',
    owner: ownerOf(self),
    status: 200,
    produces: 'text/event-stream',
    async run(context) {
      const { parts, node } = context
      const view = viewFor(context)
      const sink = eventSink(context, 'the status of this service, now and on every change')
      followShared(parts, `service ${node.id}`, () => ofService(parts, node.parentId!, node.id), {
        sink,
        view,
        has: lastEventId(context),
      })
    },
  })
