/**
 * From a push to a deployment: deliveries of git hosts are verified, their content is not trusted, and they trigger a
 * poll of the repository; each new head is handled once.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { test } from 'node:test'
import { DeploymentError } from '../src/lib/errors.ts'
import { signHeaders } from '../src/webhooks/sign.ts'
import { type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { howMany } from './support/nightly.ts'
import { type Delivery, hostNames, pushBody, pushDelivery, sign } from './support/peers/git-hosts.ts'
import { patience, until } from './support/until.ts'

const api = await startApi({ settings: { limits: undefined, anonymousLimit: 0 } })
const { call, organizationId, source, database } = api
const collection = `/organization/${organizationId}/gitWebhook`

const newCommit = (): string => randomBytes(20).toString('hex')

const newHook = async (body: object = {}): Promise<{ id: string; secret: string; path: string }> => {
  const { status, body: made } = await call('POST', collection, body)
  assert.equal(status, 201, JSON.stringify(made))
  return { id: made.id, secret: made.signing_secret, path: new URL(made.url).pathname }
}

const send = async (path: string, { headers, body }: Delivery): Promise<{ status: number; body: Json }> => {
  const answer = await fetch(api.url + path, { method: 'POST', headers, body })
  return { status: answer.status, body: await answer.json() }
}

const refuses = async (path: string, delivery: Delivery, status: number): Promise<void> => {
  const answer = await send(path, delivery)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  assert.equal(typeof answer.body.code, 'string')
}

const hook = await newHook()
let made = 0

interface Scene {
  environmentId: string
  path: string
  services: Json[]
}

/** An environment whose services follow one repository, after the first poll. */
const newScene = async (...more: Record<string, unknown>[]): Promise<Scene> => {
  made += 1
  const path = `acme/shop-${made}`
  const { environmentId } = await newPlace(api)
  const git_repository = { url: `https://github.com/Acme/Shop-${made}.git`, branch: 'main' }
  const services: Json[] = []
  for (const each of more)
    services.push(await newApplication(api, environmentId, { git_repository, auto_deploy: true, ...each }))
  await looked(environmentId)
  return { environmentId, path, services }
}

const seenIn = (environmentId: string): Promise<Json[]> =>
  database.query(
    `select f.seen, f.judged from followed_branch f join node n on n.id = f.service_id where n.parent_id = $1`,
    [environmentId],
  )

const looked = (environmentId: string) =>
  until(async () => (await seenIn(environmentId)).every(({ seen }) => seen !== null), { what: 'the first look' })

/** A new head, and a delivery about it. */
const push = async (
  path: string,
  more: Partial<{ message: string; changes: string[] | null; pusher: string }> = {},
) => {
  Object.assign(source, { message: 'a change', changes: null, ...more, head: newCommit() })
  const told = { path, after: source.head, pusher: more.pusher ?? 'octocat' }
  const answer = await send(hook.path, pushDelivery('github', told, hook.secret))
  assert.deepEqual([answer.status, answer.body], [202, { status: 'ACCEPTED', repositories: 1 }])
  return source.head
}

const historyOf = async (environmentId: string): Promise<Json[]> =>
  (await call('GET', `/environment/${environmentId}/deploymentHistory`)).body.results

const lastPush = async ({ id }: Json): Promise<Json> => {
  const { body } = await call('GET', `/service/${id}/gitWebhookStatus`)
  return body.last_push
}

const judged = (service: Json, commit: string) =>
  until(async () => (await lastPush(service))?.commit_id === commit, { what: 'the push to be judged' })

const deployedCommit = async ({ id }: Json): Promise<string> => {
  const { body } = await call('GET', `/application/${id}`)
  return body.git_repository.deployed_commit_id
}

const settled = (environmentId: string) =>
  until(
    async () => {
      const { results } = (await call('GET', `/environment/${environmentId}/application/status`)).body
      return results.every(({ deployment_state: state }: Json) =>
        /^(READY|DEPLOYED|STOPPED|CANCELED|.*ERROR)$/.test(state),
      )
    },
    { what: 'rest', timeoutMs: 20_000 },
  )

