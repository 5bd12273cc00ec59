import assert from 'node:assert/strict'
import { test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { newId } from '../../lib/ids.ts'
import { migrate } from '../../store/database.ts'
import { originOf, reaches, usualOrigins } from './origins.ts'

test('an origin is a scheme, a host and a port; nothing but http has one', () => {
  const cases: [string, string | null][] = [
    ['https://Git.Example/a/b.git', 'https://git.example'],
    ['https://git.example:443/a', 'https://git.example'],
    ['https://git.example:8443/a', 'https://git.example:8443'],
    ['http://git.example/a', 'http://git.example'],
    ['ssh://git@git.example/a', null],
    ['git@git.example:a/b.git', null],
    ['slipway:internal', null],
  ]
  for (const [url, origin] of cases) assert.equal(originOf(url), origin, url)
  assert.deepEqual(usualOrigins('https://api.github.com'), ['https://github.com'])
  // A name that begins with `api.` has no other form.
  assert.deepEqual(usualOrigins('https://api.git.example/v1'), ['https://api.git.example'])
  const reach = { origins: ['https://git.example'], urls: ['https://other.example/a.git'] }
  assert.ok(reaches(reach, 'https://git.example/any') && reaches(reach, 'https://other.example/a.git'))
  for (const url of ['https://other.example/b.git', 'http://git.example/any', 'https://git.example.evil/any'])
    assert.equal(reaches(reach, url), false, url)
})

const undo = [
  'drop function reserved_for',
  'drop table reserved_host',
  `delete from migration where name like '0042-%'`,
]

test('tokens of before are for the origin of their API and what services use elsewhere, not for its other ports', async () => {
  const database = await testDatabase()
  const add = async (kind: string, organizationId: string, spec: object, scope = kind): Promise<string> => {
    const id = newId()
    await database.query(
      `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
       values ($1, $2, $3, $4, $5, $1::uuid::text, $6)`,
      [
        id,
        kind === 'organization' ? id : organizationId,
        kind,
        kind === 'organization' ? null : organizationId,
        scope,
        spec,
      ],
    )
    return id
  }
  const organizationId = await add('organization', '', {})
  const token = (git_api_url: string) => add('git_token', organizationId, { type: 'GITLAB', git_api_url })
  const own = await token('https://git.example:443/api/v4')
  const hub = await token('https://api.github.com')
  const named = await token('https://api.git.example/v1')
  const use = (url: string, git_token_id: string) =>
    add('job', organizationId, { source: { docker: { git_repository: { url, git_token_id } } } }, 'service')
  for (const url of ['https://git.example/a', 'http://git.example:24500/a', 'https://mirror.example/a'])
    await use(url, own.toUpperCase())
  await use('https://github.com/a/b', hub)
  for (const url of ['https://git.example/a', 'https://git.example:9/a']) await use(url, named)
  for (const statement of undo) await database.query(statement)
  assert.deepEqual(await migrate(database), ['0042-walls.sql'])
  const read = async (id: string) =>
    (
      await database.query<{ origins: string[]; urls: string[] }>(
        `select spec -> 'repository_origins' as origins, spec -> 'repository_urls' as urls from node where id = $1`,
        [id],
      )
    )[0]
  assert.deepEqual(await read(own), { origins: ['https://git.example'], urls: ['https://mirror.example/a'] })
  assert.deepEqual(await read(hub), { origins: ['https://github.com'], urls: [] })
  assert.deepEqual(await read(named), { origins: ['https://api.git.example'], urls: ['https://git.example/a'] })
})
