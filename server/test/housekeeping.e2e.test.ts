/** What many deployments, failed ones and deleted services leave on a real engine. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import type { Json } from './support/slipway/slipway.ts'
import { createApplication, createPlace, hostOf, settleAt, visit } from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway, git } = await withSlipway({ env: { SLIPWAY_RELEASES_KEPT: '4', SLIPWAY_BUILD_CACHE_MB: '1' } })

/** Two stages, and in each a step that depends on the changed file: their layers are new each time. */
const staged = (text: string): Record<string, string> => ({
  Dockerfile: [
    `FROM ${busyboxImage} AS made`,
    'WORKDIR /made',
    'COPY index.html .',
    'RUN head -c 600000 /dev/urandom > noise && cat index.html > page.html',
    `FROM ${busyboxImage}`,
    'COPY --from=made /made/page.html /www/index.html',
    'RUN head -c 3000000 /dev/urandom > /www/noise',
    'CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]',
    '',
  ].join('\n'),
  'index.html': `${text}\n`,
})

interface Image {
  Id: string
  RepoTags: string[] | null
  ParentId: string
}

const imagesOf = (): Promise<Image[]> => engine.call<Image[]>('GET', '/images/json', { query: { all: true } })

/** Images named as built for a service. */
const builtFor = async (serviceId: string): Promise<string[]> =>
  (await imagesOf()).flatMap(({ Id, RepoTags }) =>
    (RepoTags ?? []).some((tag) => tag.includes(serviceId)) ? [Id] : [],
  )

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const act = async (path: string, verb: string, body?: unknown): Promise<string> => {
  await send('POST', `${path}/${verb}`, body)
  return settleAt(slipway, path)
}

const usedGb = async (organizationId: string): Promise<number> => {
  const { results } = await send('GET', `/organization/${organizationId}/limits`)
  return results.find(({ name }: Json) => name === 'IMAGES_GB').used
}

test('fifteen deployments of a changed file leave the images of four, each of which serves again without a build', async (t) => {
  await git.createRepository('many')
  const place = await createPlace(slipway)
  const { id } = await createApplication(slipway, place, 'many', git.url('many'))
  const path = `/application/${id}`
  const serves = async (text: string): Promise<boolean> => (await visit(slipway, hostOf(place, 'many'))).text === text
  const foreign = 'slipway-test-foreign:1'
  const [repo, tag] = foreign.split(':')
  await engine.call('POST', `/images/${busyboxImage}/tag`, { query: { repo, tag } })
  const counts: number[] = []
  for (let count = 1; count <= 15; count += 1) {
    await git.commit('many', staged(`version ${count}`), `change ${count}`)
    assert.equal(await act(path, 'deploy'), 'DEPLOYED', slipway.output().slice(-2000))
    if (count >= 10)
      counts.push(
        await until(async () => ((await builtFor(id)).length <= 4 ? (await imagesOf()).length : false), {
          what: 'the end of old images',
          timeoutMs: 30_000,
        }),
      )
  }
  assert.equal((await builtFor(id)).length, 4)
  const { results: listed } = await send('GET', `${path}/release`)
  assert.equal(listed.length, 4)
  for (const [index, release] of listed.entries()) {
    if (release.is_current) continue
    assert.equal(await act(path, 'rollback', { release_id: release.id }), 'DEPLOYED')
    await until(() => serves(`version ${15 - index}`), { what: 'the earlier version', timeoutMs: 30_000 })
    const { body: status } = await slipway.api('GET', `${path}/status`)
    const steps = status.steps.details.map(({ step_name: name }: Json) => name)
    assert.ok(!steps.includes('BUILD'), steps.join())
  }
  t.diagnostic(`images on the engine after each of the last deployments: ${counts.join(', ')}`)

  await git.commit(
    'many',
    { Dockerfile: `FROM ${busyboxImage}\nRUN head -c 900000 /dev/urandom > /noise\nRUN false\n` },
    'bad',
  )
  assert.equal(await act(path, 'deploy'), 'BUILD_ERROR')
  const cleanUp = (query: string) => send('POST', `/organization/${place.organizationId}/cleanUp${query}`)
  const layersOf = ({ results }: Json): string[] =>
    results.filter(({ kind }: Json) => kind === 'BUILD_LAYER').map(({ name }: Json) => name)
  const dry = await cleanUp('?dry_run=true')
  assert.ok(layersOf(dry).length > 0 && dry.bytes > 600_000, JSON.stringify(dry))
  const done = await cleanUp('')
  assert.ok(layersOf(done).length > 0, JSON.stringify(done))
  const ids = new Set((await imagesOf()).map(({ Id }) => Id))
  assert.deepEqual(
    layersOf(done).filter((each) => ids.has(each)),
    [],
  )
  assert.ok(await serves('version 12'), 'what runs is untouched')
  const before = await usedGb(place.organizationId)
  assert.ok(before > 0)
  await send('DELETE', path)
  await until(async () => (await builtFor(id)).length === 0, { what: 'the end of all its images', timeoutMs: 60_000 })
  // The base image, which was pulled for the builds, stays for a day.
  await until(async () => (await usedGb(place.organizationId)) < before, { what: 'room for images', timeoutMs: 60_000 })
  assert.ok(
    (await imagesOf()).some(({ RepoTags }) => RepoTags?.includes(foreign)),
    'what others have stays',
  )
  await engine.call('DELETE', `/images/${foreign}`)
})
