import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { caller, type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { closedValues } from '../../../test/support/closed-values.ts'
import { s3Keys, startS3Server } from '../../../test/support/peers/s3-server.ts'
import { openPlace } from '../../backups/places/open-place.ts'
import { tidyPlaces } from '../../backups/places/tidy-places.ts'
import { newId } from '../../lib/ids.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const base = `/organization/${organizationId}/backupStorage`
const { signal } = new AbortController()
const root = join(api.parts.settings.dataDir, 'backups')

let made = 0
const create = async (body: Json, collection = base): Promise<Json> => {
  made += 1
  const answer = await call('POST', collection, { name: `storage ${made}`, ...body })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}

const keys = { access_key_id: s3Keys.accessKeyId, secret_access_key: 'canary-secret' }

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text)
}

const namesIn = async (id: string, owner = organizationId): Promise<string[]> => {
  const names: string[] = []
  for await (const { name } of (await openPlace(api.parts, owner, id)).list('', signal)) names.push(name)
  return names
}

test('a storage is tried before it is made, and again when it is changed, and leaves no trace of that', async (t) => {
  const s3 = await startS3Server()
  t.after(() => s3.close())
  assert.deepEqual(closedValues('createBackupStorage', '/kind'), ['FOLDER', 'S3'])
  const folder = await create({ kind: 'FOLDER' })
  assert.equal(folder.folder, 'backups')
  assert.deepEqual({ ...folder.last_check, checked_at: '' }, { checked_at: '', works: true, code: null, message: null })
  assert.deepEqual(readdirSync(join(root, organizationId), { recursive: true }), ['backups'])

  const bucket = { kind: 'S3', endpoint: s3.url, region: 'eu-west-3', bucket: 'bucket', prefix: '/a/b/', ...keys }
  const one = await create(bucket)
  assert.deepEqual(
    [one.endpoint, one.region, one.bucket, one.prefix, one.access_key_id, one.path_style],
    [s3.url, 'eu-west-3', 'bucket', 'a/b', keys.access_key_id, true],
  )
  assert.equal(s3.objects.size, 0)
  const tries = (): number => s3.calls.filter(({ method }) => method === 'PUT').length
  assert.equal(tries(), 1)
  assert.ok(s3.calls.every(({ key, query }) => `${key}${query.get('prefix')}`.startsWith(`a/b/${organizationId}/`)))
  assert.equal((await call('PUT', `${base}/${one.id}`, { description: 'ours' })).status, 200)
  assert.equal(tries(), 1)
  assert.equal((await call('PUT', `${base}/${one.id}`, { prefix: 'c' })).body.prefix, 'c')
  assert.equal(tries(), 2)
  const read = await call('GET', `${base}/${one.id}`)
  assert.deepEqual((await call('GET', base)).body.results, [folder, read.body])

  const wrong = await call('PUT', `${base}/${one.id}`, { access_key_id: 'AKOTHER' })
  assert.deepEqual([wrong.status, wrong.body.code], [400, 'backup_storage_failed'])
  assert.match(wrong.body.message, /^A small test object could not be written\. The storage refuses the access key/)
  assert.deepEqual((await call('GET', `${base}/${one.id}`)).body, read.body)
  const none = await call('POST', base, { name: 'none', ...bucket, bucket: 'other-bucket' })
  assert.match(none.body.message, /no bucket of this name/)
  const kept = await api.database.query('select spec, name from node')
  const events = await api.database.query('select change, original from event')
  assert.doesNotMatch(JSON.stringify([kept, events, read.body, wrong.body]), /canary/)
})

test('a check says what fails, and the storage shows it until it works again', async (t) => {
  const s3 = await startS3Server()
  t.after(() => s3.close())
  const one = await create({ kind: 'S3', endpoint: s3.url, bucket: 'bucket', path_style: true, ...keys })
  const check = async (): Promise<Json> => (await call('POST', `${base}/${one.id}/check`)).body
  const shown = async (): Promise<Json> => (await call('GET', `${base}/${one.id}`)).body.last_check
  const failing: [string, string, RegExp][] = [
    ['PUT', 'full', /could not be written.*full/],
    ['HEAD', 'refused', /could not be (written|read)/],
    ['DELETE', 'refused', /could not be deleted.*read, write, list and delete/],
  ]
  for (const [method, code, message] of failing) {
    const error = code === 'full' ? { status: 507, code: 'InsufficientStorage' } : { status: 403, code: 'AccessDenied' }
    s3.fault = (asked) => (asked.method === method ? error : undefined)
    const found = await check()
    assert.deepEqual([found.works, found.code], [false, code])
    assert.match(found.message, message)
    assert.deepEqual(await shown(), found)
  }
  s3.fault = ({ method }) => (method === 'GET' ? 'flip' : undefined)
  assert.deepEqual([(await check()).code, (await shown()).works], ['damaged', false])
  s3.fault = () => undefined
  assert.deepEqual([(await check()).works, (await shown()).message], [true, null])
  await s3.close()
  assert.deepEqual([(await check()).code, (await shown()).works], ['unreachable', false])
})

