/** Git tokens: what private repositories are read with. The text is sealed and never answered. */
import Type from 'typebox'
import { resource, type Spec } from '../api/resource.ts'
import { Computed, Maybe, Name, OneOf, Secret, Text, Whole } from '../api/schema.ts'
import { conflict, invalidField } from '../lib/errors.ts'

const apiUrls: Record<string, string> = {
  GITHUB: 'https://api.github.com',
  GITLAB: 'https://gitlab.com/api/v4',
  BITBUCKET: 'https://api.bitbucket.org/2.0',
}

const validate = (spec: Spec): Spec => {
  const type = String(spec.type)
  if (type === 'BITBUCKET' && (typeof spec.workspace !== 'string' || spec.workspace === ''))
    throw invalidField('/workspace', 'is required for BITBUCKET')
  const url = spec.git_api_url ?? apiUrls[type]!
  if (!/^https?:\/\/[^\s]+$/.test(String(url)) || !URL.canParse(String(url)))
    throw invalidField('/git_api_url', 'must be an http or https address')
  return { ...spec, git_api_url: url }
}

export const gitToken = resource({
  kind: 'git_token',
  parent: { kind: 'organization', param: 'organizationId' },
  tag: 'Organization Main Calls',
  words: ['a git token', 'git tokens'],
  collection: '/organization/{organizationId}/gitToken',
  item: '/organization/{organizationId}/gitToken/{gitTokenId}',
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
    expired_at: Maybe(Type.String({ format: 'date', pattern: '^\\d{4}-\\d{2}-\\d{2}$', maxLength: 10 })),
  }),
  record: {
    type: OneOf(['BITBUCKET', 'GITHUB', 'GITLAB']),
    git_api_url: Text(2048),
    associated_services_count: Computed(Whole(0)),
  },
  columns: {
    associated_services_count: `(select count(*) from node s
      where s.spec -> 'git_repository' ->> 'git_token_id' is not null
        and s.spec -> 'git_repository' ->> 'git_token_id' = n.id::text)`,
  },
  validate,
  audit: { target: 'ORGANIZATION', subTarget: 'GIT_TOKEN' },
  async onDelete(tx, { node }) {
    const [user] = await tx.query(
      `select 1 from node s where s.spec -> 'git_repository' ->> 'git_token_id' is not null
         and s.spec -> 'git_repository' ->> 'git_token_id' = $1 limit 1`,
      [node.id],
    )
    if (user !== undefined) throw conflict('git_token_in_use', 'A service still uses this git token.')
    return undefined
  },
})
