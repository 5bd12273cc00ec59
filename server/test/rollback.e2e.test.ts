/**
 * Plans, untouched services and rollbacks on a real engine: exactly the changes of the plan are made, and nothing is
 * built.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pack } from 'tar-stream'
import { deaf, page } from './support/docker/apps.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import { login, registryIsMissing, startRegistry, untag } from './support/docker/registry.ts'
import type { Json } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploymentLog, hostOf, settleAt, visit } from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway, git } = await withSlipway()

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(
    answer.status < 300,
    `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)} ${slipway.output().slice(-3000)}`,
  )
  return answer.body
}

const act = async (path: string, verb: string, body?: unknown): Promise<string> => {
  await send('POST', `${path}/${verb}`, body)
  return settleAt(slipway, path)
}

const plannedFor = async (path: string, id: string, body?: unknown): Promise<Json> => {
  const answer = await send('POST', `${path}?dry_run=true`, body)
  return answer.stages.flatMap(({ services }: Json) => services).find((each: Json) => each.id === id)
}

const idsOf = async (id: string): Promise<string[]> => (await containersOf(id)).map(({ Id }) => Id).sort()

/** Images that were built for a service. */
const builtFor = async (id: string): Promise<string[]> => {
  const images = await engine.call<{ RepoTags: string[] | null }[]>('GET', '/images/json')
  return images.flatMap(({ RepoTags }) => (RepoTags ?? []).filter((tag) => tag.includes(id))).sort()
}

/** Readiness that gives up within seconds. */
const impatient = {
  readiness_probe: {
    type: { tcp: { port: 8080 } },
    initial_delay_seconds: 0,
    period_seconds: 1,
    timeout_seconds: 1,
    failure_threshold: 3,
  },
}

test('after a bad deployment a rollback serves the old version again at once, without a build', async (t) => {
  const place = await createPlace(slipway)
  await git.createRepository('rollback')
  const one = await git.commit('rollback', page('one'), 'first')
  const url = git.url('rollback')
  const { id } = await createApplication(slipway, place, 'web', url, { healthchecks: impatient })
  const path = `/application/${id}`
  const host = hostOf(place, 'web')
  const serves = async (text: string): Promise<boolean> => (await visit(slipway, host)).text === text
  await send('POST', `${path}/environmentVariable`, { key: 'COLOUR', value: 'blue' })
  assert.equal(await act(path, 'deploy'), 'DEPLOYED')
  const first = await idsOf(id)

  const environment = `/environment/${place.environmentId}`
  assert.equal((await plannedFor(`${environment}/deploy`, id)).effect, 'UNTOUCHED')
  await send('POST', `${environment}/deploy`)
  assert.equal(await settleAt(slipway, path), 'DEPLOYED')
  assert.deepEqual(await idsOf(id), first)
  assert.match(await deploymentLog(slipway, place.environmentId), /No changes; skipping\./)

  const two = await git.commit('rollback', page('two'), 'second')
  await send('POST', `${path}/environmentVariable`, { key: 'COLOUR', value: 'green' })
  assert.equal((await plannedFor(`${environment}/deploy`, id)).effect, 'BUILD')
  assert.equal(await act(path, 'deploy'), 'DEPLOYED')
  assert.ok(await serves('two'))
  const [, old] = (await send('GET', `${path}/release`)).results

  const planned = await plannedFor(`${path}/rollback`, id)
  assert.deepEqual([planned.effect, planned.builds, planned.downtime], ['ROLL_OUT', false, false])
  assert.deepEqual(planned.changes.commit, { from: two, to: one })
  assert.deepEqual(planned.changes.variables, { added: [], changed: ['COLOUR'], removed: [] })
  assert.equal(planned.changes.image.to, old.image)

  const images = await builtFor(id)
  assert.equal(images.length, 2)
  const requests = git.requests.length
  const began = performance.now()
  await send('POST', `${path}/rollback`)
  await until(() => serves('one'), { timeoutMs: 30_000, what: 'the old version' })
  t.diagnostic(`from the request to the old version: ${Math.round(performance.now() - began)} ms`)
  assert.equal(await settleAt(slipway, path), 'DEPLOYED')
  const { body: status } = await slipway.api('GET', `${path}/status`)
  assert.equal(status.service_deployment_status, 'OUT_OF_DATE')
  const steps = status.steps.details.map(({ step_name: name }: Json) => name)
  assert.ok(!steps.includes('GIT_CLONE') && !steps.includes('BUILD'), steps.join())
  assert.deepEqual([await builtFor(id), git.requests.length], [images, requests])
  const [container] = await containersOf(id)
  const { Config } = await engine.call<Json>('GET', `/containers/${container!.Id}/json`)
  assert.ok(Config.Env.includes('COLOUR=blue'), Config.Env.join())

  await git.commit('rollback', deaf('three'), 'third')
  assert.equal(await act(path, 'deploy'), 'DEPLOYMENT_ERROR')
  assert.ok(await serves('one'))
  const second = (await send('GET', `${path}/release`)).results.find((each: Json) => each.commit.git_commit_id === two)
  await act(path, 'rollback', { release_id: second.id })
  assert.ok(await serves('two'))
})

