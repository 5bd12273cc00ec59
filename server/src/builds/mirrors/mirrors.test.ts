import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { type GitServer, startGitServer } from '../../../test/support/peers/git-server.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { createLog } from '../../lib/log.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { openGitPlace, removeGitPlace } from '../git/place.ts'
import { createGit } from '../git/process.ts'
import type { GitLimits, GitNetwork } from '../git/remote.ts'
import { createMirrors } from './mirrors.ts'

const never = new AbortController().signal
const servers: GitServer[] = []
const folders: string[] = []

after(async () => {
  for (const server of servers) await server.close()
  for (const folder of folders) {
    await removeGitPlace(folder)
    rmSync(folder, { recursive: true, force: true })
  }
})

const serve = async (options?: Parameters<typeof startGitServer>[0]): Promise<GitServer> => {
  const server = await startGitServer(options)
  servers.push(server)
  await server.createRepository('app')
  return server
}

const organizationId = 'an organization'

const open = async (more: { limits?: Partial<GitLimits>; network?: GitNetwork; folder?: string } = {}) => {
  const folder = more.folder ?? mkdtempSync(join(tmpdir(), 'slipway-mirrors-'))
  folders.push(folder)
  const place = await openGitPlace(folder, createLog('silent'))
  const { network = createOutbound({ allow: ['loopback'] }), limits } = more
  const parts = { git: createGit(place), folder: place.mirrors, template: place.template, network, limits }
  return {
    ...createMirrors({ ...parts, clock: systemClock, log: createLog('silent') }),
    folder: parts.folder,
    dataDir: folder,
  }
}

const rejects = (work: Promise<unknown>, code: string, pattern = /./): Promise<void> =>
  assert.rejects(work, (error) => {
    assert.ok(error instanceof DeploymentError, String(error))
    assert.equal(error.code, code, error.message)
    assert.match(error.message, pattern)
    return true
  })

test('a branch gives its head with the facts of the commit, and an unchanged head fetches nothing', async () => {
  const server = await serve()
  const mirrors = await open()
  const source = { organizationId, url: server.url('app'), branch: 'main' }
  const first = await server.commit('app', { a: '1' }, 'First\n\nwith a body')
  await server.tag('app', 'v1', first, 'annotated')
  assert.deepEqual(await mirrors.fetch(source, never), {
    git_commit_id: first,
    message: 'First\n\nwith a body',
    author_name: 'Test',
    created_at: '2026-01-02T01:04:05Z',
    tag: 'v1',
  })
  const before = server.requests.length
  assert.equal((await mirrors.fetch(source, never)).git_commit_id, first)
  const asked = server.requests.slice(before)
  assert.equal(asked.filter((line) => line.startsWith('POST')).length, 1, `only the list of refs: ${asked}`)

  const second = await server.commit('app', { a: '2' }, 'Second')
  const next = await mirrors.fetch(source, never)
  assert.deepEqual([next.git_commit_id, next.tag], [second, ''])
  assert.equal(await mirrors.head(source, 5000), second)
  assert.equal(await mirrors.head({ ...source, branch: 'none' }, 5000), null)
})

test('a commit by id is fetched once, and again without the network', async () => {
  const server = await serve()
  const first = await server.commit('app', { a: '1' }, 'first')
  await server.commit('app', { a: '2' }, 'second')
  const mirrors = await open({ limits: { askAgainMs: 300 } })
  const source = { organizationId, url: server.url('app'), branch: 'main', commitId: first }
  assert.equal((await mirrors.fetch(source, never)).git_commit_id, first)
  server.setFault({ kind: 'hang' })
  assert.equal((await mirrors.fetch(source, never)).message, 'first')
  server.setFault(null)
  await rejects(mirrors.fetch({ ...source, commitId: 'e'.repeat(40) }, never), 'git_ref_missing', /eeeeeeeeeeee/)
})

