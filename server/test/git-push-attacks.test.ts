/**
 * Pushes to repositories on the server itself: what a client may not do, the result of a push that is interrupted,
 * raced or refused, and that an accepted one is never lost.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { deflateSync, gzipSync } from 'node:zlib'
import { pktLine } from '../src/api/git-http/pkt-lines.ts'
import { openGitPlace } from '../src/builds/git/place.ts'
import { removeTrees } from '../src/builds/git/process.ts'
import { dropLeftPacks } from '../src/builds/pushed/rows.ts'
import { DeploymentError } from '../src/lib/errors.ts'
import { createLog } from '../src/lib/log.ts'
import { usualLimits } from '../src/limits/limits.ts'
import { type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { type GitClient, gitUrl, newGitClient } from './support/peers/git-client.ts'
import { until } from './support/until.ts'

const limits = { ...usualLimits, repositoryMb: 6 }
const api = await startApi({ git: true, settings: { pushMaxMb: 4, limits } })
const { call, database, source, token } = api
const clients: GitClient[] = []
after(async () => {
  for (const client of clients) await client.remove()
})

const noId = '0'.repeat(40)
const internal = { git_repository: { url: 'slipway:internal', branch: 'main' }, ports: [] }

interface Scene {
  application: Json
  path: string
  client: GitClient
}

const newScene = async (): Promise<Scene> => {
  const { environmentId } = await newPlace(api)
  const application = await newApplication(api, environmentId, internal)
  const client = await newGitClient(gitUrl(api.url, application.id, token))
  clients.push(client)
  return { application, path: `/git/${application.id}.git`, client }
}

const basic = (password: string): Record<string, string> => ({
  authorization: `Basic ${Buffer.from(`x:${password}`).toString('base64')}`,
})

const get = (path: string, headers: Record<string, string> = basic(token)) => fetch(api.url + path, { headers })

const post = (path: string, body: Buffer, headers: Record<string, string> = {}) =>
  fetch(`${api.url}${path}/git-receive-pack`, {
    method: 'POST',
    headers: { 'content-type': 'application/x-git-receive-pack-request', ...basic(token), ...headers },
    body: new Uint8Array(body),
  })

/** A push of one reference without side bands: its report is the answer. */
const request = (lines: string[], pack: Buffer | string = ''): Buffer =>
  Buffer.concat([...lines.map((line) => pktLine(line)), Buffer.from('0000'), Buffer.from(pack as Buffer)])

const command = (to: string, name: string, from = noId): string => `${from} ${to} ${name}\0report-status`

const refsOf = async ({ application }: Scene): Promise<Record<string, string>> => {
  const rows = await database.query<{ name: string; id: string }>(
    'select name, object_id as id from git_ref where repository_id = $1 order by name',
    [application.id],
  )
  return Object.fromEntries(rows.map(({ name, id }) => [name, id]))
}

const packsOf = async ({ application }: Scene): Promise<number> =>
  (await database.query('select 1 from git_pack where repository_id = $1', [application.id])).length

const isFree = async ({ application }: Scene): Promise<boolean> =>
  (
    await database.query(`select 1 from git_repository where id = $1 and lease_until > clock_timestamp()`, [
      application.id,
    ])
  ).length === 0

const requestsFor = async ({ application }: Scene): Promise<string[]> =>
  (
    await database.query<{ commit: string }>(
      `select requested ->> 'commitId' as commit from deployment_service where service_id = $1 order by created_at`,
      [application.id],
    )
  ).map(({ commit }) => commit)

