import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test } from 'node:test'
import fc from 'fast-check'
import { type Answer, applicationBody, caller, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { standIn } from '../../test/support/stand-in.ts'
import { within } from '../../test/support/until.ts'
import { version } from '../lib/version.ts'
import { operations } from '../resources/index.ts'
import { newTokenText } from './auth/auth.ts'
import { type Operation, ownOrganization } from './operations/operation.ts'
import { createApi } from './server.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api

const isError = (answer: Answer, status: number, code: string): void => {
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  assert.deepEqual([answer.body.status, answer.body.code], [status, code])
  assert.equal(answer.body.message, answer.body.detail)
  assert.equal(answer.body.request_id, answer.headers.get('x-request-id'))
}

test('an operation that declares no scope keeps the server from starting', async () => {
  const careless = standIn<Operation>({
    id: 'careless',
    method: 'GET',
    path: '/careless',
    tag: 'x',
    summary: 'x',
    owner: ownOrganization,
    status: 200,
    run: async () => ({}),
  })
  await assert.rejects(createApi(api.parts, [careless]), /careless declares no scope/)
})

test('every answer carries a request id: the one that was sent when it has the right form, else a new one', async () => {
  const sent = await call('GET', '/organization', undefined, { 'x-request-id': 'request-4711' })
  assert.equal(sent.headers.get('x-request-id'), 'request-4711')
  const strange = await call('GET', '/organization', undefined, { 'x-request-id': 'a b' })
  assert.match(strange.headers.get('x-request-id')!, /^[0-9a-f-]{36}$/)
})

test('all causes of a 401 are answered alike, before anything about the path is revealed', async () => {
  const expired = await api.newToken(['Admin'])
  await api.database.query(
    `update api_token set expires_at = now() - interval '2 minutes' where scopes = '{Admin}'
    and hash = sha256($1::text::bytea)`,
    [expired],
  )
  const headers = [
    '',
    'Basic eDp5',
    'Token',
    `Token ${newTokenText()}`,
    `Bearer ${expired}`,
    `Token slip_${'x'.repeat(49)}`,
  ]
  const messages = new Set<string>()
  for (const authorization of headers)
    for (const path of ['/organization', '/no/such/path', '/environment/not-an-id']) {
      const answer = await api.as(null)('GET', path, undefined, authorization === '' ? {} : { authorization })
      isError(answer, 401, 'unauthorized')
      assert.equal(answer.headers.get('www-authenticate'), 'Bearer')
      messages.add(answer.body.message)
    }
  assert.equal(messages.size, 1)
})

test('a token is taken under Token and Bearer, whatever the case of the word', async () => {
  for (const scheme of ['Token', 'Bearer', 'token', 'BEARER']) {
    const answer = await api.as(null)('GET', '/organization', undefined, { authorization: `${scheme} ${api.token}` })
    assert.equal(answer.status, 200)
  }
})

test('a known path under another method is 405 with Allow, an unknown one 404, OPTIONS says what there is', async () => {
  const wrong = await call('DELETE', '/organization')
  isError(wrong, 405, 'method_not_allowed')
  assert.equal(wrong.headers.get('allow'), 'GET, HEAD, POST, OPTIONS')
  isError(await call('GET', '/nowhere'), 404, 'not_found')
  isError(await call('GET', '/environment/%zz'), 404, 'not_found')
  const options = await api.as(null)('OPTIONS', `/organization/${organizationId}/project`)
  assert.deepEqual([options.status, options.headers.get('allow')], [204, 'GET, HEAD, POST, OPTIONS'])
})

test('HEAD answers as GET does, without a body', async () => {
  const head = await call('HEAD', '/organization')
  const get = await call('GET', '/organization')
  assert.deepEqual([head.status, head.body], [200, ''])
  assert.equal(head.headers.get('content-type'), get.headers.get('content-type'))
  assert.equal((await api.as(null)('HEAD', '/organization')).status, 401)
})

const projects = `/organization/${organizationId}/project`

test('bodies that cannot be read are refused: malformed, too large, of another type, encoded, not in UTF-8', async () => {
  isError(await call('POST', projects, '{"name":'), 400, 'malformed_json')
  isError(await call('POST', projects, JSON.stringify({ name: 'x'.repeat(1_100_000) })), 413, 'body_too_large')
  for (const type of ['text/plain', 'application/xml', 'multipart/form-data', 'application/json; charset=utf-16'])
    isError(await call('POST', projects, '{}', { 'content-type': type }), 415, 'unsupported_media_type')
  isError(await call('POST', projects, '{}', { 'content-encoding': 'gzip' }), 415, 'unsupported_media_type')
  isError(await call('GET', `/organization?x=${'y'.repeat(9000)}`), 414, 'uri_too_long')
  isError(await call('GET', `/project/${'y'.repeat(9000)}`), 414, 'uri_too_long')
  isError(await call('GET', `/project/${'y'.repeat(300)}`), 404, 'not_found')
})

test('a 400 names every field that is wrong, never repeats a value, and never says "exist"', async () => {
  const { environmentId } = await newPlace(api)
  const answer = await call('POST', `/environment/${environmentId}/application`, {
    git_repository: { url: 'secret-canary' },
    cpu: '5e2',
    memory: 1,
    ports: [{ internal_port: 70_000 }],
  })
  isError(answer, 400, 'invalid_request')
  const fields = answer.body.details.map(({ field }: { field: string }) => field)
  assert.deepEqual(fields.sort(), ['/cpu', '/memory', '/name', '/ports/0/internal_port'])
  assert.doesNotMatch(JSON.stringify(answer.body), /exist|canary|70000/)
})

test('numbers are read from text, in bodies and in queries, if it is exactly a number within its bounds', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  assert.equal((await call('PUT', `/application/${id}`, { cpu: '600' })).body.cpu, 600)
  for (const cpu of ['0600', '1', '600.5', 'six'])
    isError(await call('PUT', `/application/${id}`, { cpu }), 400, 'invalid_request')
  assert.equal((await call('GET', `/application/${id}/log?tail=3`)).status, 200)
  isError(await call('GET', `/application/${id}/log?tail=three`), 400, 'invalid_request')
  isError(await call('GET', `/application/${id}/log?tail=-1`), 400, 'invalid_request')
})