test('a push that a git host reports deploys the head of the repository, whatever the payload says', async () => {
  for (const host of hostNames) {
    const { environmentId, path, services } = await newScene({})
    source.head = newCommit()
    const delivery = pushDelivery(host, { path, after: newCommit(), pusher: 'octo\u0007cat' }, hook.secret)
    const begun = performance.now()
    const answer = await send(hook.path, delivery)
    assert.ok(performance.now() - begun < 100 * patience, `${host} was answered late`)
    assert.deepEqual([answer.status, answer.body], [202, { status: 'ACCEPTED', repositories: 1 }], host)
    await judged(services[0], source.head)
    await settled(environmentId)
    assert.equal(await deployedCommit(services[0]), source.head)
    const [deployment] = await historyOf(environmentId)
    assert.deepEqual([deployment.origin, deployment.triggered_by], ['GIT', 'octo cat (git push)'])
    // Sent again it does nothing: not as it was, and not under another id, which no signature covers.
    await refuses(hook.path, delivery, 409)
    const renamed = { ...delivery.headers, 'x-github-delivery': 'another', 'x-request-uuid': 'another' }
    await refuses(hook.path, { ...delivery, headers: renamed }, 409)
  }
})

test('a delivery without a valid signature, unreadable or at the wrong address does nothing', async () => {
  const { environmentId, path } = await newScene({})
  source.head = newCommit()
  const before = await historyOf(environmentId)
  const stranger = await api.newOrganization()
  const theirs = await api.as(stranger.token)('POST', `/organization/${stranger.id}/gitWebhook`)
  for (const host of hostNames) {
    const body = pushBody(host, { path, after: source.head })
    await refuses(hook.path, sign(host, body, 'another secret'), 401)
    await refuses(hook.path, { ...sign(host, body, hook.secret), headers: sign(host, body, 'x').headers }, 401)
    await refuses(hook.path, { headers: { 'content-type': 'application/json' }, body }, 400)
    await refuses(`${hook.path.slice(0, -4)}0000`, sign(host, body, hook.secret), 404)
    await refuses('/git-webhooks/..%2f', sign(host, body, hook.secret), 404)
    // GitLab's oldest way has nothing that covers the body.
    if (host !== 'gitlab') await refuses(hook.path, { ...sign(host, body, hook.secret), body: `${body} ` }, 401)
    for (const wrong of ['', '[]', '{"ref":', '{"__proto__":{"full_name":"a/b"}}', '\u0000'])
      await refuses(hook.path, sign(host, wrong, hook.secret), 400)
    // Genuine, but from another organization: it concerns what that one follows, which is nothing.
    const own = await send(new URL(theirs.body.url).pathname, sign(host, body, theirs.body.signing_secret))
    assert.deepEqual([own.status, own.body.repositories], [202, 0], host)
  }
  assert.deepEqual(await database.query('select * from push_hint'), [])
  assert.deepEqual(await historyOf(environmentId), before)
})

test('a bad signature of the host is not saved by a good copy, nor an old one by its time', async () => {
  const body = pushBody('forgejo', { path: 'a/b' })
  const [good, bad] = [sign('forgejo', body, hook.secret).headers, sign('forgejo', body, 'x').headers]
  await refuses(hook.path, { body, headers: { ...good, 'x-forgejo-signature': bad['x-forgejo-signature']! } }, 401)
  const late = Math.floor(Date.now() / 1000) - 3600
  const gitlab = pushBody('gitlab', { path: 'a/b' })
  const headers = { 'x-gitlab-event': 'Push Hook', ...signHeaders([hook.secret], 'id', gitlab, late) }
  await refuses(hook.path, { body: gitlab, headers }, 401)
})

const garbageBodies = howMany(2000, 10_000)

