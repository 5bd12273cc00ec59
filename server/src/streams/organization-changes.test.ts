/** Which readers get which changes, and how readers recover that miss some. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { standIn } from '../../test/support/stand-in.ts'
import { type Heard, hearSocket } from '../../test/support/streams.ts'
import { until } from '../../test/support/until.ts'
import type { Principal } from '../api/auth/principal.ts'
import { newId } from '../lib/ids.ts'
import { usualLimits } from '../limits/limits.ts'
import { type Change, followOrganization } from './organization-changes.ts'
import type { Sink } from './sink.ts'

const api = await startApi({ settings: { limits: { ...usualLimits, streams: 0, streamsPerToken: 0 } } })
const { call, token, url, organizationId, database, parts } = api

const changesIn = ({ all }: Pick<Heard, 'all'>): Change[] => all.flatMap((frame: Json) => frame.changes)
const wordsOf = (heard: Pick<Heard, 'all'>): string[] =>
  changesIn(heard).map(({ kind, part, verb, id }) => `${verb} ${kind}${part === null ? '' : `/${part}`} ${id}`)

/** A stream that has begun. */
const hear = async (of = organizationId, by = token) => {
  const heard = await hearSocket(`${url}/organization/${of}/changes`, by)
  await until(() => heard.all.length > 0, { what: 'the stream to begin' })
  assert.deepEqual(heard.all[0], { refetch: true, changes: [] })
  return heard
}

const hears = (heard: Pick<Heard, 'all'>, words: string): Promise<unknown> =>
  until(() => wordsOf(heard).includes(words), { what: words })

test('writes of every kind and live states are sent, with ids and words and nothing else', async () => {
  const heard = await hear()
  const { projectId, environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  await call('POST', '/variable', {
    key: 'GREETING',
    value: 'a secret word',
    is_secret: true,
    variable_scope: 'ENVIRONMENT',
    variable_parent_id: environmentId,
  })
  const made = await call('POST', `/organization/${organizationId}/apiToken`, { name: 'another', scopes: ['Read'] })
  await call('POST', `/application/${id}/deploy`)
  await database.query(
    `insert into event (id, organization_id, event_type, target_type, target_id, origin, triggered_by)
     select gen_random_uuid(), $1, 'DEPLOYED', type, $2, 'API', 'a test' from unnest($3::text[]) type`,
    [organizationId, id, ['APPLICATION', 'CLUSTER']],
  )
  await call('DELETE', `/organization/${organizationId}/apiToken/${made.body.id}`)
  await hears(heard, `CREATE PROJECT ${projectId}`)
  await hears(heard, `CREATE ENVIRONMENT ${environmentId}`)
  await hears(heard, `CREATE APPLICATION ${id}`)
  await hears(heard, `TRIGGER_DEPLOY APPLICATION ${id}`)
  await hears(heard, `UPDATE ENVIRONMENT/STATUS ${environmentId}`)
  await hears(heard, `DEPLOYED CLUSTER ${id}`)
  await hears(heard, `CREATE ORGANIZATION/API_TOKEN ${made.body.id}`)
  await hears(heard, `DELETE ORGANIZATION/API_TOKEN ${made.body.id}`)
  // Progress of deployments is part of the live state; clusters have none.
  assert.doesNotMatch(wordsOf(heard).join(), /(DEPLOY_QUEUED|DEPLOYED) APPLICATION/)
  const variable = changesIn(heard).find(({ part }) => part === 'VARIABLE' || part === 'SECRET')
  assert.equal(variable?.environment_id, environmentId)
  assert.doesNotMatch(JSON.stringify(heard.all), /secret word|GREETING|another/)
  assert.deepEqual([...new Set(changesIn(heard).flatMap((change) => Object.keys(change)))].sort(), [
    'environment_id',
    'id',
    'kind',
    'part',
    'project_id',
    'verb',
  ])
  heard.close()
})

test('changes of another organization are not sent, and its stream is refused', async () => {
  const other = await api.newOrganization()
  const mine = await hear()
  const theirs = await hear(other.id, other.token)
  await assert.rejects(hearSocket(`${url}/organization/${organizationId}/changes`, other.token), /404/)
  const { projectId } = await newPlace(api)
  const made = await api.as(other.token)('POST', `/organization/${other.id}/project`, { name: 'theirs' })
  await hears(mine, `CREATE PROJECT ${projectId}`)
  await hears(theirs, `CREATE PROJECT ${made.body.id}`)
  assert.ok(!JSON.stringify(mine.all).includes(made.body.id))
  assert.ok(!JSON.stringify(theirs.all).includes(projectId))
  mine.close()
  theirs.close()
})

const modes = ['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION']
const roles = `/organization/${organizationId}/customRole`

/** A role that sees one project without its production. */
const setRole = async (id: string, projectId: string, production: string): Promise<void> => {
  const { cluster_permissions, project_permissions } = (await call('GET', `${roles}/${id}`)).body
  const permissions = modes.map((mode) => ({
    environment_type: mode,
    permission: mode === 'PRODUCTION' ? production : 'VIEWER',
  }))
  const projects = project_permissions.map((each: Json) =>
    each.project_id === projectId ? { ...each, permissions } : each,
  )
  const body = { name: 'part', cluster_permissions, project_permissions: projects }
  assert.equal((await call('PUT', `${roles}/${id}`, body)).status, 200)
}

test('a custom role hears of what it sees, and its stream ends when its rights change', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const hidden = (await call('POST', `/project/${projectId}/environment`, { name: 'live', mode: 'PRODUCTION' })).body.id
  const elsewhere = await newPlace(api)
  const role = (await call('POST', roles, { name: 'part' })).body.id
  await setRole(role, projectId, 'NO_ACCESS')
  const holder = await call('POST', `/organization/${organizationId}/apiToken`, { name: 'part', role_id: role })
  const heard = await hear(organizationId, holder.body.token)
  const unseen = await newApplication(api, hidden)
  await newApplication(api, elsewhere.environmentId)
  await call('POST', `/organization/${organizationId}/webhook`, { kind: 'STANDARD', target_url: 'https://example.org' })
  await call('POST', `/application/${unseen.id}/deploy`)
  for (const parent of [hidden, environmentId])
    await call('POST', '/variable', {
      ...{ key: `OF_${parent}`.replaceAll('-', '_'), value: 'x', is_secret: false },
      ...{ variable_scope: 'ENVIRONMENT', variable_parent_id: parent },
    })
  await call('DELETE', `/environment/${hidden}`)
  const seen = await newApplication(api, environmentId)
  await hears(heard, `CREATE APPLICATION ${seen.id}`)
  assert.ok(changesIn(heard).some(({ part, id }) => part === 'VARIABLE' && id === environmentId))
  const text = JSON.stringify(heard.all)
  for (const id of [hidden, unseen.id, elsewhere.projectId, elsewhere.environmentId]) assert.ok(!text.includes(id), id)
  assert.ok(!text.includes('WEBHOOK'))
  await setRole(role, projectId, 'VIEWER')
  await until(() => heard.code === 1008, { what: 'the stream to end' })
})

