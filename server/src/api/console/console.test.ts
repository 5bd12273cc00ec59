import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { brotliCompressSync, brotliDecompressSync, gzipSync } from 'node:zlib'
import WebSocket from 'ws'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { hashOf } from '../auth/auth.ts'
import { createCode } from './session-rows.ts'

const folder = mkdtempSync(join(tmpdir(), 'slipway-console-'))
after(() => rmSync(folder, { recursive: true, force: true }))
const script = 'console.log("the console")'
mkdirSync(join(folder, 'assets'))
writeFileSync(join(folder, 'index.html'), '<!doctype html><title>Slipway</title>')
writeFileSync(join(folder, 'assets/main-abc.js'), script)
writeFileSync(join(folder, 'assets/main-abc.js.br'), brotliCompressSync(script))
writeFileSync(join(folder, 'assets/main-abc.js.gz'), gzipSync(script))
writeFileSync(join(folder, 'built-from'), 'a key')

const api = await startApi({
  idle: true,
  settings: { consoleFolder: folder, trustedProxies: ['127.0.0.1'], failedLoginLimit: 0 },
})

interface Answered {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: Buffer
}

/** A request with any headers and any path, as it is: no client normalizes it. */
const raw = (method: string, path: string, headers: Record<string, string> = {}, body?: object, to = api.url) =>
  new Promise<Answered>((resolve, reject) => {
    const { port } = new URL(to)
    const sent = body === undefined ? {} : { 'content-type': 'application/json' }
    const asked = request(
      { host: '127.0.0.1', port, method, path, headers: { ...sent, ...headers }, agent: false },
      (answer) => {
        const chunks: Buffer[] = []
        answer.on('data', (chunk: Buffer) => chunks.push(chunk))
        answer.on('end', () =>
          resolve({ status: answer.statusCode!, headers: answer.headers, body: Buffer.concat(chunks) }),
        )
      },
    )
    asked.on('error', reject)
    asked.end(body === undefined ? undefined : JSON.stringify(body))
  })

const jsonOf = ({ body }: Answered): Json => JSON.parse(body.toString())

interface Halves {
  cookie: string
  'slipway-console-key': string
}

const halvesIn = (answer: Answered): Halves => {
  assert.equal(answer.status, 201, answer.body.toString())
  const [cookie] = answer.headers['set-cookie'] as string[]
  return { cookie: cookie!.split(';')[0]!, 'slipway-console-key': jsonOf(answer).key }
}

const signIn = async (token: string): Promise<Halves> =>
  halvesIn(await raw('POST', '/console/session', { origin: api.url }, { token }))

const statusOf = async (headers: Record<string, string>, path = '/console/session'): Promise<number> =>
  (await raw('GET', path, headers)).status

test('both halves of a session open what its token opens; neither half alone does, nor those of two sessions', async () => {
  const [own, other] = [await signIn(api.token), await signIn(api.token)]
  const { cookie, 'slipway-console-key': key } = own
  assert.equal(await statusOf({ ...own }, '/organization'), 200)
  assert.equal(await statusOf({ cookie }, '/organization'), 401)
  assert.equal(await statusOf({ 'slipway-console-key': key }, '/organization'), 401)
  // The planted cookie of another session opens no session.
  assert.equal(await statusOf({ cookie: other.cookie, 'slipway-console-key': key }, '/organization'), 401)
  assert.equal(await statusOf({ cookie: `${cookie}; ${other.cookie}`, 'slipway-console-key': key }), 401)
  assert.equal(await statusOf({ ...own, cookie: `${cookie}x` }), 401)
  // The stored values open no session.
  const rows = await api.database.query<{ hash: Buffer; key_hash: Buffer }>(
    'select hash, key_hash from console_session',
  )
  for (const { hash, key_hash } of rows)
    assert.equal(
      await statusOf({
        cookie: `slipway_console=${hash.toString('base64url')}`,
        'slipway-console-key': key_hash.toString('base64url'),
      }),
      401,
    )
  assert.equal(await statusOf({ authorization: `Token ${hashOf(api.token).toString('base64')}` }, '/organization'), 401)
})

