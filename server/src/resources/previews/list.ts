/** The previews of an environment: each pull request that has one, waits for one or gets none, and why. */
import Type from 'typebox'
import { nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { Flag, Nullable, OneOf, Results, Text, Timestamp, Uuid, Whole } from '../../api/operations/schema.ts'
import { timestampSql } from '../../store/tree.ts'
import { previewStates } from './rows.ts'

const Preview = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    pull_request: Type.Object({ number: Whole(1), title: Text(), url: Text(2048), branch: Text(), is_open: Flag() }),
    state: OneOf([...previewStates], { description: 'REFUSED: it gets no environment.' }),
    reason: Nullable(Text(500, { description: 'Why it waits, has expired or is refused.' })),
    environment_id: Nullable(Uuid()),
    git_commit_id: Nullable(Text(64, { description: 'The commit that its environment was deployed with last.' })),
    expires_at: Nullable(Timestamp(), {
      description: 'When its environment is removed, unless there is another push.',
    }),
  },
  { title: 'Preview' },
)

const listSql = `select p.id, ${timestampSql('p.created_at')} as created_at, jsonb_build_object('number', p.number,
    'title', p.title, 'url', p.url, 'branch', p.branch, 'is_open', p.is_open) as pull_request, p.state, p.reason,
    p.environment_id, p.deployed_commit as git_commit_id,
    case when p.environment_id is not null then ${timestampSql('p.expires_at')} end as expires_at
  from preview p where p.origin_id = $1 order by p.created_at, p.id limit 1000`

const problemsSql = `select n.name || ': ' || case
      when r ->> 'git_token_id' is null then 'Pull requests are read with a git token, and this service has none.'
      else s.error ->> 'message' end as text
  from node e join node n on n.parent_id = e.id and n.name_scope = 'service' cross join repository_of(n.spec) r
    left join preview_source s on s.organization_id = e.organization_id
      and repository_key(s.url) = repository_key(r ->> 'url') and s.git_token_id::text = r ->> 'git_token_id'
  where e.id = $1 and is_previewed(n.kind, n.spec, e.spec) and (r ->> 'git_token_id' is null or s.error is not null)
  order by n.created_at, n.id limit 100`

export const listPreviews: Operation = operation({
  id: 'listEnvironmentPreviews',
  ...reading,
  path: '/environment/{environmentId}/preview',
  tag: 'Environment Main Calls',
  summary: 'List the previews of an environment: one for each open pull request to a branch that its services follow',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  answer: Type.Object({
    ...Results(Preview).properties,
    problems: Type.Array(Text(1000), { description: 'Why pull requests of a service are not seen.' }),
  }),
  async run({ db, node }) {
    const results = await db.query<Type.Static<typeof Preview>>(listSql, [node.id])
    const problems = await db.query<{ text: string }>(problemsSql, [node.id])
    return { results, problems: problems.map(({ text }) => text) }
  },
})
