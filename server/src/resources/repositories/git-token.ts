/** Git tokens give access to private repositories. The token itself is sealed and never answered. */
import Type from 'typebox'
import type { Context, Operation } from '../../api/operations/operation.ts'
import { type Change, resource, type Spec } from '../../api/operations/resource.ts'
import { List, Maybe, Name, OneOf, Secret, Text } from '../../api/operations/schema.ts'
import { originOf, usualOrigins } from '../../deployments/credentials/origins.ts'
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

/** The default API address of a type is replaced with the type, unless an address is sent. */
const apiUrlOf = (spec: Spec, { body }: Context, { previous }: Change): unknown => {
  const isOfOldType = previous !== null && spec.git_api_url === apiUrls[String(previous.spec.type)]
  const kept = isOfOldType && body.git_api_url === undefined ? undefined : spec.git_api_url
  return kept ?? apiUrls[String(spec.type)]!
}

const isSame = (one: readonly string[], other: readonly string[]): boolean =>
  one.length === other.length && one.every((each) => other.includes(each))

/** The sent ones, else the former ones, unless they belonged only to the former API address. */
const originsOf = (apiUrl: string, { body }: Context, { previous }: Change): string[] => {
  const usual = usualOrigins(apiUrl)
  if (body.repository_origins !== undefined) {
    const sent = (body.repository_origins as string[]).map((text, index) => {
      const origin = originOf(text)
      if (origin === null || `${origin}/` !== URL.parse(text)?.href)
        throw invalidField(`/repository_origins/${index}`, 'must be an origin, such as https://git.example.com:8443')
      return origin
    })
    return sent.length === 0 ? usual : [...new Set(sent)]
  }
  const kept = (previous?.spec.repository_origins ?? []) as string[]
  const isUsual = previous === null || isSame(kept, usualOrigins(String(previous.spec.git_api_url)))
  return isUsual ? usual : kept
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
  const origins = originsOf(String(url), context, change)
  const kept = (previous?.spec.repository_origins ?? []) as string[]
  if (previous !== null && context.body.token === undefined && origins.some((origin) => !kept.includes(origin)))
    throw invalidField('/token', 'must be sent again when an origin is added to repository_origins')
  // Another host has another token: approvals of the old one do not apply to it.
  const urls = moved ? [] : (previous?.spec.repository_urls ?? [])
  return { ...spec, git_api_url: url, repository_origins: origins, repository_urls: urls }
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
    repository_origins: Maybe(
      List(Text(300), 20, {
        description:
          'The origins (scheme, host and port) of repositories that the token may be sent to; default that of `git_api_url` (for api.github.com, https://github.com; for api.bitbucket.org, https://bitbucket.org). An addition needs the token again.',
      }),
    ),
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
    repository_origins: List(Text(300), 20),
    repository_urls: List(Text(2048), 500, {
      description: 'Repositories elsewhere that administrators of the organization have used the token for.',
    }),
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