test('each sign-in and sign-out of the console leaves an event in the organization of its token, failures one a minute', async () => {
  const fresh = await startApi({ idle: true, settings: { consoleFolder: folder, failedLoginLimit: 0 } })
  const tenant = await fresh.newOrganization()
  const send = (body?: object, headers: Record<string, string> = {}) =>
    raw(body === undefined ? 'DELETE' : 'POST', '/console/session', headers, body, fresh.url)
  const first = halvesIn(await send({ token: tenant.token }))
  const code = await createCode(fresh.database, hashOf(tenant.token))
  const second = halvesIn(await send({ code }))
  for (const own of [first, second]) assert.equal((await send(undefined, { ...own })).status, 204)
  const eventsIn = async (organizationId: string, token: string) => {
    const path = `/organization/${organizationId}/events?subTargetType=API_TOKEN&targetType=MEMBERS_AND_ROLES`
    return (await fresh.as(token)('GET', path)).body.events.toReversed() as Json[]
  }
  const found = await eventsIn(tenant.id, tenant.token)
  assert.deepEqual(
    found.map((each) => [each.event_type, each.actor_type, each.origin, JSON.parse(each.change)]),
    [
      ['CREATE', 'API_TOKEN', 'CONSOLE', { signed_in_from: '127.0.0.1', signed_in_with: 'TOKEN' }],
      ['CREATE', 'API_TOKEN', 'CONSOLE', { signed_in_from: '127.0.0.1', signed_in_with: 'LINK' }],
      ['DELETE', 'API_TOKEN', 'CONSOLE', { signed_out_from: '127.0.0.1' }],
      ['DELETE', 'API_TOKEN', 'CONSOLE', { signed_out_from: '127.0.0.1' }],
    ],
  )
  for (const body of [{ code }, { token: `${tenant.token}x` }, { token: 'wrong' }])
    assert.equal((await send(body)).status, 401)
  const failed = await eventsIn(fresh.organizationId, fresh.token)
  assert.deepEqual(
    failed.map((each) => [each.event_type, each.actor_type, JSON.parse(each.change)]),
    [['POLICY_FAILED', 'SYSTEM', { failures: 1, last_from: '127.0.0.1' }]],
  )
})

test('a page of another origin has no session, whatever it sends', async () => {
  const own = await signIn(api.token)
  const foreign: Record<string, string>[] = [
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: api.url.replace('http:', 'https:') },
    { origin: api.url.replace(/\d+$/, '1') },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
  ]
  for (const headers of foreign) {
    const said = { ...own, ...headers }
    assert.equal(await statusOf(said, '/organization'), 401, JSON.stringify(headers))
    const name = `planted ${JSON.stringify(headers)}`
    const written = await raw('POST', `/organization/${api.organizationId}/project`, said, { name })
    assert.equal(written.status, 401)
    const signedIn = await raw('POST', '/console/session', headers, { token: api.token })
    assert.equal(signedIn.status, 403)
    assert.equal(signedIn.headers['set-cookie'], undefined)
  }
  const fine = { ...own, origin: api.url, 'sec-fetch-site': 'same-origin' }
  assert.equal(await statusOf(fine, '/organization'), 200)
})

test('the cookie is for no script, no other site and no other host, and only https or this machine gets one', async () => {
  const plain = await raw('POST', '/console/session', {}, { token: api.token })
  assert.match(
    String(plain.headers['set-cookie']),
    /^slipway_console=[\w-]{43}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Strict$/,
  )
  const byProxy = { 'x-forwarded-proto': 'https', host: 'slipway.example.org' }
  const secure = await raw('POST', '/console/session', byProxy, { token: api.token })
  assert.match(
    String(secure.headers['set-cookie']),
    /^__Host-slipway_console=[\w-]{43}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Strict; Secure$/,
  )
  assert.equal(await statusOf({ ...halvesIn(secure), ...byProxy }), 200)
  const host = 'slipway.example.org'
  for (const headers of [{ host }, { host, origin: `https://${host}` }] as Record<string, string>[]) {
    const openly = await raw('POST', '/console/session', headers, { token: api.token })
    assert.deepEqual([openly.status, jsonOf(openly).code], [400, 'console_needs_https'])
    assert.equal(openly.headers['set-cookie'], undefined)
  }
})

test('a link signs in once, within its time, and what is not a code changes nothing', async () => {
  const code = await createCode(api.database, hashOf(api.token))
  for (const wrong of [{ code: 'x' }, { code: `${code}x` }, {}, { code, token: api.token }, { code: 5 }]) {
    const answer = await raw('POST', '/console/session', {}, wrong)
    assert.ok([400, 401].includes(answer.status), JSON.stringify(wrong))
  }
  const tries = await Promise.all([1, 2, 3].map(() => raw('POST', '/console/session', {}, { code })))
  assert.deepEqual(tries.map(({ status }) => status).sort(), [201, 401, 401])
  assert.equal(jsonOf(tries.find(({ status }) => status === 401)!).code, 'link_used')
  assert.equal(await statusOf({ ...halvesIn(tries.find(({ status }) => status === 201)!) }), 200)
  const late = await createCode(api.database, hashOf(api.token))
  await api.database.query(`update console_code set expires_at = clock_timestamp() - interval '1 second'`)
  assert.equal((await raw('POST', '/console/session', {}, { code: late })).status, 401)
})