test('a push is deployed, shows its progress to the end, and can be cloned by every role that may read', async () => {
  const scene = await newScene()
  const { client, application } = scene
  const first = await client.commit({ Dockerfile: 'FROM scratch\n', 'src/a.txt': 'one' })
  const pushed = await client.push()
  assert.equal(pushed.code, 0, pushed.stderr)
  assert.match(pushed.stderr, /remote: .*building/)
  assert.match(pushed.stderr, /remote: Deployed\./)
  assert.deepEqual(await refsOf(scene), { 'refs/heads/main': first })
  const read = await call('GET', `/application/${application.id}`)
  assert.equal(read.body.git_repository.deployed_commit_id, first)
  assert.equal(read.body.git_repository.url, 'slipway:internal')
  assert.equal(read.body.git_repository.repository_id, undefined)
  const status = await call('GET', `/service/${application.id}/gitWebhookStatus`)
  assert.equal(status.body.status, 'ACTIVE')
  assert.deepEqual([status.body.last_push.commit_id, status.body.last_push.outcome], [first, 'DEPLOYED'])

  const reader = await newGitClient(gitUrl(api.url, application.id, await api.newToken(['Read'])))
  clients.push(reader)
  await reader.done('fetch', '--quiet', 'slipway')
  assert.equal(await reader.done('rev-parse', 'slipway/main'), first)
  await reader.done('reset', '--hard', '--quiet', 'slipway/main')
  const second = await reader.commit({ 'src/a.txt': 'two' })
  const use = async (scope: 'Read' | 'Deploy' | 'Write') =>
    reader.done('remote', 'set-url', 'slipway', gitUrl(api.url, application.id, await api.newToken([scope])))
  // Code reads the secrets of its service: a role that may only deploy must not change it.
  for (const scope of ['Read', 'Deploy'] as const) {
    await use(scope)
    const refused = await reader.push()
    assert.notEqual(refused.code, 0)
    assert.match(refused.stderr, /403/)
  }
  assert.deepEqual(await refsOf(scene), { 'refs/heads/main': first })
  await use('Write')
  const allowed = await reader.push()
  assert.equal(allowed.code, 0, allowed.stderr)
  assert.deepEqual(await requestsFor(scene), [first, second])
  const [audit] = await database.query<{ actor: string; by: string }>(
    `select actor_type as actor, triggered_by as by from event where event_type = 'TRIGGER_DEPLOY' and environment_id = $1
     order by created_at desc limit 1`,
    [application.environment.id],
  )
  assert.equal(audit?.actor, 'API_TOKEN')
  assert.match(audit.by, /\(git push\)$/)
})

test('a failed deployment exits with 1 and its reason, and the same commit can be pushed again, or another in its place', async () => {
  const scene = await newScene()
  const { client } = scene
  const good = source.image
  source.image = new DeploymentError('build_failed', 'The step RUN make failed with code 2.')
  const broken = await client.commit({ Dockerfile: 'FROM scratch\n' })
  const failed = await client.push()
  assert.equal(failed.code, 1, failed.stderr)
  assert.match(failed.stderr, /remote: Not deployed: The step RUN make failed with code 2\./)
  assert.match(failed.stderr, /\[remote rejected\] main -> main \(not deployed\)/)
  assert.deepEqual(await refsOf(scene), { 'refs/heads/main': broken })
  source.image = good
  const again = await client.push()
  assert.equal(again.code, 0, again.stderr)
  assert.deepEqual(await requestsFor(scene), [broken, broken])

  source.image = new DeploymentError('build_failed', 'no')
  const wrong = await client.commit({ 'a.txt': 'wrong' })
  assert.equal((await client.push()).code, 1)
  source.image = good
  await client.done('commit', '--quiet', '--amend', '--message', 'right')
  const right = await client.done('rev-parse', 'HEAD')
  const amended = await client.push()
  assert.equal(amended.code, 0, amended.stderr)
  assert.deepEqual(await requestsFor(scene), [broken, broken, wrong, right])
})

