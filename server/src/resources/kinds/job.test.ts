import assert from 'node:assert/strict'
import { test } from 'node:test'
import { containerBody, newRegistry } from '../../../test/cases/container.ts'
import { cronBody, lifecycleBody } from '../../../test/cases/job.ts'
import { headCommit, type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { job } from './job.ts'

const api = await startApi()
const { call } = api
const registryId = await newRegistry(api)
const image = { registry_id: registryId, image_name: 'fake/task', tag: '1.0' }

const create = async (body: Record<string, unknown>) => {
  const { environmentId } = await newPlace(api)
  return call('POST', `/environment/${environmentId}/job`, { name: 'work', ...body })
}
const createCron = (more: Record<string, unknown> = {}) => create(cronBody(registryId, more))
const createLifecycle = (more: Record<string, unknown> = {}) => create(lifecycleBody(more))

test('a cron job is created from an image and a schedule; the answer has the defaults and the registry', async () => {
  const { status, body } = await createCron()
  assert.equal(status, 201, JSON.stringify(body))
  assert.deepEqual([body.job_type, body.service_type, body.cpu, body.memory], ['CRON', 'JOB', 500, 512])
  assert.deepEqual([body.max_nb_restart, body.auto_preview, body.auto_deploy], [0, false, false])
  assert.deepEqual(body.schedule, { cronjob: { arguments: [], timezone: 'Etc/UTC', scheduled_at: '0 3 * * *' } })
  const { registry, ...source } = body.source.image
  assert.deepEqual(source, image)
  assert.deepEqual([registry.id, registry.kind], [registryId, 'DOCKER_HUB'])
  assert.equal(body.source.docker, undefined)
})

test('a lifecycle job is created from a repository, whose head is answered like that of an application', async () => {
  const { status, body } = await createLifecycle()
  assert.equal(status, 201, JSON.stringify(body))
  assert.equal(body.job_type, 'LIFECYCLE')
  assert.deepEqual(body.schedule, {
    on_start: { arguments: ['migrate'], entrypoint: 'sh -c' },
    lifecycle_type: 'GENERIC',
  })
  const { docker } = body.source
  assert.deepEqual([docker.dockerfile_path, docker.git_repository.owner], ['Dockerfile', 'example'])
  const head = async () => (await call('GET', `/job/${body.id}`)).body.source.docker.git_repository.deployed_commit_id
  await until(async () => (await head()) === headCommit, { what: 'the head' })
})

test('every field that is sent is answered, and an edit keeps what it leaves out', async () => {
  const sent = {
    name: 'whole',
    description: 'all of it',
    cpu: 250,
    memory: 128,
    gpu: 0,
    ephemeral_storage_in_gib: 1,
    max_nb_restart: 3,
    max_duration_seconds: 60,
    auto_preview: true,
    auto_deploy: true,
    port: 8080,
    icon_uri: 'app://icon',
    healthchecks: { liveness_probe: { type: { tcp: {} }, initial_delay_seconds: 1 } },
  }
  const cronjob = { arguments: ['a', 'b'], entrypoint: 'run', timezone: 'Europe/Paris', scheduled_at: '*/5 * * * MON' }
  const made = await createCron({ ...sent, schedule: { cronjob } })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const { healthchecks, ...plain } = sent
  for (const [field, value] of Object.entries(plain)) assert.deepEqual(made.body[field], value, field)
  assert.deepEqual(made.body.schedule, { cronjob })
  const path = `/job/${made.body.id}`
  const edited = await call('PUT', path, { memory: 256 })
  const { memory, updated_at, ...rest } = edited.body
  assert.deepEqual([edited.status, memory], [200, 256])
  for (const [field, value] of Object.entries(rest)) assert.deepEqual(value, made.body[field], field)
  const turned = await call('PUT', path, { ...lifecycleBody(), schedule: { on_stop: {}, cronjob: null } })
  assert.deepEqual([turned.body.job_type, turned.body.schedule.on_stop], ['LIFECYCLE', { arguments: [] }])
  assert.deepEqual(Object.keys(turned.body.source), ['docker'])
})

test('a wrong field is refused by name', async () => {
  const cases: [Record<string, unknown>, string][] = [
    [{ source: {} }, '/source'],
    [{ source: { image, docker: lifecycleBody().source } }, '/source/docker/git_repository'],
    [{ source: { image, ...(lifecycleBody().source as object) } }, '/source'],
    [{ source: { image: { ...image, tag: 'a b' } } }, '/source/image/tag'],
    [{ source: { image: { ...image, registry_id: api.clusterId } } }, '/source/image/registry_id'],
    [{ source: { docker: { git_repository: { url: 'ssh://git@a/b' } } } }, '/source/docker/git_repository/url'],
    [
      { source: { docker: { git_repository: { url: 'https://a/b' }, dockerfile_path: '../x' } } },
      '/source/docker/dockerfile_path',
    ],
    [
      { source: { docker: { git_repository: { url: 'https://a/b' }, dockerfile_raw: 'FROM x' } } },
      '/source/docker/dockerfile_raw',
    ],
    [{ schedule: {} }, '/schedule'],
    [{ schedule: undefined }, '/schedule'],
    [{ schedule: { cronjob: { scheduled_at: '0 3 * * *' }, on_start: {} } }, '/schedule'],
    [{ schedule: { cronjob: { scheduled_at: '0 3 * *' } } }, '/schedule/cronjob/scheduled_at'],
    [{ schedule: { cronjob: { scheduled_at: '61 3 * * *' } } }, '/schedule/cronjob/scheduled_at'],
    [{ schedule: { cronjob: { scheduled_at: '0 3 * * *', timezone: 'Mars' } } }, '/schedule/cronjob/timezone'],
    [{ max_nb_restart: -1 }, '/max_nb_restart'],
    [{ max_duration_seconds: -1 }, '/max_duration_seconds'],
    [{ port: 0 }, '/port'],
    [{ cpu: 1 }, '/cpu'],
    [{ gpu: 1 }, '/gpu'],
    [{ healthchecks: { readiness_probe: { type: { tcp: {} } } } }, '/healthchecks/readiness_probe/type'],
  ]
  for (const [more, field] of cases) {
    const { status, body } = await createCron(more)
    assert.equal(status, 400, JSON.stringify(more))
    const named = body.details.map((detail: Json) => detail.field)
    assert.ok(
      named.some((name: string) => name.startsWith(field)),
      `${JSON.stringify(more)}: ${named}`,
    )
  }
})

test('a deploy names a version in the words of the source, and only one', async () => {
  const [ofImage, ofGit] = [(await createCron()).body, (await createLifecycle()).body]
  const refused: [string, object, string][] = [
    [ofImage.id, { image_tag: '2', git_commit_id: headCommit }, '/image_tag'],
    [ofImage.id, { git_commit_id: headCommit }, '/git_commit_id'],
    [ofGit.id, { image_tag: '2' }, '/image_tag'],
  ]
  for (const [id, body, field] of refused) {
    const answer = await call('POST', `/job/${id}/deploy`, body)
    assert.deepEqual([answer.status, answer.body.details[0].field], [400, field])
  }
  assert.equal((await call('POST', `/job/${ofImage.id}/deploy`, { image_tag: '2', git_commit_id: '' })).status, 202)
  assert.equal((await call('POST', `/job/${ofGit.id}/deploy`, { git_commit_id: headCommit })).status, 202)
})

test('an event that a job does not have deploys nothing', async () => {
  const { body } = await createCron()
  const answer = await call('POST', `/job/${body.id}/redeploy?forceEvent=STOP`)
  assert.deepEqual([answer.status, answer.body.state, answer.body.deployment_request_id], [202, 'READY', null])
  assert.equal((await call('POST', `/job/${body.id}/redeploy?forceEvent=NEVER`)).status, 400)
  const asked = await call('POST', `/job/${body.id}/redeploy?forceEvent=CRON`)
  assert.deepEqual([asked.status, asked.body.status], [202, 'QUEUED'])
})

test('the audit log distinguishes a forced event and a redeploy from a deploy', async () => {
  const schedule = { on_start: { arguments: ['up'] }, on_stop: { arguments: ['down'] } }
  const { body: made } = await createCron({ schedule })
  for (const verb of ['deploy', 'redeploy', 'deploy?forceEvent=START', 'redeploy?forceEvent=STOP'])
    assert.equal((await call('POST', `/job/${made.id}/${verb}`)).status, 202)
  const { events } = (await call('GET', `/organization/${api.organizationId}/events?targetId=${made.id}&pageSize=100`))
    .body
  const words = ['TRIGGER_FORCE_RUN_STOP', 'TRIGGER_FORCE_RUN_DEPLOY', 'TRIGGER_REDEPLOY', 'TRIGGER_DEPLOY', 'CREATE']
  assert.deepEqual(
    events.map((event: Json) => event.event_type).filter((word: string) => /^(TRIGGER|CREATE)/.test(word)),
    words,
  )
})

test('a job runs to its end, is shown as done or failed, and is removed by its deletion', async () => {
  const reaches = (id: string, state: string) =>
    until(async () => (await call('GET', `/job/${id}/status`)).body.state === state, { what: state })
  const schedule = { on_start: { arguments: ['migrate'] } }
  const { body: made } = await createCron({ schedule, max_duration_seconds: 30 })
  const path = `/job/${made.id}`
  assert.equal((await call('POST', `${path}/deploy`, { image_tag: '2.0' })).status, 202)
  await reaches(made.id, 'DEPLOYED')
  const [entry] = (await call('GET', `${path}/deploymentHistoryV2`)).body.results
  const { image_name, tag, job_type } = entry.details
  assert.deepEqual([entry.status, image_name, tag, job_type], ['DEPLOYED', 'fake/task', '2.0', 'LIFECYCLE'])
  assert.equal((await call('POST', `${path}/redeploy?forceEvent=START`)).status, 202)
  await until(async () => (await call('GET', `${path}/deploymentHistory`)).body.results.length === 2, { what: 'a run' })
  assert.equal((await call('DELETE', path)).status, 204)
  await until(async () => (await call('GET', path)).status === 404, { what: 'the end' })

  const source = { image: { ...image, image_name: 'fake/crash' } }
  const { body: broken } = await createCron({ source, schedule })
  await call('POST', `/job/${broken.id}/deploy`)
  await reaches(broken.id, 'DEPLOYMENT_ERROR')
})

test('a new tag is deployed to the jobs that follow the image', async () => {
  const source = { image: { ...image, image_name: 'team/followed' } }
  const follower = (await createCron({ source, auto_deploy: true })).body
  const fixed = (await createCron({ source })).body
  const notice = { image_name: 'team/followed', tag: '2.0' }
  const { status, body } = await call('POST', `/organization/${api.organizationId}/job/deploy`, notice)
  assert.deepEqual([status, body.results.map(({ id }: Json) => id)], [202, [follower.id]])
  const tagOf = async ({ id }: Json) => (await call('GET', `/job/${id}`)).body.source.image.tag
  assert.deepEqual([await tagOf(follower), await tagOf(fixed)], ['2.0', '1.0'])
})

test('what a run by the clock puts out is a variable of the services beside, as after a deploy', async () => {
  const { environmentId } = await newPlace(api)
  const path = `/environment/${environmentId}`
  const told = 'write /slipway-output/slipway-output.json {"URL":{"value":"http://x"}}'
  const cronjob = { scheduled_at: '0 0 1 1 *', arguments: [told] }
  const made = await call('POST', `${path}/job`, { name: 'work', ...cronBody(registryId, { schedule: { cronjob } }) })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const { id } = made.body
  const other = await call('POST', `${path}/container`, { ...containerBody(registryId), name: 'beside' })
  assert.equal(other.status, 201, JSON.stringify(other.body))
  assert.equal((await call('POST', `/job/${id}/deploy`, {})).status, 202)
  await until(async () => (await call('GET', `/job/${id}/status`)).body.state === 'DEPLOYED', { what: 'the deploy' })
  await api.database.query('update schedule set next_at = now() where service_id = $1', [id])
  await api.database.query(`select pg_notify('slipway_schedule', '')`)
  const found = await until(
    async () => {
      const { results } = (await call('GET', `/container/${other.body.id}/environmentVariable`)).body
      return results.find(({ key }: Json) => key === `SLIPWAY_OUTPUT_JOB_Z${id.slice(0, 8).toUpperCase()}_URL`)
    },
    { what: 'the variable' },
  )
  assert.deepEqual([found.value, found.scope, found.service_id], ['http://x', 'BUILT_IN', id])
})

test('the engine gets the source of a job, its commands, when they run and their resources', async () => {
  const kept = async ({ body }: { body: Json }): Promise<Record<string, unknown>> =>
    (await api.database.query<Json>('select spec from node where id = $1', [body.id]))[0].spec
  const { source, workload, tasks } = job.deployable
  const cron = await kept(await createCron({ max_nb_restart: 2, max_duration_seconds: 60, port: 80, memory: 64 }))
  assert.deepEqual(source(cron), { from: 'image', registryId, name: 'fake/task', tag: '1.0' })
  const { instances, memoryMb, ports } = workload(cron)
  assert.deepEqual([instances, memoryMb, ports[0]?.internalPort], [0, 64, 80])
  assert.deepEqual(tasks!(cron)!.main, {
    on: { CRON: { entrypoint: null, arguments: null } },
    cron: { expression: '0 3 * * *', timeZone: 'Etc/UTC' },
    maxRestarts: 2,
    timeoutMs: 60_000,
  })
  const schedule = { on_start: { entrypoint: 'sh -c', arguments: ['a b'] }, on_delete: {} }
  const git_repository = { url: 'https://github.com/example/jobs.git', branch: 'dev', root_path: '/a' }
  const docker = { git_repository, dockerfile_path: 'b/Dockerfile', docker_target_build_stage: 'release' }
  const lifecycle = await kept(await createLifecycle({ source: { docker }, schedule, max_duration_seconds: 0 }))
  assert.deepEqual(tasks!(lifecycle)!.main, {
    on: { START: { entrypoint: ['sh', '-c'], arguments: ['a b'] }, DELETE: { entrypoint: null, arguments: null } },
    cron: null,
    maxRestarts: 0,
    timeoutMs: 604_800_000,
  })
  assert.deepEqual(source(lifecycle), {
    from: 'git',
    git: { url: 'https://github.com/example/jobs.git', branch: 'dev', gitTokenId: null },
    rootPath: '/a',
    dockerfilePath: 'b/Dockerfile',
    targetStage: 'release',
  })
})
