/**
 * Requests to git hosts: the status of each commit that a push deploys, the webhook of a repository; and images whose
 * tag moves.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, test } from 'node:test'
import { DeploymentError } from '../src/lib/errors.ts'
import { type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { apiNames, startGitHostApi } from './support/peers/git-host-api.ts'
import { until } from './support/until.ts'

const publicUrl = 'https://slipway.example.org'
const api = await startApi({ settings: { limits: undefined, publicUrl } })
const { call, organizationId, source, database, runtime } = api
const host = await startGitHostApi()
after(() => host.close())

let made = 0

const newToken = async (name: (typeof apiNames)[number]): Promise<string> => {
  made += 1
  const answer = await call('POST', `/organization/${organizationId}/gitToken`, {
    name: `${name} ${made}`,
    ...host.token(name),
  })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body.id
}

interface Followed {
  service: Json
  path: string
  tokenId: string
  environmentId: string
}

/** A service that follows a repository at the host, after its first poll. */
const newFollowed = async (name: (typeof apiNames)[number], tokenId?: string): Promise<Followed> => {
  made += 1
  const path = `acme/told-${made}`
  const git_token_id = tokenId ?? (await newToken(name))
  const { environmentId } = await newPlace(api)
  const git_repository = { url: `${host.origin}/${path}.git`, branch: 'main', git_token_id }
  const service = await newApplication(api, environmentId, { auto_deploy: true, git_repository })
  await until(async () => (await seenBy(service)) !== null, { what: 'the first look' })
  return { service, path, tokenId: git_token_id, environmentId }
}

const seenBy = async ({ id }: Json): Promise<string | null> => {
  const [row] = await database.query<{ seen: string | null }>(
    'select seen from followed_branch where service_id = $1',
    [id],
  )
  return row?.seen ?? null
}

/** A new head, found as by the poll. */
const push = async (path: string): Promise<string> => {
  source.head = randomBytes(20).toString('hex')
  await database.query(`update watched_repository set next_at = '-infinity' where path = $1`, [path])
  await database.query(`select pg_notify('slipway_push', '')`)
  return source.head
}

const toldOf = (path: string, commit: string) =>
  host.statuses.filter((told) => told.repository === path && told.commit === commit)

const last = (path: string, commit: string, states: readonly string[]) =>
  until(() => states.includes(toldOf(path, commit).at(-1)?.state ?? ''), {
    what: `a status of ${path}`,
    timeoutMs: 30_000,
  })

const waiting = (commit: string) =>
  database.query<{ tries: number; due: Date }>('select tries, due_at as due from commit_status where commit_id = $1', [
    commit,
  ])

/** Runs everything that would be due later at once. */
const hurry = async (): Promise<void> => {
  await database.query('update commit_status set due_at = clock_timestamp()')
  await database.query(`select pg_notify('slipway_commit_status', '')`)
}

test('each host gets the status of a pushed commit: pending, then deployed with the address', async () => {
  for (const name of apiNames) {
    const { path, service } = await newFollowed(name)
    const commit = await push(path)
    await last(path, commit, ['success', 'SUCCESSFUL'])
    const told = toldOf(path, commit)
    assert.match(told[0]!.state, /^(pending|INPROGRESS|success|SUCCESSFUL)$/)
    const { description, url, name: shown } = told.at(-1)!
    assert.equal(description, 'Deployed.')
    assert.match(String(url), /^http:\/\/.+\.localhost:8000$/)
    assert.ok(shown.startsWith('slipway/') && shown.endsWith(service.name), shown)
    await until(async () => (await waiting(commit)).length === 0, { what: 'nothing more to tell' })
  }
})

test('a failure is reported with its reason, in one sentence and without secrets of the service', async () => {
  const { path, service } = await newFollowed('github')
  const secret = { key: 'PASSWORD', value: 'canary-in-status' }
  assert.equal((await call('POST', `/application/${service.id}/secret`, secret)).status, 201)
  source.image = new DeploymentError('build_failed', 'The build failed at canary-in-status. More of it is in the log.')
  try {
    const commit = await push(path)
    await last(path, commit, ['failure'])
    assert.equal(toldOf(path, commit).at(-1)!.description, 'The build failed at ***.')
  } finally {
    source.image = 'fake/serve'
  }
})

