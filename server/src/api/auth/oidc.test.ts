import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { test } from 'node:test'
import { exportJWK, exportSPKI, generateKeyPair, importJWK, SignJWT } from 'jose'
import { startApi } from '../../../test/support/api.ts'
import { audience, startIdentityProvider } from '../../../test/support/peers/identity-provider.ts'

const provider = await startIdentityProvider()
const { issuer } = provider
const api = await startApi({
  idle: true,
  settings: { oidc: { issuer, audience: [audience], adminEmails: ['carol@example.com'] } },
})

const bearer = (token: string) => (path: string) =>
  api.as(null)('GET', path, undefined, { authorization: `Bearer ${token}` })
const statusOf = async (token: string): Promise<number> => (await bearer(token)('/account')).status

const now = (): number => Math.floor(Date.now() / 1000)
const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')

test('a JWT of the issuer has an account: it is created at its first use, and sees no organization', async () => {
  const asAlice = bearer(await provider.tokenOf('alice'))
  const account = await asAlice('/account')
  assert.deepEqual(
    [account.status, account.body.nickname, account.body.communication_email],
    [200, 'alice', 'alice@example.com'],
  )
  assert.equal((await asAlice('/account')).body.id, account.body.id)
  const authorization = `Bearer ${await provider.tokenOf('alice')}`
  await api.as(null)('PUT', '/account', { communication_email: 'post@example.com' }, { authorization })
  assert.equal((await asAlice('/account')).body.communication_email, 'post@example.com')
  assert.deepEqual((await asAlice('/organization')).body, { results: [] })
  for (const path of [
    `/organization/${api.organizationId}`,
    `/organization/${api.organizationId}/project`,
    '/variable',
  ])
    assert.equal((await asAlice(path)).status, 404, path)
})

test('each single deviation from a valid token is a 401', async () => {
  assert.equal(await statusOf(await provider.sign({})), 200)
  const wrong: [string, string | Promise<string>][] = [
    ['another audience', provider.sign({ aud: 'somebody-else' })],
    ['no audience', provider.sign({ aud: undefined })],
    ['another issuer', provider.sign({ iss: 'https://issuer.example' })],
    ['the issuer with a slash more', provider.sign({ iss: `${issuer}/` })],
    ['expired beyond the grace', provider.sign({ iat: now() - 400, exp: now() - 62 })],
    ['not yet valid beyond the grace', provider.sign({ nbf: now() + 70 })],
    ['without an end', provider.sign({ exp: undefined })],
    ['valid for more than a day', provider.sign({ exp: now() + 25 * 3600 })],
    ['without a beginning', provider.sign({ iat: undefined })],
    ['without a beginning, for ten years', provider.sign({ iat: undefined, exp: now() + 10 * 365 * 24 * 3600 })],
    ['made in an hour', provider.sign({ iat: now() + 3600, exp: now() + 7200 })],
    ['made in a year, for an hour', provider.sign({ iat: now() + 365 * 86_400, exp: now() + 365 * 86_400 + 3600 })],
    ['made beyond the grace', provider.sign({ iat: now() + 70 })],
    ['made last year, for a year and an hour', provider.sign({ iat: now() - 365 * 86_400, exp: now() + 3600 })],
    ['without a subject', provider.sign({ sub: undefined })],
    ['a subject that is too long', provider.sign({ sub: 'x'.repeat(256) })],
    ['of another type', provider.sign({}, { typ: 'logout+jwt' })],
    ['naming where its key is', provider.sign({}, { jku: `${issuer}/jwks` })],
    ['longer than 8 KB', provider.sign({ padding: 'x'.repeat(9000) })],
  ]
  for (const [what, token] of wrong) assert.equal(await statusOf(await token), 401, what)
})

test('within the grace of a minute a clock that differs does no harm', async () => {
  assert.equal(await statusOf(await provider.sign({ iat: now() - 400, exp: now() - 40 })), 200)
  assert.equal(await statusOf(await provider.sign({ nbf: now() + 40 })), 200)
  assert.equal(await statusOf(await provider.sign({ iat: now() + 40 })), 200)
})