test('only the deployed branch is deployed, and skip words in a message are respected', async () => {
  const scene = await newScene()
  const { client } = scene
  const first = await client.commit({ Dockerfile: 'FROM scratch\n' })
  const other = await client.push('slipway', 'main:refs/heads/side')
  assert.equal(other.code, 0, other.stderr)
  assert.match(other.stderr, /Only the branch main is deployed/)
  await client.done('tag', '--annotate', '--message', 'one', 'v1')
  await client.done('push', '--quiet', 'slipway', 'v1')
  assert.deepEqual(await requestsFor(scene), [])
  const skipped = await client.commit({ 'a.txt': '1' }, 'later [skip ci]')
  const quiet = await client.push()
  assert.equal(quiet.code, 0, quiet.stderr)
  assert.match(quiet.stderr, /Not deployed: The message of the commit has \[skip ci\]/)
  assert.deepEqual(await requestsFor(scene), [])
  const refs = await refsOf(scene)
  assert.deepEqual([refs['refs/heads/main'], refs['refs/heads/side']], [skipped, first])
  await client.done('push', '--quiet', 'slipway', ':side', ':refs/tags/v1')
  assert.deepEqual(await refsOf(scene), { 'refs/heads/main': skipped })
  const deleted = await client.push('slipway', ':main')
  assert.equal(deleted.code, 1)
  assert.match(deleted.stderr, /the deployed branch cannot be deleted/)
})

test('hostile names, ids and requests are refused with a sentence, and change nothing', async () => {
  const scene = await newScene()
  const { client, path } = scene
  const id = await client.commit({ Dockerfile: 'FROM scratch\n' })
  const { stdout } = await client.git('rev-parse', 'HEAD^{tree}')
  const tree = stdout.trim()
  const pack = await packOf(client, [id])
  // Random bytes that zlib cannot shorten, as a blob that the pack announces.
  const tooLarge = largePack(5 << 20)
  const names = [
    'refs/heads/../../config',
    'refs/heads/a..b',
    'refs/heads/-x',
    'refs/heads/a b',
    'refs/heads/a\nb',
    'refs/heads/x.lock',
    'refs/heads/@{1}',
    'refs/heads/',
    'refs/slipway/made',
    'refs/notes/commits',
    'refs/for/main',
    'HEAD',
    `refs/heads/${'a'.repeat(300)}`,
    '../objects',
  ]
  for (const name of names) {
    const answer = await post(path, request([command(id, name)], pack))
    const text = await answer.text()
    assert.ok(
      answer.status === 400 || /^....ng /m.test(text) || text.includes('ng '),
      `${name}: ${answer.status} ${text}`,
    )
    assert.deepEqual(await refsOf(scene), {}, name)
  }
  const wrong: [string, Buffer, RegExp][] = [
    ['a tree as a branch', request([command(tree, 'refs/heads/x')], pack), /ng refs\/heads\/x it is not a commit/],
    ['an unknown object', request([command('a'.repeat(40), 'refs/heads/x')], pack), /ng refs\/heads\/x its objects/],
    ['another state', request([command(id, 'refs/heads/x', 'b'.repeat(40))], pack), /ng refs\/heads\/x it has changed/],
    ['a cut pack', request([command(id, 'refs/heads/x')], pack.subarray(0, 60)), /ng refs\/heads\/x/],
    ['no pack', request([command(id, 'refs/heads/x')]), /ng refs\/heads\/x/],
    ['noise', request([command(id, 'refs/heads/x')], randomBytes(5000)), /ng refs\/heads\/x/],
    ['too much', request([command(id, 'refs/heads/x')], tooLarge), /ng refs\/heads\/x push too large/],
  ]
  for (const [what, body, expected] of wrong) {
    const text = await (await post(path, body)).text()
    assert.match(text, expected, what)
  }
  const requests: [string, Buffer, number][] = [
    ['not pkt-lines', Buffer.from('hello, this is no git'), 400],
    ['endless commands', request(Array.from({ length: 101 }, (_, n) => command(id, `refs/heads/b${n}`))), 400],
    ['a long list', Buffer.alloc(300 * 1024, pktLine(command(id, 'refs/heads/x'))), 400],
    ['a shallow client', request([`shallow ${id}`, command(id, 'refs/heads/x')]), 400],
    ['a certificate', request(['push-cert\0report-status\n', 'certificate version 0.1\n']), 400],
  ]
  for (const [what, body, status] of requests) assert.equal((await post(path, body)).status, status, what)
  const bomb = gzipSync(Buffer.concat([request([command(id, 'refs/heads/x')]), Buffer.alloc(50 << 20)]))
  assert.match(
    await (await post(path, bomb, { 'content-encoding': 'gzip' })).text(),
    /ng refs\/heads\/x push (?:too large|refused)/,
  )
  assert.equal((await post(path, pack, { 'content-encoding': 'br' })).status, 415)
  assert.deepEqual(await refsOf(scene), {})
  assert.equal(await packsOf(scene), 0)
  assert.ok(await isFree(scene))
  assert.deepEqual(await requestsFor(scene), [])
  assert.equal((await client.push()).code, 0)
})