const buildImage = async (tag: string, text: string): Promise<void> => {
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, page(text).Dockerfile!)
  archive.entry({ name: 'index.html' }, page(text)['index.html']!)
  archive.finalize()
  const output = await engine.stream('POST', '/build', { query: { t: tag, rm: true, forcerm: true }, body: archive })
  let said = ''
  for await (const chunk of output) said += chunk
  assert.ok(!said.includes('errorDetail'), said)
}

test('a tag that has moved in its registry is rolled out by a deploy of the environment, as the plan says', {
  skip: registryIsMissing,
}, async (t) => {
  const registry = await startRegistry()
  try {
    for (const word of ['old', 'new']) await buildImage(`rollback-e2e:${word}`, word)
    await registry.publish('rollback-e2e:old', 'team/moving', 'stable')
    const place = await createPlace(slipway)
    const registryId = (
      await send('POST', `/organization/${place.organizationId}/containerRegistry`, {
        name: 'moving',
        kind: 'GENERIC_CR',
        description: 'with a login',
        url: registry.url,
        config: login,
      })
    ).id
    const environment = `/environment/${place.environmentId}`
    const { id } = await send('POST', `${environment}/container`, {
      name: 'moving',
      registry_id: registryId,
      image_name: 'team/moving',
      tag: 'stable',
      memory: 64,
      healthchecks: {},
      ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    })
    const path = `/container/${id}`
    assert.equal(await act(path, 'deploy'), 'DEPLOYED')
    assert.equal((await plannedFor(`${environment}/deploy`, id)).effect, 'UNTOUCHED')
    await registry.publish('rollback-e2e:new', 'team/moving', 'stable')
    const { effect, reason, changes } = await plannedFor(`${environment}/deploy`, id)
    assert.equal(effect, 'ROLL_OUT', reason)
    await send('POST', `${environment}/deploy`)
    assert.equal(await settleAt(slipway, path), 'DEPLOYED')
    assert.equal((await visit(slipway, hostOf(place, 'moving'))).text, 'new')
    const [newest] = (await send('GET', `${path}/release`)).results
    assert.equal(changes.image.to, newest.image)
    const began = performance.now()
    await send('POST', `${path}/rollback`)
    await until(async () => (await visit(slipway, hostOf(place, 'moving'))).text === 'old', {
      timeoutMs: 30_000,
      what: 'the old image',
    })
    t.diagnostic(`from the request to the old image: ${Math.round(performance.now() - began)} ms`)
    assert.equal(await settleAt(slipway, path), 'DEPLOYED')
    await send('DELETE', environment)
    await until(async () => (await slipway.api('GET', environment)).status === 404, {
      timeoutMs: 60_000,
      what: 'the end of the environment',
    })
  } finally {
    await registry.close()
    for (const word of ['old', 'new']) await untag(`rollback-e2e:${word}`)
  }
})
