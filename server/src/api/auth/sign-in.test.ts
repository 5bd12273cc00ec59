import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { startIdentityProvider } from '../../../test/support/peers/identity-provider.ts'
import { hearEvents } from '../../../test/support/streams.ts'
import { until } from '../../../test/support/until.ts'
import { Secret } from '../../lib/secret.ts'
import { safeReturn } from './sign-in.ts'

const provider = await startIdentityProvider()
const client = { clientId: 'console', clientSecret: new Secret('a secret of the console') }
const api = await startApi({
  idle: true,
  settings: {
    oidc: { issuer: provider.issuer, audience: ['console'], adminEmails: ['alice@example.com'], ...client },
    trustedProxies: ['127.0.0.1'],
  },
})
provider.addBrowserClient('console', 'a secret of the console', `${api.url}/auth/callback`)

/** A browser with its cookies, which follows one redirect at a time; `headers` are what a proxy adds. */
const createBrowser = (headers: Record<string, string> = {}) => {
  const jars = new Map<string, Map<string, string>>()
  const go = async (url: string, form?: Record<string, string>) => {
    const { origin } = new URL(url)
    const jar = jars.get(origin) ?? new Map<string, string>()
    jars.set(origin, jar)
    const answer = await fetch(url, {
      redirect: 'manual',
      method: form === undefined ? 'GET' : 'POST',
      headers: { ...headers, cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(form === undefined ? {} : { body: new URLSearchParams(form) }),
    })
    for (const text of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(text)!
      if (value === '') jar.delete(name!)
      else jar.set(name!, value!)
    }
    const location = answer.headers.get('location')
    return { answer, location: location === null ? null : new URL(location, url).href }
  }
  /** Goes from redirect to redirect until an address has come to, or a page is shown. */
  const follow = async (url: string, until: (url: string) => boolean): Promise<string> => {
    let next = url
    for (let step = 0; step < 10 && !until(next); step += 1) {
      const { location } = await go(next)
      if (location === null) return next
      next = location
    }
    return next
  }
  const plant = (url: string, name: string, value: string): void => {
    const { origin } = new URL(url)
    jars.set(origin, (jars.get(origin) ?? new Map<string, string>()).set(name, value))
  }
  const cookies = (url: string): [string, string][] => [...(jars.get(new URL(url).origin) ?? [])]
  return { go, follow, plant, cookies }
}

/** The header that a proxy with TLS adds. */
const byProxy = { 'x-forwarded-proto': 'https' }

const isCallback = (url: string): boolean => url.startsWith(`${api.url}/auth/callback`)

/** Signs in at the issuer's own pages; answers the address that it sends the browser back to. */
const signIn = async (browser: ReturnType<typeof createBrowser>, returnTo: string): Promise<string> => {
  let page = await browser.follow(`${api.url}/auth/sign-in?return_to=${encodeURIComponent(returnTo)}`, isCallback)
  for (const form of [{ prompt: 'login', login: 'alice', password: 'any' }, { prompt: 'consent' }]) {
    const sent = await browser.go(page, form as Record<string, string>)
    assert.notEqual(sent.location, null, await sent.answer.text())
    page = await browser.follow(sent.location!, isCallback)
  }
  assert.ok(isCallback(page), page)
  return page
}

test('who signs in at the issuer comes back to the page that asked, with a token that the API takes', async () => {
  const browser = createBrowser()
  const { location, answer } = await browser.go(await signIn(browser, '/projects?tab=1'))
  assert.equal(answer.status, 302)
  assert.ok(location?.startsWith(`${api.url}/projects?tab=1#id_token=`), location ?? '')
  const token = location!.split('#id_token=')[1]!
  const account = await api.as(null)('GET', '/account', undefined, { authorization: `Bearer ${token}` })
  assert.deepEqual([account.status, account.body.communication_email], [200, 'alice@example.com'])
})

const tokenFrom = async (browser: ReturnType<typeof createBrowser>, callback: string): Promise<string> =>
  (await browser.go(callback)).location!.split('#id_token=')[1]!

const statusOf = async (token: string): Promise<number> =>
  (await api.as(null)('GET', '/account', undefined, { authorization: `Bearer ${token}` })).status

const eventsOf = async (kind: string): Promise<Json[]> =>
  (await api.call('GET', `/organization/${api.organizationId}/events?subTargetType=SSO&eventType=${kind}`)).body.events

test('who signs out has ended the session: its token opens nothing more, however it is written', async () => {
  const [browser, other] = [createBrowser(), createBrowser()]
  const token = await tokenFrom(browser, await signIn(browser, '/'))
  const beside = await tokenFrom(other, await signIn(other, '/'))
  assert.deepEqual([await statusOf(token), await statusOf(beside)], [200, 200])
  assert.equal((await browser.go(`${api.url}/auth/sign-out`)).answer.status, 302)
  assert.deepEqual([await statusOf(token), await statusOf(beside)], [401, 200])
  // The last sign of a signature holds bits that say nothing.
  const last = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  const other2 = last[last.indexOf(token.at(-1)!) ^ 1]
  assert.equal(await statusOf(token.slice(0, -1) + other2), 401)
  const headers = { authorization: `Bearer ${beside}` }
  const left = await fetch(`${api.url}/auth/sign-out`, { redirect: 'manual', headers })
  assert.deepEqual([left.status, await statusOf(beside)], [302, 401])
  const [event] = await eventsOf('CREATE')
  assert.deepEqual([event.triggered_by, event.actor_type, event.origin], ['alice@example.com', 'USER', 'CONSOLE'])
  // By the cookie of the browser, and by the token itself.
  const ends = await eventsOf('DELETE')
  assert.deepEqual(
    ends.map(({ triggered_by, actor_type }) => [triggered_by, actor_type]),
    Array.from({ length: 2 }, () => ['alice@example.com', 'USER']),
  )
})

test('a stream of a session that has ended ends', async () => {
  const browser = createBrowser()
  const token = await tokenFrom(browser, await signIn(browser, '/'))
  const { environmentId } = await newPlace(api)
  const stream = await hearEvents(`${api.url}/environment/${environmentId}/statuses/stream`, token)
  await until(() => stream.all.length > 0, { what: 'the stream to begin' })
  await browser.go(`${api.url}/auth/sign-out`)
  await until(() => stream.code !== 0, { what: 'the stream to end', timeoutMs: 2000 })
})

test('a cookie planted by another host of the domain never signs a user in to a different account', async () => {
  const [attacker, victim] = [createBrowser(), createBrowser(byProxy)]
  const callback = await signIn(attacker, '/')
  const [[name, value]] = attacker.cookies(api.url) as [[string, string]]
  assert.equal(name, 'slipway_sign_in')
  // Over https only the name that no neighboring host can set is read.
  victim.plant(api.url, name, value)
  assert.equal((await victim.go(callback)).answer.status, 400)
  // A value signed under one name is invalid under another.
  victim.plant(api.url, '__Host-slipway_sign_in', value)
  assert.equal((await victim.go(callback)).answer.status, 400)
  assert.equal((await attacker.go(callback)).answer.status, 302)
})

test('over https the cookie of a sign-in is kept for this very host, and never sent in clear text', async () => {
  const browser = createBrowser(byProxy)
  const { answer, location } = await browser.go(`${api.url}/auth/sign-in`)
  const [cookie] = answer.headers.getSetCookie()
  assert.match(cookie!, /^__Host-slipway_sign_in=[\w.-]+; Path=\/; Secure; Max-Age=600; HttpOnly; SameSite=Lax$/)
  assert.ok(new URL(location!).searchParams.get('redirect_uri')?.startsWith('https://'))
})

test('a cookie that was made up, changed or sent twice begins nothing', async () => {
  const begin = async () => {
    const browser = createBrowser()
    const { location } = await browser.go(`${api.url}/auth/sign-in`)
    return { browser, state: new URL(location!).searchParams.get('state')!, value: browser.cookies(api.url)[0]![1] }
  }
  const { state, value } = await begin()
  const [text = '', signature = ''] = value.split('.')
  const own = { state, nonce: 'n', verifier: 'v', returnTo: '/', until: Date.now() + 60_000 }
  const made = Buffer.from(JSON.stringify(own)).toString('base64url')
  const statusWith = async (cookie: string): Promise<number> => {
    const url = `${api.url}/auth/callback?code=made-up&state=${state}`
    return (await fetch(url, { redirect: 'manual', headers: { cookie } })).status
  }
  assert.equal(await statusWith(`slipway_sign_in=${value}`), 401)
  for (const wrong of [made, `${made}.${signature}`, `${text}.`, text, `${text}.${'A'.repeat(43)}`])
    assert.equal(await statusWith(`slipway_sign_in=${wrong}`), 400, wrong)
  assert.equal(await statusWith(`slipway_sign_in=${value}; slipway_sign_in=${value}`), 400)
})

test('failed sign-ins are noted, one event a minute however many they are', async () => {
  const failing = await startApi({
    idle: true,
    settings: { oidc: { issuer: provider.issuer, audience: ['console'], adminEmails: [], ...client } },
  })
  for (let n = 0; n < 12; n += 1) assert.equal((await failing.call('GET', '/auth/callback?code=x&state=y')).status, 400)
  const rows = await failing.database.query<{ actor: string }>(
    `select actor_type as actor from event where sub_target_type = 'SSO' and event_type = 'POLICY_FAILED'`,
  )
  assert.deepEqual(rows, [{ actor: 'SYSTEM' }])
})

test('an answer of the issuer is good for the browser that asked, once', async () => {
  const [browser, stranger] = [createBrowser(), createBrowser()]
  const callback = await signIn(browser, '/')
  assert.equal((await stranger.go(callback)).answer.status, 400)
  assert.equal((await browser.go(callback)).answer.status, 302)
  assert.equal((await browser.go(callback)).answer.status, 400)
})

test('a code that the issuer did not issue, and a refusal, open no session', async () => {
  const browser = createBrowser()
  const { location } = await browser.go(`${api.url}/auth/sign-in`)
  const state = new URL(location!).searchParams.get('state')!
  assert.equal((await browser.go(`${api.url}/auth/callback?code=made-up&state=${state}`)).answer.status, 401)
  await browser.go(`${api.url}/auth/sign-in`)
  assert.equal((await browser.go(`${api.url}/auth/callback?code=made-up&state=${state}`)).answer.status, 400)
  const again = await browser.go(`${api.url}/auth/sign-in`)
  const second = new URL(again.location!).searchParams.get('state')!
  assert.equal((await browser.go(`${api.url}/auth/callback?error=access_denied&state=${second}`)).answer.status, 400)
})

test('one client behind the proxy that opens the pages too often does not limit the others', async () => {
  const oidc = { issuer: provider.issuer, audience: ['console'], adminEmails: [], ...client }
  const limited = await startApi({ idle: true, settings: { rateLimit: 600, oidc, trustedProxies: ['127.0.0.1'] } })
  const openFrom = async (address: string): Promise<number> => {
    const headers = { 'x-forwarded-for': address }
    return (await fetch(`${limited.url}/auth/sign-in`, { redirect: 'manual', headers })).status
  }
  const flood = await Promise.all(Array.from({ length: 120 }, () => openFrom('203.0.113.1')))
  assert.ok(flood.includes(302) && flood.includes(429))
  const others = await Promise.all(Array.from({ length: 20 }, () => openFrom('203.0.113.2')))
  assert.deepEqual([...new Set(others)], [302])
})

test('signing in leads back to this server only', () => {
  for (const path of ['/', '/a/b?c=d', '/projects']) assert.equal(safeReturn(path), path)
  const wrong = [
    '//evil.example',
    '/\\evil.example',
    'https://evil.example',
    'x',
    '',
    '/a#b',
    '/a b',
    '/\t/x',
    5,
    ['/a'],
  ]
  for (const text of wrong) assert.equal(safeReturn(text), '/', String(text))
})

test('where no client is configured there are no pages to sign in', async () => {
  const plain = await startApi({ idle: true })
  assert.equal((await plain.call('GET', '/auth/sign-in')).status, 404)
})