/** A valid beginning of a pack of one object of that many bytes. */
const largePack = (bytes: number): Buffer => {
  const size: number[] = [0x30 | 0x80 | (bytes & 15)]
  for (let rest = bytes >>> 4; rest > 0; rest >>>= 7) size.push((rest & 127) | (rest > 127 ? 128 : 0))
  const head = Buffer.from('PACK\0\0\0\x02\0\0\0\x01', 'latin1')
  return Buffer.concat([head, Buffer.from(size), deflateSync(randomBytes(bytes))])
}

/** A pack with these commits and all that they need. */
const packOf = async (client: GitClient, ids: string[]): Promise<Buffer> => {
  return execFileSync('git', ['-C', client.folder, 'pack-objects', '--revs', '--stdout', '--quiet'], {
    input: `${ids.join('\n')}\n`,
    env: { PATH: process.env.PATH, HOME: client.folder },
    maxBuffer: 1 << 28,
  })
}

/** A commit of a tree that git itself would not make. */
const commitTree = async (client: GitClient, entry: Buffer): Promise<string> => {
  const env = { PATH: process.env.PATH, HOME: client.folder }
  const tree = execFileSync('git', ['-C', client.folder, 'hash-object', '-t', 'tree', '-w', '--stdin', '--literally'], {
    input: entry,
    env,
  })
  return client.done('commit-tree', '-m', 'hostile', tree.toString().trim())
}

test('git’s own checks refuse trees that lead out of the repository', async () => {
  const scene = await newScene()
  const { client, path } = scene
  await client.commit({ 'a.txt': 'x' })
  const blob = Buffer.from(await client.done('rev-parse', 'HEAD:a.txt'), 'hex')
  const tree = Buffer.from(await client.done('rev-parse', 'HEAD^{tree}'), 'hex')
  const entry = (mode: string, name: string, id: Buffer) => Buffer.concat([Buffer.from(`${mode} ${name}\0`), id])
  const hostile: [string, Buffer][] = [
    ['..', entry('40000', '..', tree)],
    ['.', entry('40000', '.', tree)],
    ['.git', entry('40000', '.git', tree)],
    ['.GIT', entry('40000', '.GIT', tree)],
    ['git~1', entry('40000', 'git~1', tree)],
    ['a/b', entry('100644', 'a/b', blob)],
    ['a link as .gitmodules', entry('120000', '.gitmodules', blob)],
    ['twice', Buffer.concat([entry('100644', 'a', blob), entry('100644', 'a', blob)])],
    ['a missing file', entry('100644', 'a', randomBytes(20))],
  ]
  for (const [what, bytes] of hostile) {
    const id = await commitTree(client, bytes)
    const pack = what === 'a missing file' ? await looseObjects(client, id) : await packOf(client, [id])
    const text = await (await post(path, request([command(id, 'refs/heads/main')], pack))).text()
    assert.match(text, /ng refs\/heads\/main/, what)
    assert.deepEqual(await refsOf(scene), {}, what)
  }
  assert.equal(await packsOf(scene), 0)
})