test('a host that is down delays no deployment, is retried after increasing pauses, and no sooner after an edit', async () => {
  const { path, service } = await newFollowed('gitea')
  host.setFault(503)
  const commit = await push(path)
  try {
    await until(
      async () => (await call('GET', `/application/${service.id}`)).body.git_repository.deployed_commit_id === commit,
      { what: 'the deployment', timeoutMs: 30_000 },
    )
    const failed = await until(async () => (await waiting(commit)).find(({ tries }) => tries > 0) ?? null, {
      what: 'the first failure',
    })
    assert.ok(failed.due.getTime() - Date.now() > 1000)
    assert.equal((await call('PUT', `/application/${service.id}`, { cpu: 300 })).status, 200)
    const [edited] = await waiting(commit)
    assert.ok(edited!.tries > 1 || edited!.due.getTime() === failed.due.getTime())
    assert.deepEqual(toldOf(path, commit), [])
  } finally {
    host.setFault(null)
  }
  await hurry()
  await last(path, commit, ['success'])
  // One that the host refuses is given up at once.
  host.setFault(403)
  try {
    const denied = await push(path)
    await until(async () => (await seenBy(service)) === denied && (await waiting(denied)).length === 0, {
      what: 'giving up',
      timeoutMs: 30_000,
    })
    assert.deepEqual(toldOf(path, denied), [])
  } finally {
    host.setFault(null)
  }
})

test('a token is never sent to another host than its own, and a repository without one gets no statuses', async () => {
  const tokenId = await newToken('github')
  const { environmentId } = await newPlace(api)
  const elsewhere = { url: 'https://github.com/acme/elsewhere', branch: 'main', git_token_id: tokenId }
  const services = [
    await newApplication(api, environmentId, { auto_deploy: true, git_repository: elsewhere }),
    await newApplication(api, environmentId, {
      auto_deploy: true,
      git_repository: { url: `${host.origin}/acme/open` },
    }),
  ]
  for (const service of services) await until(async () => (await seenBy(service)) !== null, { what: 'the first look' })
  const commit = await push('acme/elsewhere')
  await push('acme/open')
  for (const service of services)
    await until(async () => (await seenBy(service)) === source.head || (await seenBy(service)) === commit, {
      what: 'the push',
    })
  await until(async () => (await waiting(commit)).length === 0 && (await waiting(source.head)).length === 0, {
    what: 'nothing to tell',
    timeoutMs: 30_000,
  })
  assert.deepEqual(
    host.asked.filter((asked) => /elsewhere|acme\/open/.test(asked)),
    [],
  )
})

test('a sync registers the webhook at the host, once however often it runs, and removes duplicates', async () => {
  for (const name of apiNames) {
    host.hooks = []
    const { service, tokenId } = await newFollowed(name)
    const sync = () => call('POST', `/service/${service.id}/gitWebhook/sync`)
    const answers = await Promise.all([sync(), sync()])
    for (const { status, body } of answers)
      assert.deepEqual([status, body.missing_events], [200, []], JSON.stringify(body))
    assert.equal((await sync()).status, 200)
    assert.equal(host.hooks.length, 1, name)
    const hooks = (await call('GET', `/organization/${organizationId}/gitWebhook`)).body.results
    const [own] = hooks.filter((each: Json) => each.git_token_id === tokenId)
    assert.equal(hooks.filter((each: Json) => each.git_token_id === tokenId).length, 1)
    assert.deepEqual(host.hooks[0]!.url, `${publicUrl}/git-webhooks/${own.id}`)
    assert.equal(own.url, host.hooks[0]!.url)
    assert.ok(host.hooks[0]!.secret.length > 20)
    // Another address of the same host stays as it is.
    host.hooks.push({ id: 900, url: 'https://ci.example.org/hook', secret: '', events: null })
    host.hooks.push({ ...host.hooks[0]!, id: 901 })
    assert.equal((await sync()).status, 200)
    assert.equal(host.hooks.length, 2, name)
  }
})

