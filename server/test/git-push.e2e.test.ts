/** Pushes of a real git to a repository on the server itself, built and run on the real engine. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { type GitClient, gitUrl, newGitClient } from './support/peers/git-client.ts'
import { adminToken } from './support/slipway/slipway.ts'
import { createApplication, createPlace, hostOf, visit } from './support/slipway/story.ts'
import { startVisits } from './support/slipway/visits.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway } = await withSlipway()

const open = async (t: TestContext): Promise<{ id: string; host: string; client: GitClient }> => {
  const place = await createPlace(slipway)
  const { id } = await createApplication(slipway, place, 'web', 'slipway:internal')
  const client = await newGitClient(gitUrl(slipway.url, id, adminToken))
  t.after(() => client.remove())
  return { id, host: hostOf(place, 'web'), client }
}

const broken = { Dockerfile: `FROM ${busyboxImage}\nRUN echo no such luck >&2; exit 3\n` }

test('a push shows its build and its outcome, and serves; a broken one exits with 1 and the reason, and the old version keeps running', async (t) => {
  const { id, host, client } = await open(t)
  await client.commit(page('one'))
  const first = await client.push()
  assert.equal(first.code, 0, first.stderr)
  assert.match(first.stderr, /remote: .*Step 1\/.*remote: Deployed\./s)
  assert.deepEqual(await visit(slipway, host), { status: 200, text: 'one' })
  const stop = startVisits([slipway], host, t)
  const failed = await client.commit(broken)
  const second = await client.push()
  assert.equal(second.code, 1, second.stderr)
  assert.match(second.stderr, /Not deployed: The build failed: .*code: 3\. It said: no such luck/)
  assert.match(second.stderr, /remote rejected.*not deployed/)
  // The same commit can be tried again, and one beside it needs no force.
  assert.equal((await client.push()).code, 1)
  await client.done('reset', '--quiet', '--hard', `${failed}~1`)
  await client.commit(page('two'))
  const third = await client.push()
  assert.equal(third.code, 0, third.stderr)
  const { failures, versions } = await stop()
  assert.deepEqual([failures, versions], [[], ['one', 'two']])
  const { body } = await slipway.api('GET', `/application/${id}`)
  assert.equal(body.git_repository.deployed_commit_id, await client.done('rev-parse', 'HEAD'))
})

test('of ten pushes in a row the last is deployed, and each one ends', async (t) => {
  const { host, client } = await open(t)
  const pushes: Promise<{ code: number | null; stderr: string }>[] = []
  for (let number = 1; number <= 10; number += 1) {
    const commit = await client.commit(page(`version ${number}`))
    pushes.push(client.push('slipway', `${commit}:refs/heads/main`))
    const isAccepted = async () => (await client.done('ls-remote', 'slipway', 'refs/heads/main')).startsWith(commit)
    await until(isAccepted, { what: `push ${number} to be accepted`, timeoutMs: 60_000 })
  }
  const ended = await Promise.all(pushes)
  assert.equal(ended.at(-1)!.code, 0, ended.at(-1)!.stderr)
  for (const { code, stderr } of ended) assert.match(stderr, code === 0 ? /remote: Deployed\./ : /newer push|Canceled/i)
  assert.deepEqual(await visit(slipway, host), { status: 200, text: 'version 10' })
})
