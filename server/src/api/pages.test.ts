import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newApplication, newPlace, startApi } from '../../test/support/api.ts'

const api = await startApi({ idle: true })
const get = (path: string) => fetch(`${api.url}${path}`)

test('the guides and their prelude need no token and are text that a browser shows', async () => {
  for (const name of ['first-deploy.md', 'prelude.sh']) {
    const answer = await get(`/guides/${name}`)
    assert.equal(answer.status, 200)
    assert.match(answer.headers.get('content-type') ?? '', /^text\/plain/)
  }
  for (const name of ['nothing.md', '..%2fREADME.md', '../README.md'])
    assert.notEqual((await get(`/guides/${name}`)).status, 200)
})

test('every guide that /docs begins with is there', async () => {
  const { info } = (await (await get('/openapi.json')).json()) as { info: { description: string } }
  assert.ok(info.description.indexOf('Get a token') < info.description.indexOf('HEAD'))
  const links = [...info.description.matchAll(/\]\((\/guides\/[^)]+)\)/g)].map(([, link]) => link!)
  assert.ok(links.length > 10)
  for (const link of links) assert.equal((await get(link)).status, 200, link)
})

test('a short commit id is refused with its form', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  const refused = await api.call('POST', `/application/${id}/deploy`, { git_commit_id: 'bed2fd2' })
  assert.equal(refused.status, 400)
  assert.match(refused.body.message, /git_commit_id: must be a whole commit id, 40 hex digits/)
})