test(`${garbageBodies} garbage bodies do nothing, write a line each, and delay no other request`, async () => {
  const lines: Json[] = []
  const { log } = api.parts
  const warn = log.warn.bind(log)
  log.warn = ((about: Json, text: string) => {
    if (/git host/.test(text)) lines.push(about)
  }) as typeof log.warn
  try {
    const own = await newHook()
    const garbage = randomBytes(1000).toString('base64')
    let sent = 0
    let judged = 0
    const sender = async (): Promise<void> => {
      while (sent < garbageBodies) {
        sent += 1
        const headers = { 'x-github-event': 'push', 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` }
        const answer = await fetch(api.url + own.path, { method: 'POST', headers, body: `${sent}\r\n${garbage}` })
        assert.ok(answer.status === 401 || answer.status === 503, String(answer.status))
        judged += answer.status === 401 ? 1 : 0
        await answer.arrayBuffer()
      }
    }
    const counts = () =>
      database.query('select (select count(*) from push_hint) a, (select count(*) from git_delivery) b')
    const before = await counts()
    const others = Promise.all(Array.from({ length: 8 }, sender))
    const { path } = await newScene({})
    source.head = newCommit()
    assert.equal((await send(hook.path, pushDelivery('github', { path, after: source.head }, hook.secret))).status, 202)
    await others
    const after = await counts()
    assert.equal(Number(after[0]!.b) - Number(before[0]!.b), 1)
    assert.ok(judged > garbageBodies / 2, `${judged} were judged, the others sent away`)
    assert.equal(lines.length, judged)
    assert.deepEqual([lines[0].gitWebhook, lines[0].reason], [own.id, 'wrong signature'])
    assert.ok(lines.every((line) => !JSON.stringify(line).includes('\\r')))
  } finally {
    log.warn = warn
  }
})

test('endless bodies use only the slots of their own organization', async (t) => {
  const stranger = await api.newOrganization()
  const theirs = await api.as(stranger.token)('POST', `/organization/${stranger.id}/gitWebhook`)
  const { pathname, host, port } = new URL(theirs.body.url.replace(/^https?:\/\/[^/]*/, api.url))
  const head = `POST ${pathname} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 100\r\n\r\n{`
  let refused = 0
  const sockets = Array.from({ length: 40 }, () => {
    const socket = connect(Number(port), '127.0.0.1').on('error', () => {})
    return socket
      .on('connect', () => socket.write(head))
      .on('data', (bytes) => {
        refused += /^HTTP\/1.1 503 /.test(String(bytes)) ? 1 : 0
      })
  })
  t.after(() => {
    for (const socket of sockets) socket.destroy()
  })
  await until(() => refused === 32, { what: 'all but eight to have waited in vain', timeoutMs: 20_000 })
  const { path } = await newScene({})
  await push(path)
})

test('a secret is shown once and can be changed; the previous one is accepted for a day, and none before that', async () => {
  const own = await newHook({ description: 'ours' })
  const listed = (await call('GET', collection)).body.results.find(({ id }: Json) => id === own.id)
  assert.deepEqual([listed.description, 'signing_secret' in listed, listed.last_delivery_at], ['ours', false, null])
  const accepts = async (secret: string): Promise<number> =>
    (await send(own.path, pushDelivery('gitea', { path: 'no/body' }, secret))).status
  const rotate = async (): Promise<string> => (await call('POST', `${collection}/${own.id}/rotate`)).body.signing_secret
  const second = await rotate()
  assert.deepEqual([await accepts(own.secret), await accepts(second), await accepts('')], [202, 202, 401])
  const third = await rotate()
  assert.deepEqual([await accepts(own.secret), await accepts(second), await accepts(third)], [401, 202, 202])
  await database.query(
    `update node set spec = spec || jsonb_build_object('rotated_at', clock_timestamp() - interval '25 hours') where id = $1`,
    [own.id],
  )
  assert.deepEqual([await accepts(second), await accepts(third)], [401, 202])
  assert.notEqual((await call('GET', `${collection}/${own.id}`)).body.last_delivery_at, null)
  assert.equal((await call('DELETE', `${collection}/${own.id}`)).status, 204)
  assert.equal(await accepts(third), 404)
})

test('a webhook for a git token concerns only repositories that are read with it, and prevents its deletion', async () => {
  const body = { name: 'for hooks', type: 'GITHUB', token: 'x' }
  const { id } = (await call('POST', `/organization/${organizationId}/gitToken`, body)).body
  const own = await newHook({ git_token_id: id })
  const { path } = await newScene({})
  const told = () => pushDelivery('github', { path, after: newCommit() }, own.secret)
  assert.equal((await send(own.path, told())).body.repositories, 0)
  const git_repository = { url: `https://git.example/${path}`, branch: 'main', git_token_id: id }
  const { environmentId } = await newPlace(api)
  await newApplication(api, environmentId, { git_repository, auto_deploy: true })
  await looked(environmentId)
  assert.equal((await send(own.path, told())).body.repositories, 1)
  const stranger = await api.newOrganization()
  const wrong = await api.as(stranger.token)('POST', `/organization/${stranger.id}/gitWebhook`, { git_token_id: id })
  assert.equal(wrong.status, 400)
})

test('only the branch that a service follows counts; other tags and deleted branches do not', async () => {
  const { environmentId, path } = await newScene({})
  source.head = newCommit()
  for (const told of [{ branch: 'other' }, { after: '0'.repeat(40) }]) {
    const answer = await send(hook.path, pushDelivery('github', { path, ...told }, hook.secret))
    assert.deepEqual([answer.status, answer.body.repositories], [202, 0])
  }
  const tag = pushBody('github', { path }).replace('refs/heads/', 'refs/tags/other-')
  assert.equal((await send(hook.path, sign('github', tag, hook.secret))).body.repositories, 0)
  const form = new URLSearchParams({ payload: pushBody('github', { path }) }).toString()
  const { headers, body } = sign('github', form, hook.secret)
  const asForm = { body, headers: { ...headers, 'content-type': 'application/x-www-form-urlencoded' } }
  assert.equal((await send(hook.path, asForm)).body.repositories, 1)
  assert.equal((await historyOf(environmentId)).length, 0)
})

test('auto_deploy, skip words, the root path, restrictions and a stop decide which services a push deploys', async () => {
  const { environmentId, path, services } = await newScene(
    { name: 'all' },
    { name: 'rooted', git_repository: { url: 'https://x.example/a', branch: 'main', root_path: '/api' } },
    { name: 'manual', auto_deploy: false },
  )
  const [all, rooted, manual] = services
  const url = `https://github.com/${path}`
  await call('PUT', `/application/${rooted.id}`, { git_repository: { url, branch: 'main', root_path: '/api' } })
  await looked(environmentId)
  const outcome = async (changes: string[] | null, message = 'a change') => {
    source.looks.length = 0
    Object.assign(source, { message, changes, head: newCommit() })
    for (const each of [path]) {
      const told = pushDelivery('gitlab', { path: each, after: source.head }, hook.secret)
      assert.equal((await send(hook.path, told)).status, 202)
    }
    for (const each of [all, rooted]) await judged(each, source.head)
    await settled(environmentId)
    const words = await Promise.all([all, rooted].map(lastPush))
    return words.map(({ outcome, reason }) => reason ?? outcome)
  }
  // The url of one was written in other letters: two repositories to us, reported with one path.
  const nothing = 'Nothing below /api has changed.'
  assert.deepEqual(await outcome(['web/x']), ['DEPLOYED', nothing])
  assert.deepEqual(await outcome(['api/x', 'web/x']), ['DEPLOYED', 'DEPLOYED'])
  assert.deepEqual(await outcome(null), ['DEPLOYED', 'DEPLOYED'])
  const words = 'The message of the commit has [skip CI].'
  assert.deepEqual(await outcome(['api/x'], 'a change [skip CI]'), [words, words])
  const restrict = (mode: string, value: string) =>
    call('POST', `/application/${all.id}/deploymentRestriction`, { mode, type: 'PATH', value })
  await restrict('EXCLUDE', 'docs/')
  const excluded = 'All changes are below paths that a deployment restriction excludes.'
  assert.deepEqual(await outcome(['docs/x']), [excluded, nothing])
  assert.deepEqual(await outcome(['docs/x', 'README.md']), ['DEPLOYED', nothing])
  await restrict('MATCH', 'src/')
  assert.deepEqual(await outcome(['README.md']), ['No changed path matches a deployment restriction.', nothing])
  assert.deepEqual(await outcome(['src/docs/x']), ['DEPLOYED', nothing])
  assert.equal((await call('POST', `/application/${all.id}/stop`)).status, 202)
  await settled(environmentId)
  assert.deepEqual(await outcome(['src/x', 'api/x']), ['The service is stopped.', 'DEPLOYED'])
  assert.equal(await lastPush(manual), null)
  const { body } = await call('GET', `/application/${manual.id}/status`, undefined, {
    'x-state-vocabulary': 'deployment',
  })
  assert.equal(body.state, 'READY')
})

test('a push deploys a job from a repository, and runs the terraform_action of a module', async () => {
  const { environmentId, path } = await newScene()
  const git_repository = { url: `https://github.com/${path}`, branch: 'main' }
  const make = async (kind: string, body: object): Promise<string> => {
    const answer = await call('POST', `/environment/${environmentId}/${kind}`, body)
    assert.equal(answer.status, 201, JSON.stringify(answer.body))
    return answer.body.id
  }
  const docker = { git_repository, dockerfile_path: 'Dockerfile' }
  const schedule = { on_start: { arguments: [] } }
  const module = (terraform_action: string, auto_deploy = true) =>
    make('terraform', {
      ...{ name: `${terraform_action} ${auto_deploy}`, description: '', engine: 'OPEN_TOFU' },
      ...{ auto_deploy_config: { auto_deploy, terraform_action }, backend: { kubernetes: {} } },
      ...{ terraform_files_source: { git_repository }, provider_version: { explicit_version: '' } },
    })
  const jobId = await make('job', { name: 'job', auto_deploy: true, source: { docker }, schedule })
  const modules = [await module('DEFAULT'), await module('PLAN'), await module('NOOP'), await module('PLAN', false)]
  await looked(environmentId)
  const commit = await push(path)
  for (const id of [jobId, ...modules.slice(0, 3)]) await judged({ id }, commit)
  assert.equal((await lastPush({ id: modules[2] })).outcome, 'SKIPPED')
  assert.equal(await lastPush({ id: modules[3] }), null)
  const rows = await database.query<{ id: string; requested: Json }>(
    `select service_id as id, requested from deployment_service where service_id = any($1)`,
    [[jobId, ...modules]],
  )
  const asked = new Map(rows.map(({ id, requested }) => [id, requested]))
  const commitId = commit
  assert.deepEqual(
    [jobId, ...modules].map((id) => asked.get(id)),
    [{ commitId }, { commitId }, { commitId, forceEvent: 'PLAN' }, undefined, undefined],
  )
})

test('a changed setting, a clone and a delete start and end the following at once', async () => {
  const { environmentId, path, services } = await newScene({ name: 'changing' })
  const followed = () =>
    database.query<{ branch: string; path: string }>(
      `select f.branch, w.path from followed_branch f join watched_repository w on w.id = f.repository_id where service_id = $1`,
      [services[0].id],
    )
  const edit = (body: object) => call('PUT', `/application/${services[0].id}`, body)
  assert.deepEqual(await followed(), [{ branch: 'main', path }])
  const [before] = await seenIn(environmentId)
  await edit({ cpu: 300 })
  assert.deepEqual((await seenIn(environmentId))[0], before)
  await edit({ git_repository: { url: `https://git.example:8443/deep/${path}.git/`, branch: 'next' } })
  assert.deepEqual(await followed(), [{ branch: 'next', path: `deep/${path}` }])
  const clone = await call('POST', `/environment/${environmentId}/clone`, { name: 'a clone', mode: 'DEVELOPMENT' })
  await looked(clone.body.id)
  assert.equal((await seenIn(clone.body.id)).length, 1)
  await edit({ auto_deploy: false })
  assert.deepEqual(await followed(), [])
  await edit({ auto_deploy: true })
  assert.equal((await followed()).length, 1)
  assert.equal((await call('DELETE', `/application/${services[0].id}`)).status, 204)
  await until(async () => (await followed()).length === 0, { what: 'the end' })
})

test('ten pushes in a row deploy the last: waiting deployments are replaced, with all their services', async () => {
  const { environmentId, path, services } = await newScene({ name: 'one' }, { name: 'two' })
  source.image = 'fake/never-ready'
  await push(path)
  const [first] = await until(
    async () => {
      const all = await historyOf(environmentId)
      return all.length === 1 ? all : null
    },
    { what: 'the first to begin' },
  )
  const waiting = async () => (await call('GET', `/environment/${environmentId}/deploymentQueue`)).body.results
  for (let count = 0; count < 9; count += 1) {
    const commit = await push(path)
    for (const each of services) await judged(each, commit)
    assert.equal((await waiting()).length, 1)
  }
  // The last concerns one of the two; the other gets it too, because its own push was still waiting.
  await call('POST', `/application/${services[1].id}/deploymentRestriction`, {
    mode: 'MATCH',
    type: 'PATH',
    value: 'two/',
  })
  const last = await push(path, { changes: ['one/x'] })
  for (const each of services) await judged(each, last)
  assert.equal((await waiting())[0].stages[0].services.length, 2)
  source.image = 'fake/serve'
  await call('POST', `/environment/${environmentId}/cancelDeployment`)
  assert.ok(first)
  const final = await push(path)
  await settled(environmentId)
  for (const each of services) await judged(each, final)
  await until(async () => (await deployedCommit(services[0])) === final, { what: 'the last', timeoutMs: 20_000 })
  const { results } = (await call('GET', `/environment/${environmentId}/deploymentQueue`)).body
  assert.deepEqual(results, [])
})

test('a repository is also polled: pushes without a webhook are found, once', async () => {
  const { environmentId, path, services } = await newScene({ name: 'polled' })
  source.head = newCommit()
  const due = () =>
    database.query(`update watched_repository set next_at = '-infinity' where path = $1 and lease_until < now()`, [
      path,
    ])
  await due()
  await database.query(`select pg_notify('slipway_push', '')`)
  await judged(services[0], source.head)
  await settled(environmentId)
  const history = await historyOf(environmentId)
  assert.deepEqual([history.length, history[0].triggered_by], [1, 'git push'])
  const [row] = await database.query<{ inSeconds: number }>(
    `select extract(epoch from next_at - now())::float8 as "inSeconds" from watched_repository where path = $1`,
    [path],
  )
  assert.ok(row!.inSeconds > 50 && row!.inSeconds < 70, String(row!.inSeconds))
  const { next_look_at: next, status } = (await call('GET', `/service/${services[0].id}/gitWebhookStatus`)).body
  assert.deepEqual([typeof next, status], ['string', 'UNABLE_TO_VERIFY'])
})

test('a host that does not answer is polled less and less often, and pushes made meanwhile are found', async () => {
  const { environmentId, path, services } = await newScene({ name: 'patient' })
  source.refusal = new DeploymentError('git_unreachable', 'Could not connect to github.com.', { next: 'retry' })
  const commit = await push(path)
  const status = async () => (await call('GET', `/service/${services[0].id}/gitWebhookStatus`)).body
  await until(async () => (await status()).look_error === 'Could not connect to github.com.', { what: 'the error' })
  source.refusal = null
  await database.query(`update push_hint set due_at = now()`)
  await database.query(`select pg_notify('slipway_push', '')`)
  await judged(services[0], commit)
  assert.deepEqual([(await status()).look_error, (await status()).status], [null, 'ACTIVE'])
  await settled(environmentId)
  assert.equal((await historyOf(environmentId)).length, 1)
})

test('a push that cannot be deployed says why, and delays no other service', async () => {
  const { environmentId, path, services } = await newScene({ name: 'good' }, { name: 'bad' })
  await database.query(`update service_state set cluster_id = cluster_id where service_id = $1`, [services[1].id])
  source.message = new DeploymentError('git_refused', 'The commit is too large.')
  Object.assign(source, { head: newCommit() })
  await send(hook.path, pushDelivery('bitbucket', { path, after: source.head }, hook.secret))
  // The deployment of the commit reports its error.
  for (const each of services) await judged(each, source.head)
  await settled(environmentId)
  const { body } = await call('GET', `/application/${services[0].id}/status`, undefined, {
    'x-state-vocabulary': 'deployment',
  })
  assert.deepEqual([body.state, body.error.message], ['BUILD_ERROR', 'The commit is too large.'])
  source.message = 'a change'
})
