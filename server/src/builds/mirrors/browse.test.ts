import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { startGitServer } from '../../../test/support/peers/git-server.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { createLog } from '../../lib/log.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { openGitPlace, removeGitPlace } from '../git/place.ts'
import { createGit } from '../git/process.ts'
import { createMirrors } from './mirrors.ts'

const never = new AbortController().signal
const server = await startGitServer()
const folder = mkdtempSync(join(tmpdir(), 'slipway-browse-'))
const place = await openGitPlace(folder, createLog('silent'))
const mirrors = createMirrors({
  git: createGit(place),
  folder: place.mirrors,
  template: place.template,
  network: createOutbound({ allow: ['loopback'] }),
  clock: systemClock,
  log: createLog('silent'),
})
after(async () => {
  await mirrors.close()
  await server.close()
  await removeGitPlace(folder)
  rmSync(folder, { recursive: true, force: true })
})

let made = 0
const newRepository = async () => {
  made += 1
  const name = `app${made}`
  await server.createRepository(name)
  return { name, source: { organizationId: 'an organization', url: server.url(name), branch: 'main' } }
}

const isMissing = (error: unknown) => error instanceof DeploymentError && error.code === 'git_ref_missing'

test('branches are listed by name without fetching anything', async () => {
  const { name, source } = await newRepository()
  for (const branch of ['main', 'feature/a', 'feature/b']) await server.commit(name, { a: branch }, branch, { branch })
  assert.deepEqual((await mirrors.branches(source, never)).sort(), ['feature/a', 'feature/b', 'main'])
  assert.deepEqual(readdirSync(place.mirrors), [])
})

test('commits come newest first with their tags, also where only the head was fetched before', async () => {
  const { name, source } = await newRepository()
  const ids: string[] = []
  for (const step of ['1', '2', '3', '4'])
    ids.unshift(await server.commit(name, { a: step }, `Step ${step}\n\nwith more`))
  await server.tag(name, 'v2', ids[2]!)
  await mirrors.fetch(source, never)
  const all = await mirrors.commits(source, 100, never)
  assert.deepEqual(
    all.map(({ git_commit_id: id, message, tag }) => [id, message, tag]),
    ['4', '3', '2', '1'].map((step, index) => [ids[index], `Step ${step}\n\nwith more`, step === '2' ? 'v2' : '']),
  )
  assert.deepEqual([all[0]!.author_name, all[0]!.created_at], ['Test', '2026-01-02T01:04:05Z'])
  const last = (await mirrors.commits(source, 2, never)).map(({ git_commit_id: id }) => id)
  assert.deepEqual(last, ids.slice(0, 2))
  const older = await mirrors.commits({ ...source, commitId: ids[2]! }, 100, never)
  assert.deepEqual(
    older.map(({ git_commit_id: id }) => id),
    ids.slice(2),
  )
})

test('a new commit is seen after its history was read, and its files are all there', async () => {
  const { name, source } = await newRepository()
  const first = await server.commit(name, { a: '1' }, 'First')
  await mirrors.commits(source, 100, never)
  const second = await server.commit(name, { 'b/c': '2' }, 'Second')
  assert.equal((await mirrors.fetch(source, never)).git_commit_id, second)
  const ids = (await mirrors.commits(source, 100, never)).map(({ git_commit_id: id }) => id)
  assert.deepEqual(ids, [second, first])
  assert.deepEqual(await mirrors.folders(source, 'b', never), [])
})

test('folders are those right inside, and a missing folder differs from an empty one', async () => {
  const { name, source } = await newRepository()
  await server.commit(
    name,
    { 'infra/dev/main.tf': '', 'infra/prod/a/b.tf': '', 'infra/x.tf': '', 'src/a': '' },
    'Files',
  )
  assert.deepEqual(await mirrors.folders(source, '', never), ['infra', 'src'])
  assert.deepEqual(await mirrors.folders(source, 'infra', never), ['dev', 'prod'])
  assert.deepEqual(await mirrors.folders(source, 'src', never), [])
  for (const path of ['nowhere', 'infra/x.tf', '../..'])
    await assert.rejects(mirrors.folders(source, path, never), isMissing)
  await assert.rejects(mirrors.commits({ ...source, branch: 'gone' }, 10, never), isMissing)
})