/** A pack of a commit and its tree alone. */
const looseObjects = async (client: GitClient, id: string): Promise<Buffer> => {
  const tree = await client.done('rev-parse', `${id}^{tree}`)
  return execFileSync('git', ['-C', client.folder, 'pack-objects', '--stdout', '--quiet'], {
    input: `${id}\n${tree}\n`,
    env: { PATH: process.env.PATH, HOME: client.folder },
  })
}

test('no caller can name or read the repository of another application', async () => {
  const scene = await newScene()
  const { client, path, application } = scene
  await client.commit({ Dockerfile: 'FROM scratch\n' })
  assert.equal((await client.push()).code, 0)
  const stranger = await api.newOrganization()
  const receive = `${path}/info/refs?service=git-receive-pack`
  const upload = `${path}/info/refs?service=git-upload-pack`
  for (const url of [receive, upload]) {
    assert.equal((await get(url, basic(stranger.token))).status, 404)
    assert.equal((await get(url, basic('wrong'))).status, 401)
    const bare = await get(url, {})
    assert.equal(bare.status, 401)
    assert.match(bare.headers.get('www-authenticate') ?? '', /^Basic/)
    assert.equal((await get(url, { authorization: `Bearer ${token}` })).status, 200)
  }
  assert.equal((await get(`${path}/info/refs`)).status, 400)
  assert.equal((await get(receive, basic(await api.newToken(['Read'])))).status, 403)
  assert.equal((await get(upload, basic(await api.newToken(['Read'])))).status, 200)
  for (const odd of [
    '/git/../../etc/passwd',
    `/git/${application.id}.git/../../HEAD`,
    `/git/${application.id}.git/HEAD`,
  ])
    assert.equal((await get(odd)).status >= 400, true, odd)
  const { environmentId } = await newPlace(api)
  const elsewhere = await newApplication(api, environmentId)
  assert.equal((await get(`/git/${elsewhere.id}.git/info/refs?service=git-upload-pack`)).status, 409)
  // A password is accepted nowhere else.
  assert.equal((await get('/organization', basic(token))).status, 401)

  const make = (kind: string, body: object) => call('POST', `/environment/${environmentId}/${kind}`, body)
  const named = { url: `slipway:internal/${application.id}`, branch: 'main' }
  assert.equal((await make('application', { name: 'thief', git_repository: named, ports: [] })).status, 400)
  const job = {
    name: 'thief',
    source: { docker: { git_repository: internal.git_repository } },
    schedule: { on_start: {} },
  }
  const refused = await make('job', job)
  assert.equal(refused.status, 400)
  assert.match(JSON.stringify(refused.body), /only an application can have its repository on this server/)
  const gitToken = await call('POST', `/organization/${api.organizationId}/gitToken`, {
    name: 'g',
    type: 'GITHUB',
    token: 't',
  })
  const withToken = { ...internal.git_repository, git_token_id: gitToken.body.id }
  const sent = await make('application', { name: 'needless', git_repository: withToken, ports: [] })
  assert.match(JSON.stringify(sent.body), /needs no git token/)
  const folders = `/organization/${api.organizationId}/listDirectoriesFromGitRepository`
  assert.equal((await call('POST', folders, { url: 'slipway:internal', branch: 'main' })).status, 400)
})

test('a lost copy on disk is made again from the database', async () => {
  const scene = await newScene()
  const { client, application } = scene
  const first = await client.commit({ Dockerfile: 'FROM scratch\n', 'big.bin': randomBytes(1 << 20).toString('hex') })
  assert.equal((await client.push()).code, 0)
  const place = await openGitPlace(api.parts.settings.dataDir, createLog('silent'))
  const mirrors = (await readdir(place.mirrors)).map((entry) => join(place.mirrors, entry))
  await removeTrees(mirrors, place.user)
  const second = await client.commit({ 'a.txt': '2' })
  const pushed = await client.push()
  assert.equal(pushed.code, 0, pushed.stderr)
  const reader = await newGitClient(gitUrl(api.url, application.id, token))
  clients.push(reader)
  await reader.done('fetch', '--quiet', 'slipway')
  assert.equal(await reader.done('rev-parse', 'slipway/main'), second)
  assert.equal(await reader.done('rev-parse', 'slipway/main~1'), first)
  await reader.done('fsck', '--full', '--strict')
})