test('branches that once were folders, rewritten branches and missing ones', async () => {
  const server = await serve()
  const mirrors = await open()
  const url = server.url('app')
  const one = await server.commit('app', { a: '1' }, 'one', { branch: 'x' })
  assert.equal((await mirrors.fetch({ organizationId, url, branch: 'x' }, never)).git_commit_id, one)
  await server.deleteBranch('app', 'x')
  await rejects(mirrors.fetch({ organizationId, url, branch: 'x' }, never), 'git_ref_missing', /no branch x/)
  const two = await server.commit('app', { a: '2' }, 'two', { branch: 'x/y' })
  assert.equal((await mirrors.fetch({ organizationId, url, branch: 'x/y' }, never)).git_commit_id, two)
  await server.deleteBranch('app', 'x/y')
  const three = await server.commit('app', { a: '3' }, 'three', { branch: 'x/y' })
  assert.equal((await mirrors.fetch({ organizationId, url, branch: 'x/y' }, never)).git_commit_id, three)
})

test('a tag is followed like a branch that moves rarely, and a branch of the same name goes before it', async () => {
  const server = await serve()
  const mirrors = await open()
  const source = { organizationId, url: server.url('app'), branch: 'rel-1' }
  const first = await server.commit('app', { a: '1' }, 'first')
  const second = await server.commit('app', { a: '2' }, 'second')
  await server.tag('app', 'also', first)
  for (const [id, message] of [
    [first, 'annotated'],
    [second, undefined],
  ] as const) {
    await server.git('app', ['update-ref', '-d', 'refs/tags/rel-1'])
    await server.tag('app', 'rel-1', id, message)
    const commit = await mirrors.fetch(source, never)
    assert.deepEqual([commit.git_commit_id, commit.tag, await mirrors.head(source, 5000)], [id, 'rel-1', id])
    assert.deepEqual(Object.fromEntries(await mirrors.heads(source, ['rel-1', 'main'], never)), {
      'rel-1': id,
      main: second,
    })
  }
  await server.git('app', ['update-ref', 'refs/heads/rel-1', first])
  assert.equal((await mirrors.fetch(source, never)).git_commit_id, first)
  assert.equal(await mirrors.head(source, 5000), first)
  assert.equal((await mirrors.heads(source, ['rel-1'], never)).get('rel-1'), first)
  await server.git('app', ['update-ref', '-d', 'refs/heads/rel-1'])
  const elsewhere = { ...source, commitId: 'e'.repeat(40) }
  await rejects(mirrors.fetch(elsewhere, never), 'git_ref_missing', /is not in the tag rel-1 of the repository/)
  await rejects(
    mirrors.fetch({ ...source, branch: 'rel' }, never),
    'git_ref_missing',
    /no branch rel and no tag .*main/,
  )
})

test('heads of several branches are listed at once, and changes between commits are those of their files', async () => {
  const server = await serve()
  const mirrors = await open()
  const first = await server.commit('app', { 'a.txt': '1', 'api/b.txt': '1', 'weird "name" ü.txt': '1' }, 'first')
  await server.git('app', ['update-ref', 'refs/heads/next', first])
  const second = await server.commit('app', { 'api/b.txt': '2', 'a.txt': null, 'weird "name" ü.txt': '2' }, 'second')
  const source = { organizationId, url: server.url('app'), branch: 'main' }
  server.requests.length = 0
  const heads = await mirrors.heads(source, ['main', 'next', 'mai', 'gone'], never)
  assert.deepEqual(Object.fromEntries(heads), { main: second, next: first })
  assert.deepEqual(server.requests, ['GET /info/refs?service=git-upload-pack', 'POST /git-upload-pack'])
  const pushed = { ...source, commitId: second }
  assert.deepEqual((await mirrors.changes(pushed, first, never))?.toSorted(), [
    'a.txt',
    'api/b.txt',
    'weird "name" ü.txt',
  ])
  assert.deepEqual(await mirrors.changes(pushed, second, never), [])
  // Removed by a force push and garbage collected by its host.
  for (const gone of ['0'.repeat(40), 'f'.repeat(40), '--upload-pack=x'])
    assert.equal(await mirrors.changes(pushed, gone, never), null)
  await rejects(mirrors.heads({ ...source, url: server.url('missing') }, ['main'], never), 'git_denied')
  await rejects(mirrors.heads(source, ['--upload-pack=x'], never), 'git_refused')
  await mirrors.close()
})

