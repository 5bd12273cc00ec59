/**
 * Pushes to a private repository on a real git host, with two whole control planes on one database: with signed
 * deliveries, or without any; and a plane that is killed right after its answer.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { testDatabase } from './support/database.ts'
import { type Delivery, type HostName, pushDelivery } from './support/peers/git-hosts.ts'
import { startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const keys = mkdtempSync(join(tmpdir(), 'slipway-keys-'))
const database = await testDatabase()
const git = await startGitServer({ auth: { username: 'x-access-token', password: 'the token' } })
const env = {
  DATABASE_URL: database.connectionString,
  SLIPWAY_MASTER_KEY_FILE: join(keys, 'master'),
  SLIPWAY_GIT_POLL_SECONDS: '0',
}
const planes: Slipway[] = []
for (let made = 0; made < 2; made += 1) planes.push(await prepareSlipway({ fake: true, env }))
const [first, second] = planes as [Slipway, Slipway]

after(async () => {
  for (const plane of planes) await plane.kill('SIGKILL')
  for (const plane of planes) await plane.remove()
  await git.close()
  await database.close()
  rmSync(keys, { recursive: true, force: true })
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await second.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const deliver = async ({ url }: Slipway, path: string, { headers, body }: Delivery): Promise<number> => {
  const answer = await fetch(url + path, { method: 'POST', headers, body })
  await answer.arrayBuffer()
  return answer.status
}

test('pushes are deployed once, whichever plane gets the delivery, and however it ends', async () => {
  await git.createRepository('mono')
  const begin = { 'api/Dockerfile': 'FROM fake/serve\n', 'web/Dockerfile': 'FROM fake/serve\n' }
  await git.commit('mono', begin, 'begin')
  for (const plane of planes) await plane.start()
  const organization = `/organization/${(await send('GET', '/organization')).results[0].id}`
  const token = await send('POST', `${organization}/gitToken`, { name: 'git', type: 'GITHUB', token: 'the token' })
  const hook = await send('POST', `${organization}/gitWebhook`, { git_token_id: token.id })
  const path = new URL(hook.url).pathname
  const project = await send('POST', `${organization}/project`, { name: 'pushed' })
  const environment = await send('POST', `/project/${project.id}/environment`, { name: 'test' })
  const make = (name: string): Promise<Json> =>
    send('POST', `/environment/${environment.id}/application`, {
      ...{ name, auto_deploy: true, ports: [], healthchecks: {} },
      git_repository: { url: git.url('mono'), branch: 'main', root_path: `/${name}`, git_token_id: token.id },
    })
  const [api, web] = [await make('api'), await make('web')]
  const statusOf = ({ id }: Json): Promise<Json> => send('GET', `/service/${id}/gitWebhookStatus`)
  const unseen = 'select 1 from followed_branch where seen is null'
  await until(async () => (await database.query(unseen)).length === 0, { what: 'the first look', timeoutMs: 20_000 })
  const became = (service: Json, commit: string, outcome: string) =>
    until(
      async () => {
        const { last_push: last } = await statusOf(service)
        return last?.commit_id === commit && last.outcome === outcome
      },
      { what: `${service.name} ${outcome}`, timeoutMs: 30_000 },
    )
  const runs = async ({ id }: Json) => (await send('GET', `/application/${id}`)).git_repository.deployed_commit_id
  const told = (host: HostName, after?: string) =>
    pushDelivery(host, { path: 'mono', ...(after && { after }) }, hook.signing_secret)

  // The payload names a commit that does not exist, and both planes get it.
  const one = await git.commit('mono', { 'api/a.txt': '1' }, 'change the api')
  const delivery = told('github')
  const answers = await Promise.all(planes.map((plane) => deliver(plane, path, delivery)))
  assert.deepEqual(answers.toSorted(), [202, 409])
  await became(api, one, 'DEPLOYED')
  await became(web, one, 'SKIPPED')
  await until(async () => (await runs(api)) === one, { what: 'the commit to run', timeoutMs: 30_000 })
  assert.equal((await statusOf(api)).status, 'ACTIVE')

  const two = await git.commit('mono', { 'web/a.txt': '1', 'api/a.txt': '2' }, 'not yet [skip ci]')
  assert.equal(await deliver(second, path, told('gitlab', two)), 202)
  for (const service of [api, web]) await became(service, two, 'SKIPPED')

  // Killed once it has answered: the delivery is not lost.
  const three = await git.commit('mono', { 'web/a.txt': '2' }, 'change the web')
  git.setFault({ kind: 'hang' })
  assert.equal(await deliver(first, path, told('bitbucket', three)), 202)
  await first.kill('SIGKILL')
  git.setFault(null)
  await became(web, three, 'DEPLOYED')
  await became(api, three, 'SKIPPED')
  await until(async () => (await runs(web)) === three, { what: 'the commit to run', timeoutMs: 30_000 })

  // Rewritten, without a delivery.
  await git.git('mono', ['update-ref', 'refs/heads/main', one])
  const four = await git.commit('mono', { 'api/a.txt': '4' }, 'from another side')
  await database.query(`update watched_repository set next_at = '-infinity'`)
  await became(api, four, 'DEPLOYED')
  await until(async () => (await runs(api)) === four, { what: 'the commit to run', timeoutMs: 30_000 })
  const asked = await database.query<{ commit: string; count: number }>(
    `select requested ->> 'commitId' as commit, count(*)::int as count from deployment_service where service_id = $1
     group by 1 order by min(created_at)`,
    [api.id],
  )
  assert.deepEqual(asked, [
    { commit: one, count: 1 },
    { commit: four, count: 1 },
  ])
  for (const plane of planes) assert.ok(!plane.output().includes('the token'))
})