test('clients that accept problem documents get them', async () => {
  const answer = await call('GET', '/nowhere', undefined, { accept: 'application/problem+json' })
  assert.match(answer.headers.get('content-type')!, /^application\/problem\+json/)
  assert.deepEqual(
    [answer.body.type, answer.body.title, answer.body.status],
    ['urn:slipway:not_found', 'Not Found', 404],
  )
})

test('a list that has not changed is a 304', async () => {
  const first = await call('GET', projects)
  const again = await call('GET', projects, undefined, { 'if-none-match': first.headers.get('etag')! })
  assert.deepEqual([again.status, again.body], [304, ''])
  await newPlace(api)
  const changed = await call('GET', projects, undefined, { 'if-none-match': first.headers.get('etag')! })
  assert.equal(changed.status, 200)
})

test('no body that a program could send is answered with a 5xx', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  const targets: [string, string, readonly string[]][] = [
    ['POST', projects, ['name', 'description']],
    ['PUT', `/application/${id}`, ['name', 'ports', 'storage', 'healthchecks', 'git_repository', 'entrypoint']],
    ['POST', `/application/${id}/deploy`, ['git_commit_id']],
    ['POST', `/environment/${environmentId}/service/deploy`, ['applications', 'databases']],
    ['POST', `/organization/${organizationId}/apiToken`, ['name', 'scopes', 'expires_at']],
  ]
  const hostile = fc.oneof(
    fc.constantFrom('\u0000', '\ud800', '__proto__', '../../etc', "';drop table node;--", '{{x}}', 'a'.repeat(300)),
    fc.string({ unit: 'binary', maxLength: 50 }),
    fc.jsonValue({ maxDepth: 3 }),
    fc.integer(),
    fc.double(),
  )
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...targets),
      fc.array(hostile, { minLength: 6, maxLength: 6 }),
      async (target, values) => {
        const [method, path, names] = target
        const body = Object.fromEntries(names.map((name, index) => [name, values[index]]))
        const answer = await call(method, path, body)
        assert.ok(answer.status < 500, `${method} ${path} ${JSON.stringify(body)}: ${JSON.stringify(answer.body)}`)
      },
    ),
    { numRuns: 300 },
  )
})

test('text that a database cannot store, and excessive depth, are 400', async () => {
  for (const name of ['a\u0000b', '\ud800']) assert.equal((await call('POST', projects, { name })).status, 400)
  const deep = `{"name":"x","y":${'['.repeat(5000)}${']'.repeat(5000)}}`
  assert.equal((await call('POST', projects, deep)).status, 400)
  const polluting = await call('POST', projects, '{"name":"kept","__proto__":{"admin":true},"constructor":1}')
  assert.equal(polluting.status, 200)
  assert.equal(polluting.body.admin, undefined)
})