test('a sign-in counts as a request of its token, so that no session is made past the limit', async () => {
  const limited = await startApi({ idle: true, settings: { consoleFolder: folder, rateLimit: 5 } })
  const { host } = new URL(limited.url)
  const sessions = async () => (await limited.database.query('select 1 from console_session')).length
  const answers: Answered[] = []
  for (let count = 0; count < 8; count += 1)
    answers.push(await raw('POST', '/console/session', { host }, { token: limited.token }, limited.url))
  const statuses = answers.map(({ status }) => status)
  assert.deepEqual([statuses.at(0), statuses.at(-1)], [201, 429])
  assert.ok(answers.at(-1)!.headers['retry-after'] !== undefined)
  assert.equal(await sessions(), statuses.filter((status) => status === 201).length)
})

test('a session ends with its token, by signing out, and when its time is over, with its streams', async () => {
  const { environmentId } = await newPlace(api)
  const made = await api.call('POST', `/organization/${api.organizationId}/apiToken`, { name: 'a', scopes: ['Read'] })
  const [first, second, third] = [
    await signIn(made.body.token),
    await signIn(api.token),
    await signIn(api.token),
  ] as const
  const closed: string[] = []
  const follow = (name: string, halves: Halves, origin = api.url) => {
    const url = `${api.url.replace('http', 'ws')}/deployment/status?environment=${environmentId}`
    const protocols = ['v1', `console.${halves['slipway-console-key']}`]
    const socket = new WebSocket(url, protocols, { headers: { cookie: halves.cookie, origin } })
    socket.on('close', () => closed.push(name)).on('error', () => {})
    return new Promise<boolean>((resolve) => {
      socket.once('message', () => resolve(true))
      socket.once('unexpected-response', () => resolve(false))
    })
  }
  assert.deepEqual(await Promise.all([follow('first', first), follow('second', second)]), [true, true])
  assert.equal(await follow('planted', second, 'https://evil.example'), false)

  await api.call('DELETE', `/organization/${api.organizationId}/apiToken/${made.body.id}`)
  await until(() => closed.includes('first'), { what: 'the stream of the revoked token to end' })
  assert.equal(await statusOf({ ...first }), 401)

  assert.equal((await raw('DELETE', '/console/session', { cookie: second.cookie })).status, 401)
  assert.equal(await statusOf({ ...second }), 200)
  const left = await raw('DELETE', '/console/session', { ...second })
  assert.equal(left.status, 204)
  assert.match(String(left.headers['set-cookie']), /^slipway_console=; .*Max-Age=0/)
  await until(() => closed.includes('second'), { what: 'the stream of who signed out to end' })
  assert.equal(await statusOf({ ...second }), 401)

  assert.equal(await statusOf({ ...third }), 200)
  await api.database.query(`update console_session set expires_at = clock_timestamp() - interval '1 second'`)
  await api.database.query(`select pg_notify('slipway_token', '')`)
  await until(async () => (await statusOf({ ...third })) === 401, { what: 'the session to be over' })
})

test('a session may do what its token may, now, and its description says so; its changes are recorded as the console’s', async () => {
  const reader = await signIn(await api.newToken(['Read']))
  const told = jsonOf(await raw('GET', '/console/session', { ...reader }))
  assert.deepEqual(told.memberships[0].scopes, ['Read'])
  const path = `/organization/${api.organizationId}/project`
  assert.equal((await raw('POST', path, { ...reader }, { name: 'no' })).status, 403)
  const writer = await signIn(api.token)
  assert.equal((await raw('POST', path, { ...writer }, { name: 'by the console' })).status, 200)
  await api.call('POST', path, { name: 'by a program' })
  const { body } = await api.call('GET', `/organization/${api.organizationId}/events?targetType=PROJECT`)
  const origins = body.events.slice(0, 2).map(({ target_name: name, origin }: Json) => [name, origin])
  assert.deepEqual(origins, [
    ['by a program', 'API'],
    ['by the console', 'CONSOLE'],
  ])
})

