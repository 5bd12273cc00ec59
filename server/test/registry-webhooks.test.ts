/** Webhooks of registries: which are accepted, and that a delivery only triggers a poll of the digest. */
import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { test } from 'node:test'
import { readImages } from '../src/webhooks/inbound/registries.ts'
import { type Json, newPlace, startApi } from './support/api.ts'
import { until } from './support/until.ts'

const api = await startApi({ settings: { publicUrl: 'https://slipway.example.org' } })
const { call, organizationId, database, runtime } = api

const hub = (name: string, tag: string, at = 1) => ({
  push_data: { pushed_at: at, tag, pusher: 'you' },
  repository: { repo_name: name, name: name.split('/').at(-1), namespace: name.split('/')[0] },
})
const harbor = (name: string, tag: string, at = 1) => ({
  type: 'PUSH_ARTIFACT',
  occur_at: at,
  event_data: {
    resources: [{ digest: 'sha256:1', tag, resource_url: `harbor.example.org/${name}:${tag}` }],
    repository: { repo_full_name: name, namespace: name.split('/')[0] },
  },
})
const distribution = (name: string, tag: string, at = 1) => ({
  events: [
    { id: `pull-${at}`, action: 'pull', target: { repository: name, tag } },
    { id: `layer-${at}`, action: 'push', target: { repository: name, mediaType: 'application/octet-stream' } },
    { id: `push-${at}`, action: 'push', target: { repository: name, tag, digest: 'sha256:1' } },
  ],
})
const github = (name: string, tag: string, at = 1) => ({
  action: 'published',
  at,
  package: {
    ...{ name: name.split('/')[1], namespace: name.split('/')[0], package_type: 'CONTAINER' },
    package_version: { container_metadata: { tag: { name: tag, digest: 'sha256:1' } } },
  },
})

test('each registry names an image and its tag in its own format, and nonsense names none', async () => {
  const read = (text: string) => readImages(Buffer.from(text), 'x')
  for (const body of [hub, harbor, distribution, github])
    assert.deepEqual(await read(JSON.stringify(body('team/app', 'v1'))), [{ path: 'team/app', tag: 'v1' }])
  const nothing: unknown[] = [{}, [], { events: [{ action: 'pull' }] }, { repository: { repo_name: '../../x' } }]
  for (const body of [...nothing, hub('Team/../app', '-x'), harbor('a\u0000b', 'v1')])
    assert.deepEqual(await read(JSON.stringify(body)), [])
  for (const text of ['', 'null', '7', '{', '\xff']) assert.equal(await read(text), null)
  const many = { events: Array.from({ length: 1000 }, (_, n) => distribution(`a/b${n}`, 'v').events[2]) }
  assert.ok((await read(JSON.stringify(many)))!.length <= 50)
})

test('a genuine delivery polls the tag at once, whatever it says; others, and repeated ones, do nothing', async () => {
  const registry = { name: 'registry', kind: 'GENERIC_CR', url: 'https://registry.example.org', config: {} }
  const { id: registry_id } = (await call('POST', `/organization/${organizationId}/containerRegistry`, registry)).body
  const { environmentId } = await newPlace(api)
  const container = { name: 'follower', auto_deploy: true, image_name: 'team/told', tag: 'latest', registry_id }
  const hook = (await call('POST', `/organization/${organizationId}/gitWebhook`, {})).body
  const { id: token } = (
    await call('POST', `/organization/${organizationId}/gitToken`, {
      ...{ name: 'other', type: 'GITHUB', token: 'ghp_0123456789' },
      git_api_url: 'https://api.github.com',
    })
  ).body
  const narrow = (await call('POST', `/organization/${organizationId}/gitWebhook`, { git_token_id: token })).body
  const images = runtime.images as { resolve: typeof runtime.images.resolve }
  const { resolve } = images
  let digest = 'a'
  let looks = 0
  images.resolve = async ({ reference }) => {
    if (!reference.includes('team/told')) return reference
    looks += 1
    return `registry.example.org/team/told@sha256:${digest.repeat(64)}`
  }
  const { id } = (await call('POST', `/environment/${environmentId}/container`, container)).body
  const seen = async (): Promise<string | undefined> => {
    const rows = await database.query<{ seen: string | null }>(
      'select seen from followed_image where service_id = $1',
      [id],
    )
    return rows[0]?.seen?.slice(-1)
  }
  const send = async (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Json> => {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const type = { 'content-type': 'application/json' }
    const answer = await fetch(api.url + path, { method: 'POST', body: text, headers: { ...type, ...headers } })
    return { status: answer.status, body: await answer.json() }
  }
  const path = `/git-webhooks/${hook.id}`
  const secret = { authorization: hook.signing_secret }
  const signed = (body: object) => ({
    'x-github-event': 'package',
    'x-github-delivery': `d-${digest}`,
    'x-hub-signature-256': `sha256=${createHmac('sha256', hook.signing_secret).update(JSON.stringify(body)).digest('hex')}`,
  })
  try {
    await until(async () => (await seen()) === 'a', { what: 'the first look' })
    assert.match(hook.secret_url, new RegExp(`^https://slipway.example.org${path}/[\\w-]{43}$`))
    const secretPath = new URL(hook.secret_url).pathname
    const ways: [string, object, Record<string, string>][] = [
      [secretPath, hub('team/told', 'latest'), {}],
      [path, harbor('team/told', 'latest'), secret],
      [path, distribution('team/told', 'latest'), { authorization: `Bearer ${hook.signing_secret}` }],
      [path, github('team/told', 'latest'), signed(github('team/told', 'latest'))],
      [path, harbor('proxy/of/team/told', 'latest', 2), secret],
    ]
    for (const [index, [to, body, headers]] of ways.entries()) {
      digest = 'bcdef'[index]!
      assert.deepEqual(await send(to, body, headers), { status: 202, body: { status: 'ACCEPTED', repositories: 1 } })
      await until(async () => (await seen()) === digest, { what: `the look after delivery ${index + 1}` })
      // Registries repeat deliveries without a response.
      assert.deepEqual(await send(to, body, headers), { status: 202, body: { status: 'ACCEPTED', repositories: 0 } })
    }
    const before = looks
    const asked = async () =>
      (await database.query<Json>('select asked from watched_image where name = $1', ['team/told']))[0].asked
    const askedBefore = await asked()
    const none: [string, unknown, Record<string, string>, number][] = [
      [path, hub('team/told', 'latest', 9), {}, 400],
      [path, hub('team/told', 'latest', 9), { authorization: 'Bearer whsec_of-somebody-else' }, 401],
      [`${path}/${'x'.repeat(43)}`, hub('team/told', 'latest', 9), {}, 401],
      [`${path}/${'x'.repeat(43)}`, hub('team/told', 'latest', 9), secret, 401],
      [path, github('team/told', 'latest', 9), { 'x-github-event': 'package', ...secret }, 401],
      [path, 'no json', secret, 400],
      [path, hub('team/told', 'another', 9), secret, 202],
      [path, hub('team/untold', 'latest', 9), secret, 202],
      [`/git-webhooks/${narrow.id}`, hub('team/told', 'latest', 9), { authorization: narrow.signing_secret }, 202],
    ]
    for (const [to, body, headers, status] of none) assert.equal((await send(to, body, headers)).status, status, to)
    assert.deepEqual([await asked(), looks], [askedBefore, before])
  } finally {
    images.resolve = resolve
  }
})
