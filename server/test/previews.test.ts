/**
 * Previews of pull requests: an environment for each, which follows its pushes and is removed when it closes; and which
 * requests get none, and why.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, test } from 'node:test'
import { usualLimits } from '../src/limits/limits.ts'
import { services } from '../src/resources/index.ts'
import { startPreviews } from '../src/resources/previews/previews.ts'
import { sqlState } from '../src/store/database.ts'
import { type Json, newApplication, startApi } from './support/api.ts'
import { type Power, switchedDatabase } from './support/engine.ts'
import { type ApiName, apiNames, type OpenRequest, startGitHostApi } from './support/peers/git-host-api.ts'
import { requestDelivery } from './support/peers/git-hosts.ts'
import { until } from './support/until.ts'

const settings = { limits: { ...usualLimits, previews: 5 } }
let own: { stop(): Promise<void> } = { stop: async () => {} }
// Before the database that it uses is closed.
after(() => own.stop())
const api = await startApi({ settings, withoutPreviews: true })
const { call, organizationId, source, database, parts } = api
const host = await startGitHostApi()
after(() => host.close())
own = await startPreviews(parts, services, { alone: false })

let made = 0

const newCommit = (): string => randomBytes(20).toString('hex')

const post = async (path: string, body: object): Promise<Json> => {
  const answer = await call('POST', path, body)
  assert.ok(answer.status < 300, JSON.stringify(answer.body))
  return answer.body
}

interface Scene {
  path: string
  projectId: string
  environmentId: string
  tokenId: string
  api: Json
  worker: Json
}

const rule = async (environmentId: string, auto_preview: boolean): Promise<void> => {
  const path = `/environment/${environmentId}/deploymentRule`
  const { id } = (await call('GET', path)).body
  assert.equal((await call('PUT', `${path}/${id}`, { auto_preview })).status, 200)
}

/** An environment whose services of one repository are to be previewed. */
const newScene = async (name: ApiName = 'github', auto_preview = true): Promise<Scene> => {
  made += 1
  const path = `acme/previewed-${made}`
  const token = { name: `token ${made}`, ...host.token(name) }
  const { id: git_token_id } = await post(`/organization/${organizationId}/gitToken`, token)
  const { id: projectId } = await post(`/organization/${organizationId}/project`, { name: `previewed ${made}` })
  const { id: environmentId } = await post(`/project/${projectId}/environment`, { name: 'staging' })
  const git_repository = { url: `${host.origin}/${path}.git`, branch: 'main', git_token_id }
  const rest = { git_repository, auto_deploy: true, auto_preview }
  const first = await newApplication(api, environmentId, { name: 'api', ...rest })
  const second = await newApplication(api, environmentId, { name: 'worker', ...rest, auto_preview: false, ports: [] })
  await rule(environmentId, true)
  return { path, projectId, environmentId, tokenId: git_token_id, api: first, worker: second }
}

/** All repositories are polled now. */
const look = async (): Promise<void> => {
  await database.query(`update preview_source set next_at = '-infinity', asked = asked + 1`)
  await database.query(`select pg_notify('slipway_preview_source', '')`)
}

const open = async ({ path }: Scene, ...requests: OpenRequest[]): Promise<void> => {
  for (const { branch } of requests) if (!source.branches.has(branch)) source.branches.set(branch, newCommit())
  host.requests.set(path, requests)
  await look()
}

const previewsOf = async ({ environmentId }: Scene): Promise<Json[]> =>
  (await call('GET', `/environment/${environmentId}/preview`)).body.results

const previewOf = async (scene: Scene, number: number): Promise<Json | undefined> =>
  (await previewsOf(scene)).find(({ pull_request: { number: its } }) => its === number)

const became = (scene: Scene, number: number, state: string) =>
  until(
    async () => {
      const found = await previewOf(scene, number)
      return found?.state === state ? found : null
    },
    { what: `request ${number} to be ${state}`, timeoutMs: 60_000 },
  )

const isGone = (scene: Scene, number: number) =>
  until(async () => (await previewOf(scene, number)) === undefined, {
    what: `the end of request ${number}`,
    timeoutMs: 60_000,
  })

const environmentsOf = async ({ projectId }: Scene): Promise<Json[]> =>
  (await call('GET', `/project/${projectId}/environment`)).body.results

const applicationsOf = async (environmentId: string): Promise<Json[]> =>
  (await call('GET', `/environment/${environmentId}/application`)).body.results

const runs = (environmentId: string, commit: string) =>
  until(
    async () => {
      const all = await applicationsOf(environmentId)
      return all.length > 0 && all.every(({ git_repository: { deployed_commit_id: id } }) => id === commit)
    },
    { what: `commit ${commit} to run`, timeoutMs: 60_000 },
  )

