import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { startApi } from '../../../test/support/api.ts'
import { parseChartIndex } from './chart-index.ts'

const index = `apiVersion: v1
entries:
  alpine:
  - apiVersion: v2
    created: "2026-01-01T00:00:00Z"
    dependencies:
    - name: common
      version: 9.9.9
    description: |
      version: 8.8.8
      - version: 7.7.7
    name: alpine
    version: "1.2.0"
  - version: 1.1.0 # older
    name: alpine
  "nginx":
    - name: nginx
      annotations:
        version: 6.6.6
      version: 2.0.0+build.1
generated: "2026-01-01T00:00:00Z"
version: 5.5.5
`

const wanted = [
  { chart_name: 'alpine', versions: ['1.2.0', '1.1.0'] },
  { chart_name: 'nginx', versions: ['2.0.0+build.1'] },
]

const api = await startApi({ idle: true })
const { call, organizationId } = api

const server = createServer((request, response) => {
  const isKnown = request.headers.authorization === `Basic ${Buffer.from('u:canary').toString('base64')}`
  if (request.url === '/charts/index.yaml') return response.writeHead(isKnown ? 200 : 401).end(isKnown ? index : '')
  if (request.url === '/page/index.yaml') return response.end('<html>')
  if (request.url === '/away/index.yaml') return response.writeHead(302, { location: 'http://127.0.0.1/' }).end()
  return response.writeHead(404).end()
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
after(() => server.close())
const host = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
const base = `/organization/${organizationId}/helmRepository`

test('an index tells its charts and their versions, and nothing that only looks like one', () => {
  assert.deepEqual(parseChartIndex(index), wanted)
  assert.deepEqual(parseChartIndex(index.replaceAll('\n', '\r\n')), wanted)
  assert.deepEqual(parseChartIndex('{"entries":{"a":[{"version":"1"},{"version":2},null],"b":3}}'), [
    { chart_name: 'a', versions: ['1'] },
    { chart_name: 'b', versions: [] },
  ])
  assert.deepEqual(parseChartIndex('apiVersion: v1\nentries: {}\n'), [])
  for (const text of ['', '<html></html>', '{"entries":', '[]', 'entries'])
    assert.equal(parseChartIndex(text), null, text)
})

const chartsOf = async (body: object, query = '') => {
  const made = await call('POST', base, { name: JSON.stringify(body).slice(0, 60), kind: 'HTTPS', ...body })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  return call('GET', `${base}/${made.body.id}/charts${query}`)
}

test('the charts of a repository are read with its login, all or one by name', async () => {
  const config = { username: 'u', password: 'canary' }
  const all = await chartsOf({ url: `${host}/charts/`, config })
  assert.deepEqual([all.status, all.body], [200, { results: wanted }])
  const one = await chartsOf({ url: `${host}/charts`, config }, '?chartName=nginx')
  assert.deepEqual(one.body.results, wanted.slice(1))
})

test('a repository that cannot be read is a sentence', async () => {
  const refused: [object, RegExp][] = [
    [{ url: `${host}/charts` }, /refused the login/],
    [{ url: `${host}/page` }, /no index of charts/],
    [{ url: `${host}/missing` }, /status 404/],
    [{ url: `${host}/away` }, /status 302/],
    [{ url: 'https://charts.invalid' }, /cannot be reached/],
    [{ kind: 'OCI_GENERIC_CR', url: 'oci://charts.invalid/x' }, /does not list its charts/],
  ]
  for (const [body, sentence] of refused) {
    const { status, body: answer } = await chartsOf(body)
    assert.equal(status, 400, JSON.stringify(answer))
    assert.match(answer.message, sentence)
  }
})