test('who guesses tokens here is slowed down like everywhere else', async () => {
  const slow = await startApi({ idle: true, settings: { rateLimit: 1000, failedLoginLimit: 3 } })
  const statuses: number[] = []
  for (let count = 0; count < 5; count += 1)
    statuses.push((await raw('POST', '/console/session', {}, { token: 'guess' }, slow.url)).status)
  assert.deepEqual(statuses, [401, 401, 401, 429, 429])
})

test('the page answers browsers at every address that the API does not have, under a policy without inline scripts', async () => {
  const accept = 'text/html,application/xhtml+xml,*/*;q=0.8'
  for (const path of ['/', '/sign-in', `/e/${api.organizationId}/services`, '/s/container/x/logs?q=1']) {
    const answer = await raw('GET', path, { accept })
    assert.equal(answer.status, 200, path)
    assert.equal(answer.headers['content-type'], 'text/html; charset=utf-8')
    const policy = String(answer.headers['content-security-policy'])
    assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'/)
    assert.match(policy, /frame-ancestors 'none'/)
    assert.doesNotMatch(policy, /unsafe/)
    assert.deepEqual([answer.headers['cache-control'], answer.headers.vary], ['no-cache', 'Accept, Accept-Encoding'])
    assert.equal((await raw('HEAD', path, { accept })).body.length, 0)
    const again = await raw('GET', path, { accept, 'if-none-match': String(answer.headers.etag) })
    assert.equal(again.status, 304)
  }
  for (const path of ['/organization', `/environment/${api.organizationId}`, '/openapi.json', '/healthz']) {
    const { headers } = await raw('GET', path, { accept })
    assert.match(String(headers['content-type']), /json/, path)
  }
  assert.equal((await raw('GET', '/nowhere')).status, 401)
  assert.equal((await raw('POST', '/nowhere', { accept }, {})).status, 401)
  assert.equal((await raw('GET', '/')).headers.location, '/docs')
})

test('files are served by exact name, for ever, in the encoding that the browser takes; nothing else is', async () => {
  const file = '/assets/main-abc.js'
  const plain = await raw('GET', file)
  assert.equal(plain.body.toString(), script)
  assert.equal(plain.headers['content-type'], 'text/javascript; charset=utf-8')
  assert.equal(plain.headers['cache-control'], 'public, max-age=31536000, immutable')
  assert.equal(plain.headers['x-content-type-options'], 'nosniff')
  const small = await raw('GET', file, { 'accept-encoding': 'gzip, deflate, br' })
  assert.deepEqual([small.headers['content-encoding'], small.headers.vary], ['br', 'Accept-Encoding'])
  assert.equal(brotliDecompressSync(small.body).toString(), script)
  assert.equal((await raw('GET', file, { 'accept-encoding': 'br;q=0, gzip' })).headers['content-encoding'], 'gzip')
  for (const path of [
    '/assets/../index.html',
    '/assets/..%2findex.html',
    '/assets/..%2f..%2f..%2f..%2fetc%2fpasswd',
    '/assets/%2e%2e/built-from',
    '/assets//etc/passwd',
    '/assets/..%5cbuilt-from',
    '/assets/main-abc.js%00.html',
    '/assets/built-from',
    '/assets/main-abc.js.br',
    '/assets/__proto__',
    '/assets/',
  ]) {
    const { status, body } = await raw('GET', path)
    assert.ok([400, 401, 404].includes(status), `${path}: ${status}`)
    assert.doesNotMatch(body.toString(), /the console|root:|a key|doctype/, path)
  }
})

test('without a build there is no console, and the start page is that of the documentation', async () => {
  const bare = await startApi({ idle: true })
  assert.equal((await raw('GET', '/', { accept: 'text/html' }, undefined, bare.url)).headers.location, '/docs')
  assert.equal((await raw('GET', '/sign-in', { accept: 'text/html' }, undefined, bare.url)).status, 401)
})

test('no address of the console is one of the API', async () => {
  const router = readFileSync(new URL('../../../../console/src/router.tsx', import.meta.url), 'utf8')
  const paths = [...router.matchAll(/path: '([^']+)'/g)].map(([, path]) => path!)
  assert.ok(paths.length > 5)
  for (const path of paths.filter((each) => each !== '/')) {
    const { status, headers } = await raw('GET', path.replaceAll(/\$\w+/g, 'x'), { accept: 'text/html' })
    assert.deepEqual([status, headers['content-type']], [200, 'text/html; charset=utf-8'], path)
  }
})
