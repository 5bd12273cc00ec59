import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { after, test } from 'node:test'
import { newPlace, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const base = `/organization/${organizationId}/containerRegistry`

const basic = `Basic ${Buffer.from('bot:pass').toString('base64')}`
const answers: Record<string, unknown> = {
  '/v2/_catalog?n=100': { repositories: ['shop/api', 'shop/web', 'other'] },
  '/v2/shop/api/tags/list?n=100': { tags: ['1', 'latest'] },
  '/v2/shop/web/tags/list?n=100': { tags: null },
  '/v2/shop/api/manifests/1': {},
}
const images = createServer((request, response) => {
  const status = request.headers.authorization !== basic ? 401 : answers[request.url!] === undefined ? 404 : 200
  response.writeHead(status, { 'www-authenticate': 'Basic realm="images"' }).end(JSON.stringify(answers[request.url!]))
}).listen(0, '127.0.0.1')
await once(images, 'listening')
after(() => images.close())
const url = `http://127.0.0.1:${(images.address() as { port: number }).port}`

const newRegistry = async (name: string, config: object): Promise<string> =>
  (await call('POST', base, { name, kind: 'GENERIC_CR', url, config })).body.id

const id = await newRegistry('images', { username: 'bot', password: 'pass' })
const closed = await newRegistry('closed', {})

test('images are listed with their tags: one by name, or those whose names contain a text', async () => {
  const list = async (query: string) => (await call('GET', `${base}/${id}/images?${query}`)).body.results
  const shop = { image_name: 'shop/api', versions: ['1', 'latest'] }
  assert.deepEqual(await list('imageName=shop/api'), [shop])
  assert.deepEqual(await list('search=shop'), [shop, { image_name: 'shop/web', versions: [] }])
  assert.deepEqual(await list('search=none'), [])
  const missing = await call('GET', `${base}/${id}/images?imageName=none`)
  assert.deepEqual([missing.status, missing.body.code], [400, 'registry_missing'])
  const denied = await call('GET', `${base}/${closed}/images`)
  assert.deepEqual([denied.status, denied.body.code], [400, 'registry_denied'])
})

test('an image is checked with the login of its registry before a service is made of it', async () => {
  const { environmentId } = await newPlace(api)
  const check = (body: object) =>
    call('POST', `/environment/${environmentId}/checkContainerImage`, { image_name: 'shop/api', tag: '1', ...body })
  assert.deepEqual((await check({ registry_id: id })).body, {})
  const missing = await check({ registry_id: id, tag: '9' })
  assert.deepEqual([missing.status, missing.body.details[0].field], [400, '/tag'])
  assert.equal((await check({ registry_id: closed })).body.code, 'registry_denied')
  const stranger = await api.newOrganization()
  const theirs = await api.as(stranger.token)('POST', `/organization/${stranger.id}/containerRegistry`, {
    name: 'theirs',
    kind: 'DOCKER_HUB',
  })
  const refused = await check({ registry_id: theirs.body.id })
  assert.deepEqual([refused.status, refused.body.details[0].field], [400, '/registry_id'])
})

test('a registry that does not answer is named as such', async () => {
  const gone = (await call('POST', base, { name: 'gone', kind: 'GENERIC_CR', url: 'http://127.0.0.1:9' })).body.id
  const { status, body } = await call('GET', `${base}/${gone}/images?imageName=a`)
  assert.deepEqual([status, body.code], [400, 'registry_unreachable'])
})