test('a push beyond the limits of a repository is refused completely, and the next one that fits is accepted', async () => {
  const scene = await newScene()
  const { client } = scene
  await client.commit({
    'a.bin': randomBytes(1_700_000).toString('latin1').slice(0, 1) + randomBytes(1_500_000).toString('hex'),
  })
  const kept: string[] = []
  let refusedBy = ''
  for (let count = 0; count < 8 && refusedBy === ''; count += 1) {
    kept.push(await client.done('rev-parse', 'HEAD'))
    const { code, stderr } = await client.push()
    if (code !== 0) refusedBy = stderr
    else await client.commit({ [`more-${count}.bin`]: randomBytes(1_500_000).toString('hex') })
  }
  assert.match(refusedBy, /The limit is 6 MB in one repository on this server/)
  const refs = await refsOf(scene)
  assert.equal(refs['refs/heads/main'], kept.at(-2))
  assert.ok(await isFree(scene))
  await client.done('reset', '--hard', '--quiet', kept.at(-2)!)
  const small = await client.commit({ 'small.txt': 'fits' })
  const pushed = await client.push()
  assert.equal(pushed.code, 0, pushed.stderr)
  assert.equal((await refsOf(scene))['refs/heads/main'], small)
})

/** Begins a push by hand and stops in the middle of its pack. */
const beginPush = async ({ path }: Scene, id: string, pack: Buffer) => {
  const { hostname, port } = new URL(api.url)
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {})
  await once(socket, 'connect')
  const body = request([command(id, 'refs/heads/main')], pack)
  socket.write(
    `POST ${path}/git-receive-pack HTTP/1.1\r\nhost: x\r\nauthorization: ${basic(token).authorization}\r\ncontent-type: application/x-git-receive-pack-request\r\ncontent-length: ${body.length}\r\n\r\n`,
  )
  socket.write(body.subarray(0, body.length - 30))
  return socket
}

test('a client that disconnects, a lease of a dead server and a delete in the middle leave nothing behind', async () => {
  const scene = await newScene()
  const { client, application } = scene
  const id = await client.commit({ Dockerfile: 'FROM scratch\n', 'a.txt': 'x' })
  const pack = await packOf(client, [id])
  const held = async () => !(await isFree(scene))
  const first = await beginPush(scene, id, pack)
  await until(held, { what: 'the lease', timeoutMs: 20_000 })
  first.destroy()
  await until(() => isFree(scene), { what: 'the end of the lease', timeoutMs: 20_000 })
  assert.deepEqual(await refsOf(scene), {})
  assert.equal(await packsOf(scene), 0)

  // As a killed server leaves it: the lease expires by itself.
  await database.query(
    `update git_repository set worker = 'dead', lease_until = clock_timestamp() + interval '1 second' where id = $1`,
    [application.id],
  )
  await database.query(
    `insert into git_pack (id, repository_id, created_at) values (gen_random_uuid(), $1, now() - interval '2 days')`,
    [application.id],
  )
  const pushed = await client.push()
  assert.equal(pushed.code, 0, pushed.stderr)
  await dropLeftPacks(database)
  assert.equal(await packsOf(scene), 1)

  const next = await client.commit({ 'a.txt': 'y' })
  const second = await beginPush(scene, next, await packOf(client, [next]))
  await until(held, { what: 'the lease', timeoutMs: 20_000 })
  await database.query('delete from node where id = $1', [application.id])
  second.end(Buffer.alloc(30))
  const answered = await Promise.race([once(second, 'data'), once(second, 'close')])
  assert.ok(answered)
  second.destroy()
  assert.equal(await packsOf(scene), 0)
  assert.equal((await call('GET', '/organization')).status, 200)
})
