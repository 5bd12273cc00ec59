import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { startApi } from '../../../test/support/api.ts'
import { ChartIndexTooLarge, parseChartIndex } from '../../deployments/charts/chart-index.ts'

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
  if (request.url === '/big/index.yaml') return response.end(bigIndexes.yamlCharts(5001))
  if (request.url === '/page/index.yaml') return response.end('<html>')
  if (request.url === '/away/index.yaml') return response.writeHead(302, { location: 'http://127.0.0.1/' }).end()
  return response.writeHead(404).end()
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
after(() => server.close())
const host = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
const base = `/organization/${organizationId}/helmRepository`

test('an index lists its charts and their versions, and nothing that only looks like one', () => {
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

/** Indexes of so many charts of one version each, or of one chart of so many versions. */
const bigIndexes = {
  yamlCharts: (count: number) =>
    `entries:\n${Array.from({ length: count }, (_, at) => `  c${at}:\n  - version: 1\n`).join('')}`,
  yamlVersions: (count: number) => `entries:\n  a:\n${'  - version: 1\n'.repeat(count)}`,
  jsonCharts: (count: number) =>
    JSON.stringify({
      entries: Object.fromEntries(Array.from({ length: count }, (_, at) => [`c${at}`, [{ version: '1' }]])),
    }),
  jsonVersions: (count: number) =>
    JSON.stringify({ entries: { a: Array.from({ length: count }, () => ({ version: '1' })) } }),
}

test('an index above the limits is an error, never a shorter list', () => {
  for (const [name, big] of Object.entries(bigIndexes)) {
    const charts = parseChartIndex(big(5000))!
    assert.equal(Math.max(charts.length, charts[0]!.versions.length), 5000, name)
    assert.throws(() => parseChartIndex(big(5001)), ChartIndexTooLarge, name)
  }
  assert.equal(parseChartIndex('entries:\n  a:\n  - version: 1\n  what is this\n  b:\n  - version: 1\n'), null)
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
    [{ url: `${host}/charts` }, /requires a login/],
    [{ url: `${host}/page` }, /no index of charts/],
    [{ url: `${host}/big` }, /lists more than 5000 charts/],
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