const commentOn = (number: number, pattern: RegExp) =>
  until(() => host.comments.filter(({ request }) => request === number).some(({ text }) => pattern.test(text)), {
    what: `the comment ${pattern}`,
    timeoutMs: 60_000,
  })

test('a pull request that a host reports gets its own environment, which follows its pushes and is removed with it', async () => {
  for (const [index, name] of apiNames.entries()) {
    const scene = await newScene(name)
    const number = 100 + index
    const branch = `change-${name}`
    await post(`/environment/${scene.environmentId}/environmentVariable`, { key: 'GREETING', value: 'hello' })
    await until(
      async () => (await database.query('select 1 from preview_source where path = $1', [scene.path])).length > 0,
      {
        what: 'the repository to be watched',
      },
    )
    const hook = await post(`/organization/${organizationId}/gitWebhook`, { git_token_id: scene.tokenId })
    const tell = async (): Promise<void> => {
      const { headers, body } = requestDelivery(name, scene.path, hook.signing_secret)
      const answer = await fetch(api.url + new URL(hook.url).pathname, { method: 'POST', headers, body })
      assert.deepEqual([answer.status, (await answer.json()) as Json], [202, { status: 'ACCEPTED', repositories: 1 }])
    }
    const first = newCommit()
    source.branches.set(branch, first)
    host.requests.set(scene.path, [{ number, branch }])
    await tell()
    const preview = await became(scene, number, 'ACTIVE')
    const id = preview.environment_id
    await runs(id, first)
    const environment = (await call('GET', `/environment/${id}`)).body
    assert.deepEqual([environment.mode, environment.name], ['PREVIEW', `staging previewed-${made} #${number}`])
    // Every service of the repository has the branch, and none is deployed by anything but the request. Services that
    // requests can wake sleep while there are none.
    const services = await applicationsOf(id)
    assert.deepEqual(
      services.map((each) => [each.name, each.git_repository.branch, each.auto_deploy, each.min_running_instances]),
      [
        ['api', branch, false, 0],
        ['worker', branch, false, 1],
      ],
    )
    const variables = (await call('GET', `/environment/${id}/environmentVariable`)).body.results
    assert.equal(variables.find(({ key }: Json) => key === 'GREETING').value, 'hello')
    await commentOn(number, /api \| deployed \| http:\/\/.+\.localhost:8000/)
    await until(() => host.statuses.some(({ commit, state }) => commit === first && /success/i.test(state)), {
      what: 'the status',
    })

    const second = newCommit()
    source.branches.set(branch, second)
    await tell()
    await runs(id, second)
    assert.equal((await previewOf(scene, number))!.environment_id, id)

    host.requests.set(scene.path, [])
    await tell()
    await isGone(scene, number)
    assert.equal((await call('GET', `/environment/${id}`)).status, 404)
    assert.equal((await environmentsOf(scene)).length, 1)
    await commentOn(number, /was removed with all/)
    assert.equal(host.comments.filter(({ request }) => request === number).length, 1)
    await rule(scene.environmentId, false)
  }
})

test('one more than a project may have waits with the reason, and continues when another one ends', async () => {
  const scene = await newScene()
  const requests = [1, 2, 3, 4, 5, 6].map((number) => ({ number: 200 + number, branch: `many-${number}` }))
  await open(scene, ...requests)
  const states = async () => (await previewsOf(scene)).map(({ state }) => state).toSorted()
  await until(async () => (await states()).join() === 'ACTIVE,ACTIVE,ACTIVE,ACTIVE,ACTIVE,WAITING', {
    what: 'five of six',
    timeoutMs: 60_000,
  })
  const waiting = await until(
    async () => (await previewsOf(scene)).find(({ state, reason }) => state === 'WAITING' && reason !== null) ?? null,
    { what: 'the reason' },
  )
  assert.match(waiting.reason, /^The limit is 5 previews of pull requests in a project.*SLIPWAY_LIMIT_PREVIEWS\.$/)
  const { number } = waiting.pull_request
  await commentOn(number, /waits.*The limit is 5 previews.*SLIPWAY\\_LIMIT\\_PREVIEWS\./)
  assert.equal((await environmentsOf(scene)).length, 6)
  const closed = requests.find((each) => each.number !== number)!
  await open(scene, ...requests.filter((each) => each !== closed))
  await became(scene, number, 'ACTIVE')
  await open(scene)
  for (const each of requests) await isGone(scene, each.number)
  assert.equal((await environmentsOf(scene)).length, 1)
})

