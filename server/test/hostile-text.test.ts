/** Hostile text that tries to start a new line, and secrets in addresses. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { request } from 'node:http'
import { test } from 'node:test'
import { readPush } from '../src/webhooks/inbound/payload.ts'
import { readEnvelope } from '../src/webhooks/inbound/verify.ts'
import { newApplication, newPlace, startApi } from './support/api.ts'
import { longestParsed } from './support/longest-parsed.ts'
import { hostNames, pushDelivery, sign } from './support/peers/git-hosts.ts'
import { tapLog } from './support/tap-log.ts'
import { until } from './support/until.ts'

const api = await startApi({ git: true })
const { call, organizationId, source, token } = api
const logged = tapLog(api.parts.log)
const forged = 'octo\r\ncat\r\nX-Forged: 1\n{"level":50,"msg":"forged"}\u2028\u0085\u001b[2J'

const newHook = async () => (await call('POST', `/organization/${organizationId}/gitWebhook`, {})).body

const newCommit = (): string => randomBytes(20).toString('hex')

test('line breaks in text from a git host never start a new line or header', async () => {
  const hook = await newHook()
  const { pathname } = new URL(hook.url)
  for (const host of hostNames) {
    const { environmentId } = await newPlace(api)
    const name = `shop-${host}`
    const git_repository = { url: `https://github.com/acme/${name}.git`, branch: 'main' }
    const { id } = await newApplication(api, environmentId, { git_repository, auto_deploy: true })
    const lastPush = async () => (await call('GET', `/service/${id}/gitWebhookStatus`)).body.last_push
    await until(
      async () =>
        (await api.database.query('select 1 from followed_branch where service_id = $1 and seen is not null', [id]))
          .length > 0,
      { what: 'the first poll' },
    )
    Object.assign(source, { head: newCommit(), message: forged, changes: null })
    const told = { path: `acme/${name}`, after: source.head, pusher: forged }
    const { headers, body } = pushDelivery(host, told, hook.signing_secret)
    const answer = await fetch(api.url + pathname, { method: 'POST', headers, body })
    assert.deepEqual([answer.status, await answer.json()], [202, { status: 'ACCEPTED', repositories: 1 }], host)
    assert.equal(answer.headers.get('x-forged'), null)
    const isJudged = async () => (await lastPush())?.commit_id === source.head
    await until(isJudged, { what: `the push of ${host} to be judged` })
    const { outcome, reason } = await lastPush()
    assert.deepEqual([outcome, reason], ['DEPLOYED', null], host)
    // The history lists a deployment from its beginning.
    const read = async () => (await call('GET', `/environment/${environmentId}/deploymentHistory`)).body.results[0]
    const deployment = await until(read, { what: 'the deployment to begin' })
    assert.doesNotMatch(deployment.triggered_by, /[\p{Cc}\u2028\u2029]/u, host)
    // As names they are none.
    const odd = pushDelivery(host, { path: `acme/${name}\r\nx`, after: newCommit(), branch: 'main\r\nx' }, 'x')
    const envelope = readEnvelope(odd.headers)!
    const push = await readPush(envelope, odd.headers, Buffer.from(odd.body), 'x')
    assert.doesNotMatch(JSON.stringify(push), /\\[rnu]/, host)
  }
  for (const line of logged().split('\n').filter(Boolean)) assert.equal(typeof JSON.parse(line).level, 'number', line)
  assert.doesNotMatch(logged(), /"msg":"forged"/)
})

test('a delivery is counted before it is parsed, even a genuine one, as JSON and as a form', async (t) => {
  const hook = await newHook()
  const send = async (text: string, more: Record<string, string> = {}): Promise<number> => {
    const { headers, body } = sign('github', text, hook.signing_secret)
    return (
      await fetch(api.url + new URL(hook.url).pathname, { method: 'POST', headers: { ...headers, ...more }, body })
    ).status
  }
  const form = { 'content-type': 'application/x-www-form-urlencoded' }
  const push = (more: string): string =>
    `{"ref":"refs/heads/main","after":"${newCommit()}","repository":{"full_name":"acme/shop"},"x":[${more}{}]}`
  const longest = longestParsed(t)
  assert.equal(await send(push('{},'.repeat(1_500_000))), 400)
  assert.equal(await send(`payload=${encodeURIComponent(push('{},'.repeat(400_000)))}`, form), 400)
  assert.equal(await send('a&'.repeat(2_000_000), form), 400)
  assert.ok(longest() < 100_000)
  assert.equal(await send(push('{},'.repeat(90_000))), 202)
  assert.equal(await send(`a=1&payload=${encodeURIComponent(push(''))}`, form), 202)
})

/** As it is: fetch takes logins out of addresses. */
const statusOf = (method: string, path: string, headers: Record<string, string> = {}): Promise<number> =>
  new Promise((resolve, reject) => {
    const { port } = new URL(api.url)
    const asked = request({ host: '127.0.0.1', port, method, path, headers, agent: false }, (answer) => {
      answer.resume().on('end', () => resolve(answer.statusCode!))
    })
    asked.on('error', reject).end()
  })

test('a secret in an address is in no line of the log, whether it is right, wrong or in the wrong place', async () => {
  const hook = await newHook()
  const { pathname } = new URL(hook.url)
  const { environmentId } = await newPlace(api)
  const git_repository = { url: 'slipway:internal', branch: 'main' }
  const { id } = await newApplication(api, environmentId, { git_repository, ports: [] })
  const wrong = `Wrong${randomBytes(16).toString('hex')}`
  const fits = hook.secret_url === null ? '' : new URL(hook.secret_url).pathname.split('/').at(-1)!
  const login = (password: string) => ({ authorization: `Basic ${Buffer.from(`x:${password}`).toString('base64')}` })
  const upload = `/git/${id}.git/info/refs?service=git-upload-pack`
  const asked: [string, string, Record<string, string>?][] = [
    ['POST', `${pathname}/${wrong}`],
    ['POST', `${pathname}/${fits}`],
    ['POST', `/git-webhooks/${'0'.repeat(8)}/${wrong}`],
    ['GET', `/organization?token=${token}`],
    ['GET', `/organization/${wrong}?access_token=${token}`, { authorization: `Token ${token}` }],
    ['GET', `/no/such/${wrong}`],
    ['GET', `/%zz${wrong}`],
    ['GET', `http://x:${wrong}@127.0.0.1/organization`],
    ['GET', upload, login(wrong)],
    ['GET', `${upload}&password=${wrong}`, login(token)],
    ['GET', `/git/x:${wrong}@${id}.git/info/refs?service=git-upload-pack`, login(token)],
    ['POST', '/console/session', { 'content-type': 'application/json' }],
  ]
  for (const [method, path, headers] of asked) await statusOf(method, path, headers)
  await until(() => logged().includes(hook.id), { what: 'a line about the refused delivery' })
  for (const secret of [wrong, token, hook.signing_secret, fits].filter((each) => each !== ''))
    assert.ok(!logged().includes(secret), 'a secret is in the log')
})