test('what is not HTTP gets an answer of ours and no more', async () => {
  const { port } = new URL(api.url)
  const ask = (text: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = connect(Number(port), '127.0.0.1', () => socket.write(text))
      let answer = ''
      socket.on('data', (chunk) => {
        answer += chunk
      })
      socket.on('close', () => resolve(answer))
      socket.on('error', reject)
    })
  assert.match(await ask('nonsense\r\n\r\n'), /^HTTP\/1\.1 400 [\s\S]*"code":"invalid_http"/)
  assert.match(await ask(`GET / HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`), /^HTTP\/1\.1 431 /)
})

test('health and description need no token, figures none on this machine; the page of the description asks no other host', async () => {
  const get = async (path: string) => {
    const answer = await fetch(api.url + path)
    return { status: answer.status, text: await answer.text(), headers: answer.headers }
  }
  assert.deepEqual(JSON.parse((await get('/healthz')).text), { status: 'alive', version })
  assert.deepEqual(JSON.parse((await get('/readyz')).text), { status: 'ready', database: true })
  await call('GET', '/organization')
  // Errors are named by a code: the sentence may contain data that strangers must not read.
  const end = api.parts.work.enter('a work', { cluster: 'near' }).begin()
  end(Object.assign(new Error('no route to 10.0.0.7'), { code: 'EHOSTUNREACH' }))
  const figures = (await get('/metrics')).text
  assert.match(figures, /slipway_requests_total\{operation="listOrganization",status="200"\}/)
  assert.match(figures, /nodejs_eventloop_lag/)
  assert.match(figures, /slipway_work_failures_total\{work="a work",cluster="near"\} 1/)
  assert.match(figures, /slipway_work_last_run_timestamp_seconds\{work="a work",cluster="near"\} 1\d{9}/)
  assert.match(
    figures,
    /slipway_work_last_error_timestamp_seconds\{work="a work",cluster="near",error="EHOSTUNREACH"\} 1/,
  )
  assert.doesNotMatch(figures, /10\.0\.0\.7/)
  assert.equal(JSON.parse((await get('/openapi.json')).text).openapi, '3.1.0')
  const docs = await get('/')
  assert.equal(docs.status, 200)
  assert.doesNotMatch(docs.text, /(src|href)="https?:\/\//)
  assert.match(docs.headers.get('content-security-policy')!, /^sandbox allow-scripts (?!.*(same-origin|unsafe-eval))/)
})

test('a revoked token is refused within a second, on this replica and on others', async () => {
  const replica = await createApi(api.parts, operations)
  const made = await call('POST', `/organization/${organizationId}/apiToken`, { name: 'short', scopes: ['Read'] })
  const headers = { authorization: `Token ${made.body.token}` }
  const use = async (): Promise<number[]> => [
    (await api.as(made.body.token)('GET', '/organization')).status,
    (await replica.inject({ url: '/organization', headers })).statusCode,
  ]
  assert.deepEqual(await use(), [200, 200])
  await call('DELETE', `/organization/${organizationId}/apiToken/${made.body.id}`)
  const refused = async () => (await use()).every((status) => status === 401)
  await within(1000, refused, 'the refusal')
  await replica.close()
})

test('a token with an Idempotency-Key makes one thing, however often it is sent', async () => {
  const headers = { 'idempotency-key': 'key-1' }
  const first = await call('POST', projects, { name: 'once' }, headers)
  const again = await call('POST', projects, { name: 'once' }, headers)
  assert.equal(first.status, 200)
  assert.deepEqual([again.status, again.body], [200, first.body])
  assert.equal(again.headers.get('idempotent-replayed'), 'true')
  isError(await call('POST', projects, { name: 'other' }, headers), 409, 'idempotency_mismatch')
  isError(await call('POST', projects, { name: 'other' }, { 'idempotency-key': 'a b' }), 400, 'invalid_request')
})

test('an answer is not repeated to a caller with fewer rights than the first one', async () => {
  const headers = { 'idempotency-key': 'for-one' }
  const writer = api.as(await api.newToken(['Write']))
  const other = api.as(await api.newToken(['Write']))
  const body = { name: 'told once' }
  const first = await call('POST', projects, body, headers)
  assert.equal(first.status, 200)
  assert.equal((await call('POST', projects, body, headers)).body.id, first.body.id)
  assert.equal((await writer('POST', projects, body, headers)).status, 409, 'its name is taken')
  const own = await writer('POST', projects, { name: 'its own' }, headers)
  assert.equal((await other('POST', projects, { name: 'its own' }, headers)).body.id, own.body.id)
})

test('twins with one Idempotency-Key never make two things', async () => {
  const { environmentId } = await newPlace(api)
  const send = () =>
    call('POST', `/environment/${environmentId}/application`, applicationBody('twin'), { 'idempotency-key': 'twin' })
  const answers = await Promise.all([send(), send(), send(), send()])
  const ids = new Set(answers.filter(({ status }) => status === 201).map(({ body }) => body.id))
  assert.equal(ids.size, 1)
  for (const { status, body } of answers)
    assert.ok(status === 201 || body.code === 'idempotency_in_progress', JSON.stringify(body))
})

test('what was refused is not kept under its key', async () => {
  const headers = { 'idempotency-key': 'key-2' }
  assert.equal((await call('POST', projects, { name: 5 }, headers)).status, 400)
  assert.equal((await call('POST', projects, { name: 'now right' }, headers)).status, 200)
})

test('the answer that shows a token is not kept in the open', async () => {
  const path = `/organization/${organizationId}/apiToken`
  const made = await call('POST', path, { name: 'kept' }, { 'idempotency-key': 'token' })
  const again = await call('POST', path, { name: 'kept' }, { 'idempotency-key': 'token' })
  assert.equal(again.body.token, made.body.token)
  const rows = await api.database.query('select body from idempotency_key')
  assert.doesNotMatch(JSON.stringify(rows), new RegExp(made.body.token))
})

test('an answer with a secret is repeated only to the credential that it was made for', async () => {
  const path = `/organization/${organizationId}/apiToken`
  const headers = { 'idempotency-key': 'secret' }
  const peer = api.as(await api.newToken(['Admin']))
  const made = await call('POST', path, { name: 'for one' }, headers)
  assert.equal(made.status, 201)
  const asked = await peer('POST', path, { name: 'for one' }, headers)
  assert.deepEqual([asked.status, asked.body.token], [409, undefined], 'its name is taken')
  // Its own key is its own, also where another has used the same.
  const own = await peer('POST', path, { name: 'for the peer' }, headers)
  const again = await peer('POST', path, { name: 'for the peer' }, headers)
  assert.deepEqual([own.status, again.body.token], [201, own.body.token])
  assert.notEqual(own.body.token, made.body.token)
})

test('the tokens of an organization have ten times the limit of one together, another organization its own', async () => {
  const limited = await startApi({ idle: true, settings: { rateLimit: 5 } })
  const tokens = await Promise.all(Array.from({ length: 12 }, () => limited.newToken(['Read'])))
  const ask = (token: string) => limited.as(token)('GET', '/organization')
  const answers = await Promise.all(tokens.flatMap((token) => Array.from({ length: 5 }, () => ask(token))))
  const admitted = answers.filter(({ status }) => status === 200).length
  // A place or two come back while they are sent.
  assert.ok(admitted >= 50 && admitted < 55, String(admitted))
  const refused = answers.find(({ status }) => status === 429)!
  isError(refused, 429, 'rate_limited')
  assert.equal(refused.headers.get('x-ratelimit-limit'), '50')
  const tenant = await limited.newOrganization()
  assert.equal((await ask(tenant.token)).status, 200)
})

test('requests beyond the limit of a token are 429 with seconds to wait; other tokens are not touched', async () => {
  const limited = await startApi({ idle: true, settings: { rateLimit: 5, failedLoginLimit: 3 } })
  const statuses: number[] = []
  let last: Answer | undefined
  for (let n = 0; n < 7; n += 1) {
    last = await limited.call('GET', '/organization')
    statuses.push(last.status)
  }
  assert.deepEqual(statuses, [200, 200, 200, 200, 200, 429, 429])
  isError(last!, 429, 'rate_limited')
  const wait = Number(last!.headers.get('x-ratelimit-reset'))
  assert.ok(wait >= 1 && wait <= 13, String(wait))
  assert.equal(last!.headers.get('retry-after'), String(wait))
  assert.equal(last!.headers.get('x-ratelimit-limit'), '5')
  const other = await limited.as(await limited.newToken(['Read']))('GET', '/organization')
  assert.deepEqual([other.status, other.headers.get('x-ratelimit-remaining')], [200, '4'])
  const failures: number[] = []
  for (let n = 0; n < 4; n += 1) failures.push((await caller(limited.url, newTokenText())('GET', '/')).status)
  for (let n = 0; n < 4; n += 1)
    failures.push((await caller(limited.url, newTokenText())('GET', '/organization')).status)
  assert.deepEqual(failures.slice(-4), [401, 401, 401, 429])
  assert.equal((await limited.as(await limited.newToken(['Read']))('GET', '/organization')).status, 200)
})