test('a stream ends with its token', async () => {
  const made = await call('POST', `/organization/${organizationId}/apiToken`, { name: 'short', scopes: ['Read'] })
  const heard = await hear(organizationId, made.body.token)
  await call('DELETE', `/organization/${organizationId}/apiToken/${made.body.id}`)
  await until(() => heard.code === 1008, { what: 'the stream to end' })
})

test('after the connection for notifications was lost, readers get a refetch, and later changes', async () => {
  const heard = await hear()
  await database.query(
    `select pg_terminate_backend(pid) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen%'`,
  )
  await until(() => heard.all.filter(({ refetch }) => refetch === true).length > 1, { what: 'to be told' })
  const { projectId } = await newPlace(api)
  await hears(heard, `CREATE PROJECT ${projectId}`)
  heard.close()
})

test('a reader that takes nothing is ended, and costs the others nothing', async () => {
  const leaving = new AbortController()
  const ends: (string | undefined)[] = []
  const sent: string[] = []
  const stuck: Sink = {
    gone: leaving.signal,
    send: (text) => {
      sent.push(text)
      return new Promise(() => {})
    },
    end: (problem) => void ends.push(problem),
  }
  const principal = standIn<Principal>({ organizationId, role: null, account: null })
  followOrganization(parts, principal, stuck)
  const heard = await hear()
  await until(() => sent.length > 0, { what: 'the first frame' })
  const write = (ids: readonly string[]) =>
    database.query(
      `insert into event (id, organization_id, event_type, target_type, target_id, origin, triggered_by)
       select gen_random_uuid(), $1, 'UPDATE', 'PROJECT', id, 'API', 'a test' from unnest($2::uuid[]) id`,
      [organizationId, ids],
    )
  const same = Array.from({ length: 900 }, newId)
  // Repeated changes of the same thing wait only once.
  for (let round = 1; round <= 3; round += 1) {
    await write(same)
    const told = () => changesIn(heard).filter(({ id }) => id === same.at(-1)).length
    await until(() => told() === round, { what: `round ${round}` })
  }
  const last = newId()
  await write([last])
  await hears(heard, `UPDATE PROJECT ${last}`)
  assert.deepEqual([ends, sent.length], [[], 1])
  const more = Array.from({ length: 200 }, newId)
  await write(more)
  await until(() => ends.length > 0, { what: 'the stuck reader to be ended' })
  assert.match(ends[0] ?? '', /more slowly than things change/)
  await hears(heard, `UPDATE PROJECT ${more.at(-1)}`)
  heard.close()
})
