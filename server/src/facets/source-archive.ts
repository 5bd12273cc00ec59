/**
 * A directory instead of a push: an archive becomes a commit on the deployed branch of the repository that the
 * application has on this server, and is deployed. Asked for on purpose, so nothing in the commit can prevent it.
 */
import Type from 'typebox'
import { actorOf } from '../api/auth/principal.ts'
import { findOwn, maxPushBytes, receiveMs, receiverOf } from '../api/git-http/receive.ts'
import { archiveType, type Context, type Operation, operation } from '../api/operations/operation.ts'
import { Maybe, Text, Timestamp, Uuid } from '../api/operations/schema.ts'
import { commitArchive } from '../builds/pushed/archive.ts'
import type { Accepted, OwnApplication } from '../deployments/sources/git/own.ts'
import { type Facet, itemOf, onService, type Self } from './facet.ts'

const Query = Type.Object({
  message: Maybe(Text(1000, { description: 'The message of the commit; default `Deploy from an archive`.' })),
})

const Answer = Type.Object(
  { git_commit_id: Text(64), deployment_request_id: Uuid(), execution_id: Text(), created_at: Timestamp() },
  { title: 'DeployedSource' },
)

interface Made {
  commitId: string
  accepted: NonNullable<Accepted>
}

type Sender = Pick<Context, 'parts' | 'principal' | 'upload' | 'userAgent' | 'requestId'>

const take = (sender: Sender, application: OwnApplication, message: string): Promise<Made> => {
  const { parts, principal, upload, userAgent, requestId } = sender
  const name = `refs/heads/${application.branch}`
  return receiverOf(parts)(application, AbortSignal.timeout(receiveMs), async ({ intake, refs, store, accept }) => {
    const head = refs.find((ref) => ref.name === name)
    const commitId = await commitArchive(intake, upload, {
      author: principal.name,
      at: parts.clock.now(),
      message,
      parent: head?.objectId ?? null,
      maxBytes: maxPushBytes(parts),
      timeoutMs: receiveMs,
    })
    const pack = await store([commitId])
    const accepted = await accept({
      refs: [{ name, to: { objectId: commitId, commitId, baseId: head?.shownId ?? null } }],
      pack,
      head: { commitId, reason: null },
      pusher: principal.name,
      by: { ...actorOf(principal), userAgent, requestId, how: 'archive' },
    })
    return { commitId, accepted: accepted! }
  })
}

const deploySource = (self: Self): Operation =>
  operation({
    id: `deploy${self.noun}Source`,
    method: 'POST',
    path: `${itemOf(self)}/source`,
    tag: `${self.noun} Actions`,
    summary: `Deploy a directory: a tar archive with gzip becomes a commit in the repository of ${self.nounWithArticle} on this server`,
    // The code of a service can read its secrets, which users who may only deploy must not see.
    scope: 'Write',
    ...onService(self),
    cluster: 'ENV_CREATOR',
    query: Query,
    consumes: archiveType,
    status: 202,
    answer: Answer,
    async run(context) {
      const { parts, node, query } = context
      const application = await findOwn(parts, node.id)
      const { commitId, accepted } = await take(context, application, query.message || 'Deploy from an archive')
      return {
        git_commit_id: commitId,
        deployment_request_id: accepted.deploymentId,
        execution_id: accepted.executionId,
        created_at: accepted.createdAt,
      }
    },
  })

export const sourceArchive: Facet = (self) => [deploySource(self)]