test('forks, other branches, services without auto_preview and previews themselves get none, and a fork gets the reason', async () => {
  const scene = await newScene()
  const unwanted = await newScene('github', false)
  await open(scene, { number: 301, branch: 'theirs', fork: true }, { number: 302, branch: 'x', base: 'release' })
  await open(unwanted, { number: 303, branch: 'y' })
  const refused = await became(scene, 301, 'REFUSED')
  assert.match(refused.reason, /fork/)
  await commentOn(301, /gets no preview.*fork/)
  assert.deepEqual([(await previewsOf(scene)).length, (await previewsOf(unwanted)).length], [1, 0])
  assert.deepEqual([(await environmentsOf(scene)).length, (await environmentsOf(unwanted)).length], [1, 1])
  await open(scene)
  await isGone(scene, 301)
})

test('an unavailable host closes nothing and is reported; a preview without pushes expires, and a push makes it again', async () => {
  const scene = await newScene()
  const request = { number: 401, branch: 'long' }
  await open(scene, request)
  const { environment_id: id } = await became(scene, 401, 'ACTIVE')
  const problems = async (): Promise<string[]> =>
    (await call('GET', `/environment/${scene.environmentId}/preview`)).body.problems
  host.requests.set(scene.path, [])
  host.setFault(503)
  await look()
  await until(async () => (await problems()).some((text) => /api: The git host answered with status 503/.test(text)), {
    what: 'the fault',
    timeoutMs: 60_000,
  })
  assert.equal((await previewOf(scene, 401))!.pull_request.is_open, true)
  host.requests.set(scene.path, [request])
  host.setFault(null)
  await look()
  await until(async () => (await problems()).length === 0, { what: 'the host', timeoutMs: 60_000 })
  await database.query(
    `update preview set expires_at = '-infinity', next_at = '-infinity', changes = changes + 1 where environment_id = $1`,
    [id],
  )
  await database.query(`select pg_notify('slipway_preview', '')`)
  const expired = await became(scene, 401, 'EXPIRED')
  assert.match(expired.reason, /no push within/)
  assert.equal((await call('GET', `/environment/${id}`)).status, 404)
  source.branches.set('long', newCommit())
  await look()
  const again = await became(scene, 401, 'ACTIVE')
  assert.notEqual(again.environment_id, id)
  // One that is deleted by hand is not made again either, until the next push.
  assert.equal((await call('DELETE', `/environment/${again.environment_id}`)).status, 204)
  await became(scene, 401, 'EXPIRED')
  await open(scene)
  await isGone(scene, 401)
})

/** Statements of killed processes may still run in the database, and collide with the start. */
const restart = async (): Promise<{ stop(): Promise<void> }> => {
  for (;;)
    try {
      return await startPreviews(parts, services, { alone: true })
    } catch (error) {
      if (sqlState(error) !== '40P01') throw error
    }
}

for (const lateCut of [false, true])
  test(`one environment is made, and none is left over, even if the process dies at any call ${lateCut ? 'after' : 'before'} it happens`, async () => {
    const scene = await newScene()
    await own.stop()
    try {
      let deaths = 0
      for (let calls = lateCut ? 2 : 1, survived = false; !survived; calls += 2) {
        const request = { number: (lateCut ? 600 : 500) + calls, branch: `kill-${lateCut}-${calls}` }
        const live = async (state: 'ACTIVE' | null) => {
          const power: Power = { off: false, callsLeft: calls, lateCut }
          const dying = await startPreviews({ ...parts, database: switchedDatabase(database, power) }, services, {
            alone: false,
            worker: 'dead',
          })
          await open(scene, ...(state === null ? [] : [request]))
          const reached = async () => (await previewOf(scene, request.number))?.state === (state ?? undefined)
          await until(async () => power.off || (await reached()), { what: `death at ${calls}`, timeoutMs: 60_000 })
          const isDead = power.off
          power.callsLeft = null
          power.off = true
          // Such a statement may still take a lease: leases of killed processes are ended.
          own = await restart()
          await until(
            async () => {
              // As when they have run out.
              for (const table of ['preview', 'preview_source'])
                await database.query(`update ${table} set lease_until = '-infinity' where worker = 'dead'`)
              await look()
              await database.query(`update preview set next_at = '-infinity' where lease_until < clock_timestamp()`)
              await database.query(`select pg_notify('slipway_preview', '')`)
              return reached()
            },
            { what: `the end after death at ${calls}`, timeoutMs: 90_000 },
          )
          void dying
          deaths += isDead ? 1 : 0
          return isDead
        }
        const diedMaking = await live('ACTIVE')
        assert.equal((await environmentsOf(scene)).length, 2, `call ${calls}`)
        await own.stop()
        const diedEnding = await live(null)
        assert.equal((await environmentsOf(scene)).length, 1, `call ${calls}`)
        await own.stop()
        survived = (!diedMaking && !diedEnding) || calls > 24
      }
      assert.ok(deaths > 5, String(deaths))
    } finally {
      await own.stop()
      own = await startPreviews(parts, services, { alone: true })
    }
  })
