/**
 * A pull request on a real engine: opened, pushed to, closed. Its environment is made, updated, and removed with its
 * containers, networks, volumes and images.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { engine, networksOf, volumesOf } from './support/docker/docker.ts'
import { startGitHostApi } from './support/peers/git-host-api.ts'
import { requestDelivery } from './support/peers/git-hosts.ts'
import type { Json } from './support/slipway/slipway.ts'
import { visit } from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway, git } = await withSlipway()
const host = await startGitHostApi()
after(() => host.close())

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const containersIn = (environmentId: string): Promise<unknown[]> =>
  engine.call('GET', '/containers/json', {
    query: { all: true, filters: JSON.stringify({ label: [`slipway.environment=${environmentId}`] }) },
  })

const namesOf = async (organizationId: string, serviceId: string): Promise<string[]> => {
  const query = { filters: JSON.stringify({ reference: [`slipway/${organizationId}/${serviceId}`] }) }
  const images = await engine.call<{ RepoTags: string[] | null }[]>('GET', '/images/json', { query })
  return images.flatMap(({ RepoTags }) => RepoTags ?? [])
}

test('a pull request has an environment while it is open, and leaves nothing behind afterwards', async () => {
  const path = 'acme/site'
  await git.createRepository(path)
  await git.commit(path, page('main'), 'first')
  const { id: organizationId } = (await send('GET', '/organization')).results[0]
  const organization = `/organization/${organizationId}`
  const { id: git_token_id } = await send('POST', `${organization}/gitToken`, {
    ...{ name: 'host', ...host.token('github') },
    repository_origins: [new URL(git.url(path)).origin],
  })
  const hook = await send('POST', `${organization}/gitWebhook`, { git_token_id })
  const project = await send('POST', `${organization}/project`, { name: 'previewed' })
  const environment = await send('POST', `/project/${project.id}/environment`, { name: 'staging' })
  await send('POST', `/environment/${environment.id}/application`, {
    ...{ name: 'site', auto_deploy: false, auto_preview: true, memory: 128, healthchecks: {} },
    ports: [{ internal_port: 8080, publicly_accessible: true }],
    storage: [{ type: 'FAST_SSD', size: 4, mount_point: '/data' }],
    git_repository: { url: git.url(path), branch: 'main', git_token_id },
  })
  const { id: ruleId } = await send('GET', `/environment/${environment.id}/deploymentRule`)
  await send('PUT', `/environment/${environment.id}/deploymentRule/${ruleId}`, { auto_preview: true })
  const tell = async (): Promise<number> => {
    const { headers, body } = requestDelivery('github', path, hook.signing_secret)
    const answer = await fetch(slipway.url + new URL(hook.url).pathname, { method: 'POST', headers, body })
    return ((await answer.json()) as Json).repositories
  }
  const preview = async (): Promise<Json | undefined> =>
    (await send('GET', `/environment/${environment.id}/preview`)).results[0]
  const shows = (hostName: string, text: string) =>
    until(async () => (await visit(slipway, hostName).catch(() => null))?.text.trim() === text, {
      what: `the page ${text}`,
      timeoutMs: 60_000,
    })

  await git.git(path, ['update-ref', 'refs/heads/change', 'refs/heads/main'])
  await git.commit(path, page('changed'), 'change', { branch: 'change' })
  host.requests.set(path, [{ number: 7, branch: 'change' }])
  await until(async () => (await tell()) === 1, { what: 'the repository to be watched', timeoutMs: 30_000 })
  const { environment_id: id } = await until(
    async () => {
      const found = await preview()
      return found?.state === 'ACTIVE' ? found : null
    },
    { what: 'the preview', timeoutMs: 60_000 },
  )
  const [service] = (await send('GET', `/environment/${id}/application`)).results
  const [{ url }] = (await send('GET', `/application/${service.id}/link`)).results
  const hostName = new URL(url).hostname
  await shows(hostName, 'changed')
  await until(async () => (await namesOf(organizationId, service.id)).length === 1, { what: 'the image' })
  assert.deepEqual(
    [(await containersIn(id)).length, (await networksOf(id)).length, (await volumesOf(id)).length],
    [1, 1, 1],
  )

  await git.commit(path, page('changed again'), 'change again', { branch: 'change' })
  await tell()
  await shows(hostName, 'changed again')
  await until(() => host.comments.some(({ text }) => text.includes(url) && text.includes('deployed')), {
    what: 'the comment',
    timeoutMs: 30_000,
  })

  host.requests.set(path, [])
  await tell()
  await until(async () => (await preview()) === undefined, { what: 'the end', timeoutMs: 60_000 })
  assert.equal((await slipway.api('GET', `/environment/${id}`)).status, 404)
  assert.deepEqual(await Promise.all([containersIn(id), networksOf(id), volumesOf(id)]), [[], [], []])
  assert.deepEqual(await namesOf(organizationId, service.id), [])
})