test('a folder has a name and nothing else, and no bucket, prefix or address leaves its place', async () => {
  const s3 = { kind: 'S3', endpoint: 'http://127.0.0.1:9', bucket: 'bucket', ...keys }
  const refused: [Json, string][] = [
    ...['..', '../x', '/etc', '.x', 'a/b', ''].map((folder): [Json, string] => [{ kind: 'FOLDER', folder }, 'folder']),
    [{ kind: 'FOLDER', bucket: 'bucket' }, 'bucket'],
    [{ kind: 'FOLDER', secret_access_key: 'x' }, 'secret_access_key'],
    [{ ...s3, folder: 'x' }, 'folder'],
    ...['../x', 'a/../b', 'a//b', '.x', 'ä'].map((prefix): [Json, string] => [{ ...s3, prefix }, 'prefix']),
    ...['Bucket', 'a/b', 'b', '..'].map((bucket): [Json, string] => [{ ...s3, bucket }, 'bucket']),
    [{ ...s3, bucket: undefined }, 'bucket'],
    [{ ...s3, access_key_id: 'a/b' }, 'access_key_id'],
    [{ ...s3, access_key_id: undefined }, 'access_key_id'],
    [{ ...s3, secret_access_key: undefined }, 'secret_access_key'],
    [{ ...s3, endpoint: 'http://127.0.0.1:9/bucket' }, 'endpoint'],
    [{ ...s3, endpoint: 'http://10.0.0.1' }, 'endpoint'],
    [{ ...s3, endpoint: 'ftp://s3.example' }, 'endpoint'],
    [{ ...s3, region: 'eu/west' }, 'region'],
  ]
  for (const [body, field] of refused) {
    const answer = await call('POST', base, { name: 'never', ...body })
    assert.equal(answer.status, 400, JSON.stringify(body))
    assert.match(JSON.stringify(answer.body.details), new RegExp(`/${field}"`), JSON.stringify([body, answer.body]))
  }
})

test('a secret key is not sent to another endpoint than it was given for, and the kind stays', async (t) => {
  const [first, second] = [await startS3Server(), await startS3Server()]
  t.after(() => Promise.all([first.close(), second.close()]))
  const one = await create({ kind: 'S3', endpoint: first.url, bucket: 'bucket', ...keys })
  const moved = await call('PUT', `${base}/${one.id}`, { endpoint: second.url })
  assert.match(JSON.stringify(moved.body.details), /secret_access_key/)
  assert.deepEqual(second.calls, [])
  assert.equal((await call('PUT', `${base}/${one.id}`, { endpoint: second.url, ...keys })).status, 200)
  assert.equal((await call('PUT', `${base}/${one.id}`, { kind: 'FOLDER' })).status, 400)
})

test('each organization has its own part of a folder or bucket, and cannot use the storage of another', async (t) => {
  const s3 = await startS3Server()
  t.after(() => s3.close())
  const other = await api.newOrganization()
  const asOther = caller(api.url, other.token)
  for (const body of [
    { kind: 'FOLDER', folder: 'shared' },
    { kind: 'S3', endpoint: s3.url, bucket: 'bucket', prefix: 'shared', ...keys },
  ]) {
    const mine = await create(body)
    const theirs = await asOther('POST', `/organization/${other.id}/backupStorage`, { name: body.kind, ...body })
    assert.equal(theirs.status, 201, JSON.stringify(theirs.body))
    await (await openPlace(api.parts, organizationId, mine.id)).put('secret', once('mine'), signal)
    assert.deepEqual(await namesIn(theirs.body.id, other.id), [])
    await (await openPlace(api.parts, other.id, theirs.body.id)).remove('secret', signal)
    assert.deepEqual(await namesIn(mine.id), ['secret'])
    await assert.rejects(openPlace(api.parts, other.id, mine.id), { code: 'missing' })
    assert.equal((await asOther('GET', `${base}/${mine.id}`)).status, 404)
  }
})

test('a storage that something uses is not deleted, and stays where it is', async () => {
  const one = await create({ kind: 'FOLDER' })
  const { environmentId } = await newPlace(api)
  const id = newId()
  await api.database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     values ($1, $2, 'database', $3, 'service', 'user', jsonb_build_object('storage_id', $4::text))`,
    [id, organizationId, environmentId, one.id],
  )
  const refused = await call('DELETE', `${base}/${one.id}`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'backup_storage_in_use'])
  assert.match(JSON.stringify((await call('PUT', `${base}/${one.id}`, { folder: 'elsewhere' })).body), /while backups/)
  assert.equal((await call('PUT', `${base}/${one.id}`, { name: 'renamed' })).body.name, 'renamed')
  assert.equal((await call('POST', base, { name: 'Renamed', kind: 'FOLDER' })).body.code, 'name_taken')
  await api.database.query('delete from node where id = $1', [id])
  assert.equal((await call('PUT', `${base}/${one.id}`, { folder: 'elsewhere' })).body.folder, 'elsewhere')
  assert.equal((await call('DELETE', `${base}/${one.id}`)).status, 204)
})

test('the daily turn removes what killed writes left, also beside a storage that does not answer', async (t) => {
  const s3 = await startS3Server()
  t.after(() => s3.close())
  await create({ kind: 'S3', endpoint: s3.url, bucket: 'bucket', ...keys })
  await create({ kind: 'FOLDER', folder: 'left' })
  const folder = join(root, organizationId, 'left')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, '.0011223344556677.part'), 'half')
  s3.uploads.set('u', {
    key: `${organizationId}/half`,
    pieces: new Map(),
    begun: new Date().toISOString(),
    marks: {},
  })
  const away = await startS3Server()
  await create({ kind: 'S3', endpoint: away.url, bucket: 'bucket', ...keys })
  await away.close()
  const inTwoDays = { ...api.parts.clock, now: () => new Date(Date.now() + 48 * 3_600_000) }
  await tidyPlaces({ ...api.parts, clock: inTwoDays }, signal)
  assert.equal(existsSync(join(folder, '.0011223344556677.part')), false)
  assert.equal(s3.uploads.size, 0)
})
