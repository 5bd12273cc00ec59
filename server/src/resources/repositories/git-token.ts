/** Git tokens give access to private repositories. The token itself is sealed and never answered. */
import Type from 'typebox'
import type { Context, Operation } from '../../api/operations/operation.ts'
import { type Change, resource, type Spec } from '../../api/operations/resource.ts'
import { Maybe, Name, OneOf, Secret, Text } from '../../api/operations/schema.ts'
import { conflict, invalidField } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { associated, refuseInUse, UsersCount, usersCount } from '../references.ts'

const tag = 'Organization Main Calls'
const collection = '/organization/{organizationId}/gitToken'
const item = `${collection}/{gitTokenId}`

const apiUrls: Record<string, string> = {
  GITHUB: 'https://api.github.com',
  GITLAB: 'https://gitlab.com/api/v4',
  BITBUCKET: 'https://api.bitbucket.org/2.0',
}

/** The public host of a type is left with the type, unless another address is sent. */
const apiUrlOf = (spec: Spec, { body }: Context, { previous }: Change): unknown => {
  const isOfOldType = previous !== null && spec.git_api_url === apiUrls[String(previous.spec.type)]
  const kept = isOfOldType && body.git_api_url === undefined ? undefined : spec.git_api_url
  return kept ?? apiUrls[String(spec.type)]!
}

const validate = (spec: Spec, context: Context, change: Change): Spec => {
  const { previous } = change
  const type = String(spec.type)
  if (type === 'BITBUCKET' && (typeof spec.workspace !== 'string' || spec.workspace === ''))
    throw invalidField('/workspace', 'is required for BITBUCKET')
  const url = apiUrlOf(spec, context, change)
  if (!/^https?:\/\/[^\s]+$/.test(String(url)) || !URL.canParse(String(url)))
    throw invalidField('/git_api_url', 'must be an http or https address')
  // A stored token is never sent to a host other than the one it was given for.
  const moved = previous !== null && new URL(String(url)).origin !== new URL(String(previous.spec.git_api_url)).origin
  if (moved && context.body.token === undefined)
    throw invalidField('/token', 'must be sent again when the host of git_api_url changes')
  return { ...spec, git_api_url: url }
}

const refuseWhileHooked = async (tx: Queryable, { node, principal }: Context): Promise<void> => {
  const rows = await tx.query(
    `select 1 from node where organization_id = $1 and kind = 'git_webhook' and spec ->> 'git_token_id' = $2 limit 1`,
    [principal.organizationId, node.id],
  )
  if (rows.length > 0)
    throw conflict('git_token_in_use', 'A git webhook is for this git token: delete the webhook first.')
}

const gitToken = resource({
  kind: 'git_token',
  area: 'resources',
  parent: { kind: 'organization', param: 'organizationId' },
  tag,
  words: ['a git token', 'git tokens'],
  collection,
  item,
  param: 'gitTokenId',
  ids: {
    list: 'listOrganizationGitTokens',
    create: 'createGitToken',
    read: 'getOrganizationGitToken',
    edit: 'editGitToken',
    remove: 'deleteGitToken',
  },
  reads: 'sensitive',
  spec: Type.Object({
    name: Name(),
    description: Maybe(Text(2048)),
    type: OneOf(['BITBUCKET', 'GITHUB', 'GITLAB']),
    token: Secret(4096),
    workspace: Maybe(Text()),
    git_api_url: Maybe(Text(2048)),
    expired_at: Maybe(
      Type.String({
        format: 'date',
        pattern: '^\\d{4}-\\d{2}-\\d{2}$',
        maxLength: 10,
        description:
          'The last day (UTC) on which the token is used. Afterwards deployments fail with the reason; in the week before, their logs warn.',
      }),
    ),
  }),
  record: {
    type: OneOf(['BITBUCKET', 'GITHUB', 'GITLAB']),
    git_api_url: Text(2048),
    associated_services_count: UsersCount(),
  },
  columns: { associated_services_count: usersCount },
  validate,
  audit: { target: 'ORGANIZATION', subTarget: 'GIT_TOKEN' },
  async onDelete(tx, context) {
    await refuseWhileHooked(tx, context)
    return refuseInUse('git_token_in_use', 'A service still uses this git token: change or delete it first.')(
      tx,
      context,
    )
  },
})

export const gitTokenOperations: Operation[] = [
  ...gitToken.operations,
  associated({
    id: 'getGitTokenAssociatedServices',
    form: 'associatedServices',
    tag,
    item,
    words: 'a git token',
    owner: gitToken.owner,
    reads: 'sensitive',
  }),
]