test('a sync says why it cannot be: no token, another host, a refusal; and other organizations cannot use it', async () => {
  const { service } = await newFollowed('github')
  const stranger = await api.newOrganization()
  const path = `/service/${service.id}/gitWebhook/sync`
  assert.equal((await api.as(stranger.token)('POST', path)).status, 404)
  assert.equal((await api.as(await api.newToken(['Read']))('POST', path)).status, 403)
  host.setFault(403)
  const denied = await call('POST', path)
  host.setFault(503)
  const away = await call('POST', path)
  host.setFault(null)
  assert.deepEqual([denied.status, denied.body.code], [400, 'git_denied'])
  assert.deepEqual([away.status, away.body.code], [400, 'git_unreachable'])
  const { environmentId } = await newPlace(api)
  const open = await newApplication(api, environmentId)
  const none = await call('POST', `/service/${open.id}/gitWebhook/sync`)
  assert.deepEqual([none.status, none.body.code], [400, 'git_token_missing'])
  api.parts.settings.publicUrl = undefined
  const nowhere = await call('POST', path, undefined, { host: 'evil.example' })
  api.parts.settings.publicUrl = publicUrl
  assert.deepEqual([nowhere.status, nowhere.body.code], [400, 'public_url_missing'])
})

test('a tag that moves deploys the containers and jobs that follow it, once, but not unchanged or stopped ones', async () => {
  const registry = { name: 'registry', kind: 'GENERIC_CR', url: 'https://registry.example.org', config: {} }
  const { id: registry_id } = (await call('POST', `/organization/${organizationId}/containerRegistry`, registry)).body
  const image = { image_name: 'team/moving', tag: 'latest', registry_id }
  const { environmentId } = await newPlace(api)
  const make = async (kind: string, body: object): Promise<string> => {
    const answer = await call('POST', `/environment/${environmentId}/${kind}`, body)
    assert.equal(answer.status, 201, JSON.stringify(answer.body))
    return answer.body.id
  }
  let digest = 'a'
  const images = runtime.images as { resolve: typeof runtime.images.resolve }
  const { resolve } = images
  images.resolve = async ({ reference }) =>
    reference.includes('team/moving') ? `registry.example.org/team/moving@sha256:${digest.repeat(64)}` : reference
  try {
    const follower = await make('container', { name: 'follower', auto_deploy: true, ...image })
    const other = await make('container', { name: 'manual', auto_deploy: false, ...image })
    const schedule = { on_start: { arguments: [] } }
    const job = await make('job', { name: 'job', auto_deploy: true, source: { image }, schedule })
    const seen = async (id: string): Promise<string | null> => {
      const [row] = await database.query<{ seen: string | null }>(
        'select seen from followed_image where service_id = $1',
        [id],
      )
      return row?.seen?.slice(-1) ?? null
    }
    const requests = async (id: string): Promise<number> => {
      const rows = await database.query('select 1 from deployment_service where service_id = $1', [id])
      return rows.length
    }
    const look = async (): Promise<void> => {
      await database.query(`update watched_image set next_at = '-infinity'`)
      await database.query(`select pg_notify('slipway_image', '')`)
    }
    for (const id of [follower, job]) await until(async () => (await seen(id)) === 'a', { what: 'the first look' })
    assert.deepEqual([await requests(follower), await requests(job), await seen(other)], [0, 0, null])
    digest = 'b'
    await look()
    for (const id of [follower, job]) await until(async () => (await seen(id)) === 'b', { what: 'the new digest' })
    assert.deepEqual([await requests(follower), await requests(job), await requests(other)], [1, 1, 0])
    await until(
      async () =>
        (await call('GET', `/container/${follower}/status`, undefined, { 'x-state-vocabulary': 'deployment' })).body
          .state === 'DEPLOYED',
      { what: 'rest', timeoutMs: 30_000 },
    )
    const [deployment] = (await call('GET', `/environment/${environmentId}/deploymentHistory`)).body.results
    assert.deepEqual([deployment.origin, deployment.triggered_by], ['GIT', 'new image'])
    assert.equal((await call('POST', `/container/${follower}/stop`)).status, 202)
    digest = 'c'
    await look()
    for (const id of [follower, job]) await until(async () => (await seen(id)) === 'c', { what: 'the next digest' })
    const [asked] = await database.query<{ count: number }>(
      `select count(*)::int as count from deployment_service where service_id = $1 and action = 'DEPLOY'`,
      [follower],
    )
    assert.equal(asked!.count, 1)
  } finally {
    images.resolve = resolve
  }
})
