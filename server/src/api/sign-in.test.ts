import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startApi } from '../../test/api.ts'
import { startIdentityProvider } from '../../test/identity-provider.ts'
import { Secret } from '../lib/secret.ts'
import { safeReturn } from './sign-in.ts'

const provider = await startIdentityProvider()
const client = { clientId: 'console', clientSecret: new Secret('a secret of the console') }
const api = await startApi({
  idle: true,
  settings: { oidc: { issuer: provider.issuer, audience: ['console'], adminEmails: [], ...client } },
})
provider.addBrowserClient('console', 'a secret of the console', `${api.url}/auth/callback`)

/** A browser with its cookies, which follows one redirect at a time. */
const createBrowser = () => {
  const jars = new Map<string, Map<string, string>>()
  const go = async (url: string, form?: Record<string, string>) => {
    const { origin } = new URL(url)
    const jar = jars.get(origin) ?? new Map<string, string>()
    jars.set(origin, jar)
    const answer = await fetch(url, {
      redirect: 'manual',
      method: form === undefined ? 'GET' : 'POST',
      headers: { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') },
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
  return { go, follow }
}

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

test('an answer of the issuer is good for the browser that asked, once', async () => {
  const [browser, stranger] = [createBrowser(), createBrowser()]
  const callback = await signIn(browser, '/')
  assert.equal((await stranger.go(callback)).answer.status, 400)
  assert.equal((await browser.go(callback)).answer.status, 302)
  assert.equal((await browser.go(callback)).answer.status, 400)
})

test('a code that the issuer did not give, and a refusal, sign nobody in', async () => {
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
