/** The stored packs of repositories on the server itself, however long and however often they are pushed to. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { pktLine } from '../src/api/git-http/pkt-lines.ts'
import { openGitPlace } from '../src/builds/git/place.ts'
import { removeTrees } from '../src/builds/git/process.ts'
import { tidyRepositories } from '../src/deployments/sources/git/own-packs.ts'
import { createLog } from '../src/lib/log.ts'
import { newApplication, newPlace, startApi } from './support/api.ts'
import { type GitClient, gitUrl, newGitClient } from './support/peers/git-client.ts'

const api = await startApi({ git: true })
const { database, token } = api
const clients: GitClient[] = []
after(async () => {
  for (const client of clients) await client.remove()
})

const newScene = async () => {
  const { environmentId } = await newPlace(api)
  const git_repository = { url: 'slipway:internal', branch: 'main' }
  const application = await newApplication(api, environmentId, { git_repository, ports: [] })
  const client = await newGitClient(gitUrl(api.url, application.id, token))
  clients.push(client)
  return { application, client }
}

type Scene = Awaited<ReturnType<typeof newScene>>

const packsOf = async ({ application }: Scene): Promise<number> =>
  (await database.query('select 1 from git_pack where repository_id = $1', [application.id])).length

const sizeOf = async ({ application }: Scene): Promise<number> => {
  const [row] = await database.query<{ bytes: number }>(
    'select sum(bytes)::float8 as bytes from git_pack where repository_id = $1 and accepted',
    [application.id],
  )
  return row!.bytes
}

test('packs are merged into one without unneeded objects, and a concurrent push or fetch loses nothing', async () => {
  const scene = await newScene()
  const { client, application } = scene
  const first = await client.commit({ Dockerfile: 'FROM scratch\n' })
  assert.equal((await client.push()).code, 0)
  await client.done('checkout', '--quiet', '-b', 'side')
  const left = await client.commit({ 'big.bin': randomBytes(1_500_000).toString('hex') })
  await client.done('push', '--quiet', 'slipway', 'side')
  await client.done('push', '--quiet', 'slipway', ':side')
  await client.done('checkout', '--quiet', 'main')
  const second = await client.commit({ 'a.txt': '2' })
  await client.done('tag', '--annotate', '--message', 'two', 'v2')
  await client.done('push', '--quiet', 'slipway', 'main', 'v2')
  assert.equal(await packsOf(scene), 3)
  assert.ok((await sizeOf(scene)) > 1_000_000)

  const repositories = api.parts.repositories!
  const never = new AbortController().signal
  const tidy = (intake = repositories.intake) => tidyRepositories({ ...api.parts, repositories: { intake } }, never, 1)
  // One that dies in the middle leaves a pack that is never read, and passes the turn to others.
  await tidy(async (...args) => ({
    ...(await repositories.intake(...args)),
    async *pack() {
      yield randomBytes(100)
      throw new Error('cut')
    },
  }))
  assert.equal(await packsOf(scene), 3)
  const again = () =>
    database.query(`update git_repository set tidied_at = '-infinity' where id = $1`, [application.id])
  await again()
  let third = ''
  await tidy(async (source, signal) => {
    // After the packs and references were read, and before anything is replaced.
    if (third === '') {
      third = await client.commit({ 'a.txt': '3' })
      assert.equal((await client.push()).code, 0)
    }
    return repositories.intake(source, signal)
  })
  assert.equal(await packsOf(scene), 2)
  assert.ok((await sizeOf(scene)) < 100_000)
  await again()
  await Promise.all([tidy(), tidy()])
  assert.equal(await packsOf(scene), 1)

  const place = await openGitPlace(api.parts.settings.dataDir, createLog('silent'))
  const read = async (): Promise<GitClient> => {
    const reader = await newGitClient(gitUrl(api.url, application.id, token))
    clients.push(reader)
    await reader.done('fetch', '--quiet', '--tags', 'slipway')
    assert.equal(await reader.done('rev-parse', 'slipway/main'), third)
    assert.equal(await reader.done('rev-parse', 'v2^{commit}'), second)
    assert.equal(await reader.done('rev-parse', 'slipway/main~2'), first)
    await reader.done('fsck', '--full', '--strict')
    return reader
  }
  await read()
  await removeTrees(
    (await readdir(place.mirrors)).map((entry) => join(place.mirrors, entry)),
    place.user,
  )
  const reader = await read()
  assert.notEqual((await reader.git('cat-file', '-e', left)).code, 0)
  await client.commit({ 'a.txt': '4' })
  const pushed = await client.push()
  assert.equal(pushed.code, 0, pushed.stderr)
})

test('objects that a mirror has beside the repository, such as submodules of its builds, cannot be fetched by id', async () => {
  const scene = await newScene()
  const { client, application } = scene
  const path = `/git/${application.id}.git`
  const authorization = `Basic ${Buffer.from(`x:${token}`).toString('base64')}`
  const commit = await client.commit({ Dockerfile: 'FROM scratch\n' })
  assert.equal((await client.push()).code, 0)
  const upload = (body: Buffer, headers: Record<string, string> = {}) =>
    fetch(`${api.url}${path}/git-upload-pack`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-git-upload-pack-request', authorization, ...headers },
      body: new Uint8Array(body),
    })
  const listed = await fetch(`${api.url}${path}/info/refs?service=git-upload-pack`, { headers: { authorization } })
  assert.equal(listed.status, 200)
  const place = await openGitPlace(api.parts.settings.dataDir, createLog('silent'))
  let theirs = ''
  for (const entry of await readdir(place.mirrors)) {
    const git = (args: string[], input = '') =>
      execFileSync('git', ['-c', 'safe.directory=*', '--git-dir', join(place.mirrors, entry), ...args], {
        encoding: 'utf8',
        input,
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { ...process.env, GIT_AUTHOR_DATE: '1700000000 +0000', GIT_COMMITTER_DATE: '1700000000 +0000' },
      }).trim()
    const by = ['-c', 'user.name=a', '-c', 'user.email=a@b']
    try {
      git(['cat-file', '-e', commit])
    } catch {
      continue
    }
    const blob = git(['hash-object', '-w', '--stdin'], 'a secret of a submodule')
    const tree = git(['mktree'], `100644 blob ${blob}\tsecret\n`)
    theirs = git([...by, 'commit-tree', tree, '-m', 'theirs'])
    // As commits with submodules in place are kept.
    git(['update-ref', 'refs/slipway/theirs', theirs])
    execFileSync('chmod', ['-R', 'a+rX', join(place.mirrors, entry)])
  }
  assert.notEqual(theirs, '', `a mirror of ${application.id} has the commit`)
  const wants = (id: string): Buffer =>
    Buffer.concat([pktLine(`want ${id} no-progress\n`), Buffer.from('0000'), pktLine('done\n')])
  const second = (id: string): Buffer =>
    Buffer.concat([
      ...[pktLine('command=fetch'), Buffer.from('0001'), pktLine('no-progress\n')],
      ...[pktLine(`want ${id}\n`), pktLine('done\n'), Buffer.from('0000')],
    ])
  const isServed = (body: Buffer, headers?: Record<string, string>): Promise<boolean> =>
    upload(body, headers)
      .then(async (answer) => Buffer.from(await answer.arrayBuffer()).includes('PACK'))
      .catch(() => false)
  const isHad = async (id: string): Promise<boolean[]> => [
    await isServed(wants(id)),
    await isServed(second(id), { 'git-protocol': 'version=2' }),
  ]
  assert.ok((await isHad(commit)).includes(true), 'its own commit is served')
  assert.deepEqual(await isHad(theirs), [false, false])
})