test('a private repository needs its token, and no error or file contains it', async () => {
  const password = 'canary-token-8271'
  const server = await serve({ auth: { username: 'user', password } })
  const id = await server.commit('app', { a: '1' }, 'private')
  const mirrors = await open()
  const source = { organizationId, url: server.url('app'), branch: 'main' }
  const credentials = new Secret({ username: 'user', password })
  await rejects(mirrors.fetch(source, never), 'git_denied')
  const wrong = new Secret({ username: 'user', password: 'wrong-canary-9' })
  const error = await mirrors.fetch({ ...source, credentials: wrong }, never).catch((reason: Error) => reason)
  assert.equal(
    JSON.stringify(error) + String(error) + (error as Error).stack?.includes('wrong-canary-9'),
    JSON.stringify(error) + String(error) + false,
  )
  assert.equal((error as DeploymentError).code, 'git_denied')
  assert.equal((await mirrors.fetch({ ...source, credentials }, never)).git_commit_id, id)
  await rejects(mirrors.fetch({ ...source, commitId: id }, never), 'git_denied')
  await rejects(mirrors.fetch({ ...source, url: server.url('none'), credentials }, never), 'git_denied')
  const encoded = Buffer.from(`user:${password}`).toString('base64')
  for (const text of [password, encoded])
    assert.equal(spawnSync('grep', ['-r', '-q', text, mirrors.folder]).status, 1, 'nothing on disk')
})

test('a token is never sent in the clear to a public address', async () => {
  const mirrors = await open({
    network: createOutbound({ allow: [], resolve: async () => [{ address: '93.184.216.34' }] }),
  })
  const credentials = new Secret({ username: 'user', password: 'canary' })
  const source = { organizationId, url: 'http://git.example.com/a.git', branch: 'main', credentials }
  await rejects(mirrors.fetch(source, never), 'git_refused', /plain http/)
})

test('a redirect is refused and its target never asked', async () => {
  const other = await serve()
  await other.commit('app', { a: '1' }, 'other')
  const server = await serve()
  server.setFault({ kind: 'redirect', to: other.origin })
  await rejects(
    (await open()).fetch({ organizationId, url: server.url('app'), branch: 'main' }, never),
    'git_refused',
    /another address/,
  )
  assert.deepEqual(other.requests, [])
})

test('a host that hangs ends in git_unreachable at the limit, and an abort ends it at once', async () => {
  const server = await serve()
  server.setFault({ kind: 'hang' })
  const source = { organizationId, url: server.url('app'), branch: 'main' }
  await rejects((await open({ limits: { lsRemoteMs: 300 } })).fetch(source, never), 'git_unreachable', /did not answer/)
  const reason = new Error('canceled')
  const control = new AbortController()
  const waiting = (await open()).fetch(source, control.signal)
  control.abort(reason)
  await assert.rejects(waiting, (error) => error === reason)
  assert.equal(await (await open()).head(source, 200), null)
})

test('who waits for another fetch of the same mirror can be canceled alone', async () => {
  const server = await serve()
  await server.commit('app', { a: '1' }, 'one')
  const mirrors = await open()
  const source = { organizationId, url: server.url('app'), branch: 'main' }
  server.setFault({ kind: 'endless' })
  const [one, two] = [new AbortController(), new AbortController()]
  const first = mirrors.fetch(source, one.signal)
  const second = mirrors.fetch(source, two.signal)
  two.abort(new Error('two'))
  await assert.rejects(second, /two/)
  one.abort(new Error('one'))
  await assert.rejects(first, /one/)
  server.setFault(null)
  assert.equal((await mirrors.fetch(source, never)).message, 'one')
})

