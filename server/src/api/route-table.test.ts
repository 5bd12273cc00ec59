import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Operation } from './operations/operation.ts'
import { createRouteTable } from './route-table.ts'

const operation = (method: string, path: string, produces?: string): Operation =>
  ({ id: `${method} ${path}`, method, path, produces }) as Operation

const table = createRouteTable([
  operation('GET', '/organization'),
  operation('POST', '/organization'),
  operation('GET', '/application/{applicationId}'),
  operation('PUT', '/application/{id}'),
  operation('GET', '/application/status'),
  operation('GET', '/application/{applicationId}/log/{logId}'),
  operation('GET', '/application/{applicationId}/stream', 'text/event-stream'),
])

const found = (method: string, url: string) => {
  const match = table.find(method, url)
  return match === null ? null : [match.operation.id, match.params]
}

test('a request is for the operation of its method and path, which parameters are decoded from', () => {
  for (const [method, url, id, params] of [
    ['GET', '/organization?a=/b', 'GET /organization', {}],
    ['HEAD', '/organization#x', 'GET /organization', {}],
    ['GET', '/%6frganization', 'GET /organization', {}],
    ['GET', 'http://host:1/organization', 'GET /organization', {}],
    ['GET', '/application/status', 'GET /application/status', {}],
    ['PUT', '/application/status', 'PUT /application/{id}', { id: 'status' }],
    ['GET', '/application/a%2Fb%20c', 'GET /application/{applicationId}', { applicationId: 'a/b c' }],
    [
      'GET',
      '/application/status/log/7',
      'GET /application/{applicationId}/log/{logId}',
      { applicationId: 'status', logId: '7' },
    ],
  ] as const)
    assert.deepEqual(found(method, url), [id, params], `${method} ${url}`)
})

test('what no operation has is for none', () => {
  for (const [method, url] of [
    ['GET', '/'],
    ['GET', '/organization/'],
    ['GET', '//organization'],
    ['GET', '/Organization'],
    ['GET', '/application/'],
    ['GET', '/application/%'],
    ['GET', `/application/${'x'.repeat(201)}`],
    ['DELETE', '/organization'],
    ['HEAD', '/application/1/stream'],
    ['GET', '*'],
    ['GET', '/__proto__'],
  ] as const)
    assert.equal(found(method, url), null, `${method} ${url}`)
})

test('the methods of a path are those of all operations that have it', () => {
  assert.equal(table.methodsOf('/organization'), 'GET, HEAD, POST, OPTIONS')
  assert.equal(table.methodsOf('/application/status'), 'GET, HEAD, PUT, OPTIONS')
  assert.equal(table.methodsOf('/nothing'), null)
  assert.equal(table.methodsOf('/%'), null)
})