test('a token that is not signed, signed otherwise or changed is a 401', async () => {
  const claims = { iss: issuer, aud: audience, sub: 'intruder', iat: now(), exp: now() + 300 }
  const [header, , signature] = (await provider.sign({})).split('.')
  const { privateKey } = await generateKeyPair('RS256')
  const foreign = (kid: string) => new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid }).sign(privateKey)
  const spki = await exportSPKI((await importJWK(provider.publicKey(), 'RS256')) as never)
  // The public key of the issuer taken as a shared secret.
  const confused = (text: string): string => {
    const signed = `${encode({ alg: 'HS256', kid: 'key-1' })}.${encode(claims)}`
    return `${signed}.${createHmac('sha256', text).update(signed).digest('base64url')}`
  }
  const own = await generateKeyPair('RS256', { extractable: true })
  const jwk = await exportJWK(own.publicKey)
  const wrong: [string, string][] = [
    ['alg none', `${encode({ alg: 'none' })}.${encode(claims)}.`],
    ["alg none with the issuer's signature", `${encode({ alg: 'none' })}.${encode(claims)}.${signature}`],
    ['changed claims', `${header}.${encode(claims)}.${signature}`],
    ['the signature cut off', `${header}.${encode(claims)}.`],
    ['a key of nobody', await foreign('unknown')],
    ["a key of nobody under the name of the issuer's", await foreign('key-1')],
    ['the public key as a secret', confused(spki)],
    ['the public key as a secret, with a blank', confused(` ${spki}`)],
    ['its own key', await new SignJWT(claims).setProtectedHeader({ alg: 'RS256', jwk }).sign(own.privateKey)],
    ['no JWT at all', 'eyJhbGciOiJub25lIn0.x.y'],
  ]
  for (const [what, token] of wrong) assert.equal(await statusOf(token), 401, what)
})

test("the first of the operator's people owns the first organization, and only with a verified address", async () => {
  const seen = (await bearer(await provider.tokenOf('carol'))('/organization')).body
  assert.equal(seen.id, api.organizationId)
  const members = (await api.call('GET', `/organization/${api.organizationId}/member`)).body.results
  assert.deepEqual(
    members.map(({ email, role, role_name }: Record<string, string>) => [email, role, role_name]),
    [['carol@example.com', 'OWNER', 'owner']],
  )
  const [event] = (await api.call('GET', `/organization/${api.organizationId}/events?targetType=MEMBERS_AND_ROLES`))
    .body.events
  assert.deepEqual(
    [event.target_name, event.triggered_by, event.actor_type, JSON.parse(event.change)],
    ['carol@example.com', 'SLIPWAY_OIDC_ADMIN_EMAILS', 'OPERATOR', { role: 'owner' }],
  )
  const claimed = await provider.sign({ sub: 'claims-it', email: 'carol@example.com', email_verified: false })
  assert.deepEqual((await bearer(claimed)('/organization')).body, { results: [] })
})

test('an account that creates an organization owns it, and sees no other', async () => {
  const authorization = `Bearer ${await provider.tokenOf('dave')}`
  const as = (method: string, path: string, body?: object) => api.as(null)(method, path, body, { authorization })
  const made = await as('POST', '/organization', { name: 'Of Dave', plan: 'FREE' })
  assert.deepEqual([made.status, made.body.name], [201, 'Of Dave'])
  const { body } = await as('GET', '/organization')
  assert.deepEqual([body.id, body.results.length], [made.body.id, 1])
  const project = await as('POST', `/organization/${made.body.id}/project`, { name: 'first' })
  const environment = await as('POST', `/project/${project.body.id}/environment`, { name: 'dev' })
  assert.deepEqual([project.status, environment.status], [200, 201])
  assert.equal((await as('GET', `/organization/${api.organizationId}`)).status, 404)
  assert.equal((await as('POST', '/organization', { name: 'of dave', plan: 'FREE' })).body.code, 'name_taken')
})

test('a stored answer is not repeated to another caller, though the key and the request are the same', async () => {
  const create = async (person: string) =>
    api.as(null)(
      'POST',
      '/organization',
      { name: 'Of whom', plan: 'FREE' },
      {
        authorization: `Bearer ${await provider.tokenOf(person)}`,
        'idempotency-key': 'the-same-key',
      },
    )
  const first = await create('bob')
  assert.equal(first.status, 201)
  assert.equal((await create('mallory')).body.code, 'name_taken')
})

test('after a rotation the new keys are fetched at once, then at most once a minute', async () => {
  const before = await provider.tokenOf('erin')
  assert.equal(await statusOf(before), 200)
  // The tests above have used up this minute's fetch for unknown keys.
  const fresh = await startApi({ idle: true, settings: { oidc: { issuer, audience: [audience], adminEmails: [] } } })
  const statusThere = async (token: string) =>
    (await fresh.as(null)('GET', '/account', undefined, { authorization: `Bearer ${token}` })).status
  assert.equal(await statusThere(before), 200)
  await provider.rotate()
  assert.equal(await statusThere(await provider.tokenOf('erin')), 200)
  assert.equal(await statusThere(await provider.sign({ sub: 'another' })), 200)
  await provider.rotate()
  const asked = provider.keyRequests()
  assert.equal(await statusThere(await provider.tokenOf('erin')), 401)
  assert.equal(await statusThere(await provider.sign({ sub: 'a third' })), 401)
  assert.equal(provider.keyRequests(), asked)
})

test('without a configured issuer no JWT is anybody', async () => {
  const plain = await startApi({ idle: true })
  const token = await provider.sign({})
  assert.equal((await plain.as(null)('GET', '/account', undefined, { authorization: `Bearer ${token}` })).status, 401)
})