test('a pack without an end stops at the size limit and leaves nothing', async () => {
  const server = await serve()
  await server.commit('app', { a: '1' }, 'one')
  server.setFault({ kind: 'endless' })
  const mirrors = await open({ limits: { maxBytes: 2 ** 20 } })
  await rejects(
    mirrors.fetch({ organizationId, url: server.url('app'), branch: 'main' }, never),
    'git_refused',
    /larger than/,
  )
  assert.deepEqual(readdirSync(mirrors.folder), [])
})

test('addresses and branches that are options or other transports never reach git', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-canary-'))
  folders.push(folder)
  const canary = join(folder, 'touched')
  const mirrors = await open()
  const good = 'https://git.example.com/a.git'
  for (const url of [
    `--upload-pack=touch ${canary}`,
    `ext::sh -c touch% ${canary}`,
    `file://${folder}`,
    folder,
    '-o',
    'ssh://x/a',
  ])
    await rejects(mirrors.fetch({ organizationId, url, branch: 'main' }, never), 'git_refused')
  for (const branch of [`--upload-pack=touch ${canary}`, '-o', 'a..b', 'a b', 'x:y', '@{u}'])
    await rejects(mirrors.fetch({ organizationId, url: good, branch }, never), 'git_refused')
  await rejects(
    mirrors.fetch({ organizationId, url: good, branch: 'main', commitId: '--output=x' }, never),
    'git_refused',
  )
  assert.equal(existsSync(canary), false)
})

test('the address policy is asked before git, and git connects to the checked address only', async () => {
  const outbound = createOutbound({ allow: [] })
  const server = await serve()
  const id = await server.commit('app', { a: '1' }, 'one')
  const guarded = await open({ network: outbound })
  await rejects(
    guarded.fetch({ organizationId, url: server.url('app'), branch: 'main' }, never),
    'git_refused',
    /are not allowed/,
  )
  assert.deepEqual(server.requests, [])
  // The name resolves nowhere: only the pin can lead to the server.
  const pinned = await open({
    network: createOutbound({ allow: ['loopback'], resolve: async () => [{ address: '127.0.0.1' }] }),
  })
  const url = server.url('app').replace('127.0.0.1', 'name.invalid')
  assert.equal((await pinned.fetch({ organizationId, url, branch: 'main' }, never)).git_commit_id, id)
})

test('a host that refuses connections, or answers with an error, is unreachable', async () => {
  const nonsense = createServer(
    (socket) =>
      void socket
        .on('error', () => {})
        .resume()
        .end('HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nhi'),
  )
  await new Promise<void>((resolve) => nonsense.listen(0, '127.0.0.1', resolve))
  const { port } = nonsense.address() as { port: number }
  const source = { organizationId, url: `http://127.0.0.1:${port}/a.git`, branch: 'main' }
  try {
    await rejects((await open()).fetch(source, never), 'git_unreachable')
  } finally {
    await new Promise((resolve) => nonsense.close(resolve))
  }
  await rejects((await open()).fetch(source, never), 'git_unreachable', /Could not connect/)
})

test('locks and half packs of a killed git are removed, and a broken mirror is made anew', async () => {
  const server = await serve()
  await server.commit('app', { a: '1' }, 'one')
  const source = { organizationId, url: server.url('app'), branch: 'main' }
  const before = await open()
  await before.fetch(source, never)
  const mirror = join(before.folder, readdirSync(before.folder)[0]!)
  const old = new Date(Date.now() - 3_600_000)
  for (const name of ['shallow.lock', 'packed-refs.lock', 'objects/pack/tmp_pack_x']) {
    writeFileSync(join(mirror, name), '')
    utimesSync(join(mirror, name), old, old)
  }
  const two = await server.commit('app', { a: '2' }, 'two')
  const restarted = await open({ folder: before.dataDir })
  assert.equal((await restarted.fetch(source, never)).git_commit_id, two)
  assert.equal(existsSync(join(mirror, 'shallow.lock')) || existsSync(join(mirror, 'objects/pack/tmp_pack_x')), false)

  rmSync(join(mirror, 'HEAD'))
  const three = await server.commit('app', { a: '3' }, 'three')
  assert.equal((await restarted.fetch(source, never)).git_commit_id, three)
})
