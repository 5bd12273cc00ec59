import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { loadEffectiveVariables } from '../../test/support/effective-variables.ts'
import { ApiError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import type { Database } from '../store/database.ts'
import { createSealer } from '../store/keys/seal.ts'
import { createAlias, createOverride, createVariable, deleteVariable, editVariable } from './change.ts'
import { loadPlaceInContext, type VariablePlace } from './places.ts'
import { findVariable, listVisible } from './records.ts'

const folder = mkdtempSync(join(tmpdir(), 'slipway-variables-'))
const db: Database = await testDatabase()
const sealer = await createSealer({ database: db, masterKeyFile: join(folder, 'master') })
after(() => rm(folder, { recursive: true, force: true }))

const insert = async (
  kind: string,
  parentId: string | null,
  organizationId: string,
  spec: object = {},
): Promise<string> => {
  const id = newId()
  const scope = kind === 'application' || kind === 'database' ? 'service' : kind
  await db.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec) values ($1, $2, $3, $4, $5, $6, $7)`,
    [id, organizationId, kind, parentId, scope, `${kind} ${id}`, spec],
  )
  return id
}

/** A project, an environment and an application of an organization of their own. */
const tree = async () => {
  const organization = newId()
  await db.query(`insert into node (id, organization_id, kind, name_scope) values ($1, $1, 'organization', 'x')`, [
    organization,
  ])
  const project = await insert('project', organization, organization)
  const environment = await insert('environment', project, organization, { mode: 'STAGING' })
  const application = await insert('application', environment, organization)
  const place = async (id: string) => (await loadPlaceInContext(db, id))!
  return {
    organization,
    project: await place(project),
    environment: await place(environment),
    application: await place(application),
  }
}

const set = (place: VariablePlace, key: string, value: string, isSecret = false, more = {}) =>
  createVariable(db, sealer, place, { key, value, isSecret, ...more })
const env = async (place: VariablePlace) => (await loadEffectiveVariables(db, sealer, place.id)).env
const refused = (status: number, text?: RegExp) => (error: unknown) =>
  error instanceof ApiError &&
  error.status === status &&
  (text ?? /./).test(error.message) &&
  !/exist/i.test(error.message)

test('a service sees its project, its environment and itself, the narrowest winning, and nothing else', async () => {
  const [mine, other] = [await tree(), await tree()]
  await set(mine.project, 'A', 'project')
  await set(mine.environment, 'A', 'environment')
  await set(mine.environment, 'B', 'environment')
  await set(mine.application, 'B', 'own', true)
  await set(other.project, 'C', 'foreign')
  const seen = await env(mine.application)
  assert.deepEqual([seen.A, seen.B, seen.C], ['environment', 'own', undefined])
  assert.equal(seen.SLIPWAY_ENVIRONMENT_TYPE, 'STAGING')
  assert.equal(seen.QOVERY_APPLICATION_ID, mine.application.id)
  const rows = await listVisible(db, mine.environment.parents)
  assert.deepEqual(rows.map(({ key, scope, value }) => [key, scope, value]).sort(), [
    ['A', 'ENVIRONMENT', 'environment'],
    ['A', 'PROJECT', 'project'],
    ['B', 'ENVIRONMENT', 'environment'],
  ])
})

test('setting a key again replaces it under the same id; a variable never becomes a secret or the reverse', async () => {
  const { application } = await tree()
  const first = await set(application, 'A', '1')
  const second = await set(application, 'A', '2')
  assert.equal(second.id, first.id)
  assert.equal((await env(application)).A, '2')
  await assert.rejects(set(application, 'A', '3', true), refused(409))
  await set(application, 'S', '1', true)
  await set(application, 'S', '2', true)
  assert.equal((await env(application)).S, '2')
  await assert.rejects(set(application, 'S', '3'), refused(409))
})

test('a secret is in no column as it was written, and in no record', async () => {
  const { application } = await tree()
  const made = await set(application, 'S', 'canary-4711', true)
  assert.equal(made.value, null)
  const [row] = await db.query<{ text: string }>(`select v::text as text from variable v where id = $1`, [made.id])
  assert.ok(!row!.text.includes('canary'))
  assert.deepEqual((await loadEffectiveVariables(db, sealer, application.id)).secretValues, ['canary-4711'])
})

test('writers that race for one key leave one row that opens', async () => {
  const { application } = await tree()
  const results = await Promise.allSettled(
    Array.from({ length: 12 }, (_, index) => set(application, 'S', `v${index}`, true)),
  )
  assert.ok(results.some(({ status }) => status === 'fulfilled'))
  assert.equal((await listVisible(db, [application.id])).length, 1)
  assert.match((await env(application)).S!, /^v\d+$/)
})

test('bad keys, values, paths and descriptions are refused', async () => {
  const { application } = await tree()
  for (const key of [
    '',
    '1A',
    '__A',
    'A B',
    'A/B',
    'A=B',
    '.',
    '..',
    '..A',
    'Ä',
    'A'.repeat(256),
    'SLIPWAY_X',
    'QOVERY_X',
    'qovery_x',
  ])
    await assert.rejects(set(application, key, '1'), refused(400, /^key: /), key)
  await assert.rejects(set(application, 'A', 'x'.repeat(65_537)), refused(400, /^value: /))
  await assert.rejects(set(application, 'A', 'a\0b'), refused(400, /^value: /))
  for (const mountPath of ['a', '/', '/a/../b', '/a/', '//a', '/a\n'])
    await assert.rejects(set(application, 'A', '1', false, { mountPath }), refused(400, /^mount_path: /), mountPath)
  await assert.rejects(set(application, 'A', '1', false, { description: 'x'.repeat(256) }), refused(400))
  for (const key of ['_A', 'a1', 'discovery.type', 'npm-token', '.a', '-b', 'A'.repeat(255)])
    await set(application, key, 'x'.repeat(65_536))
})

test('an alias follows its target through changes and goes with it', async () => {
  const { project, application } = await tree()
  const target = await set(project, 'URL', 'one', true)
  const alias = await createAlias(db, sealer, application, target.id, { key: 'ALSO', description: 'why' })
  assert.deepEqual([alias.variable_type, alias.is_secret, alias.target?.key, alias.value], ['ALIAS', true, 'URL', null])
  await editVariable(db, sealer, target, { key: 'URL', value: 'two' })
  assert.equal((await env(application)).ALSO, 'two')
  await assert.rejects(createAlias(db, sealer, application, alias.id, { key: 'THIRD' }), refused(400))
  await assert.rejects(editVariable(db, sealer, alias, { key: 'ALSO', value: 'own' }), refused(400, /^value: /))
  const renamed = await editVariable(db, sealer, alias, { key: 'RENAMED' })
  assert.equal(renamed.description, 'why')
  await deleteVariable(db, target)
  assert.equal(await findVariable(db, application.organizationId, alias.id), null)
  assert.equal((await env(application)).RENAMED, undefined)
})

test('aliases and overrides go from wide to narrow only', async () => {
  const { project, environment, application } = await tree()
  const other = await tree()
  const own = await set(application, 'A', '1')
  await assert.rejects(createAlias(db, sealer, project, own.id, { key: 'B' }), refused(400))
  await assert.rejects(createOverride(db, sealer, environment, own.id, { value: '2' }), refused(400))
  await assert.rejects(createOverride(db, sealer, application, own.id, { value: '2' }), refused(400))
  await assert.rejects(createAlias(db, sealer, other.application, own.id, { key: 'B' }), refused(404))
  await assert.rejects(createAlias(db, sealer, application, own.id, { key: 'A' }), refused(400))
  assert.equal((await createAlias(db, sealer, application, own.id, { key: 'B' })).scope, 'APPLICATION')
})

test('an override keeps the key, has its own value, and goes with its target', async () => {
  const { project, environment, application } = await tree()
  const target = await set(project, 'FILE', 'wide', true, { mountPath: '/etc/x' })
  const middle = await createOverride(db, sealer, environment, target.id, { value: 'middle' })
  await createOverride(db, sealer, application, middle.id, { value: 'own' })
  const { files } = await loadEffectiveVariables(db, sealer, application.id)
  assert.deepEqual(files, [{ path: '/etc/x', content: 'own' }])
  await assert.rejects(editVariable(db, sealer, middle, { key: 'OTHER' }), refused(400, /^key: /))
  await editVariable(db, sealer, target, { key: 'RENAMED' })
  assert.equal((await env(application)).RENAMED, '/etc/x')
  assert.equal((await env(application)).FILE, undefined)
  await deleteVariable(db, target)
  assert.deepEqual(await listVisible(db, application.parents), [])
})

test('editing keeps what is left out and refuses a taken key', async () => {
  const { application } = await tree()
  const made = await set(application, 'A', '1', false, { description: 'why' })
  await set(application, 'B', '2')
  const edited = await editVariable(db, sealer, made, { key: 'A' })
  assert.deepEqual([edited.value, edited.description], ['1', 'why'])
  assert.equal((await editVariable(db, sealer, made, { key: 'A', value: '', description: null })).description, null)
  assert.equal((await env(application)).A, '')
  await assert.rejects(editVariable(db, sealer, made, { key: 'B' }), refused(409))
})

test('what is built in can be aliased, not overridden, and the alias dies with the service it is about', async () => {
  const { environment, application, organization } = await tree()
  const database = await insert('database', environment.id, organization, { type: 'POSTGRESQL' })
  const place = (await loadPlaceInContext(db, application.id))!
  const { builtInVariables } = await import('./built-in.ts')
  const host = builtInVariables(place.context).find(({ key }) => /^QOVERY_POSTGRESQL_Z.*_HOST_INTERNAL$/.test(key))!
  await createAlias(db, sealer, place, host.id, { key: 'DATABASE_HOST' })
  assert.equal((await env(application)).DATABASE_HOST, `service-${database}`)
  await assert.rejects(createOverride(db, sealer, place, host.id, { value: 'x' }), refused(400))
  assert.ok((await listVisible(db, place.parents)).every(({ scope }) => scope !== 'BUILT_IN'))
  await db.query('delete from node where id = $1', [database])
  assert.equal((await env(application)).DATABASE_HOST, undefined)
})

test('a thousand variables are read in one statement', async () => {
  const { application, project } = await tree()
  await db.query(
    `insert into variable (id, organization_id, parent_id, scope, key, value, is_secret, variable_type)
     select gen_random_uuid(), $1, $2, 'PROJECT', 'K' || i, 'v', false, 'VALUE' from generate_series(1, 1000) i`,
    [project.organizationId, project.id],
  )
  let statements = 0
  const query: Database['query'] = (text, values) => {
    statements++
    return db.query(text, values)
  }
  const counting = { query }
  assert.equal((await listVisible(counting, application.parents)).length, 1000)
  assert.equal(statements, 1)
  assert.equal((await loadEffectiveVariables(counting, sealer, application.id)).env.K1000, 'v')
  assert.equal(statements, 2)
})
