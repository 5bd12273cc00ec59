/** Answers that an ACME server can give, and their results: the package must neither wait nor connect by itself. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Outbound, OutboundFailed, type OutboundRequest, type OutboundResponse } from '../lib/net/outbound.ts'
import { Secret } from '../lib/secret.ts'
import { createAccountKey, createAcmeAuthority } from './acme.ts'
import { AuthorityProblem } from './authority.ts'

const base = 'https://ca.example'
const urn = 'urn:ietf:params:acme:error:'
const signal = new AbortController().signal
const key = new Secret(await createAccountKey())

const json = (status: number, value: unknown, headers: Record<string, string> = {}): OutboundResponse => ({
  status,
  headers: { 'content-type': 'application/json', 'replay-nonce': 'bm9uY2U', ...headers },
  body: typeof value === 'string' ? value : JSON.stringify(value),
  truncated: false,
})

const directory = { newNonce: `${base}/nonce`, newAccount: `${base}/account`, newOrder: `${base}/order` }

type Answer = (request: OutboundRequest, count: number) => OutboundResponse | Error

/** A server that works until it is asked for an order. */
const serverThat = (answer: Answer) => {
  const asked: string[] = []
  const bodies: { payload: string; protected: string }[] = []
  const request = async (wanted: OutboundRequest): Promise<OutboundResponse> => {
    const path = String(wanted.url).slice(base.length)
    asked.push(`${wanted.method} ${path}`)
    if (typeof wanted.body === 'string') bodies.push(JSON.parse(wanted.body))
    if (path === '/dir') return json(200, directory)
    if (path === '/nonce') return json(200, '')
    if (path === '/account') return json(201, { status: 'valid' }, { location: `${base}/account/1` })
    const found = answer(wanted, asked.filter((each) => each === `POST ${path}`).length)
    if (found instanceof Error) throw found
    return found
  }
  const outbound = { request } as Pick<Outbound, 'request'> as Outbound
  const eab = { kid: 'kid-1', hmacKey: new Secret('aHVzaC1odXNoLWh1c2g') }
  const settings = { directory: `${base}/dir`, email: 'ops@example.org', eab, ca: undefined }
  return { authority: createAcmeAuthority(settings, outbound, async () => key), asked, bodies }
}

const problemOf = async (answer: Answer): Promise<AuthorityProblem> => {
  const { authority } = serverThat(answer)
  const error = await authority.order('a.example', signal).then(
    () => assert.fail('no problem'),
    (found: unknown) => found,
  )
  assert.ok(error instanceof AuthorityProblem, String(error))
  return error
}

test('an order begins with an account that is bound to that of the operator, made once', async () => {
  const order = { status: 'pending', authorizations: [], finalize: `${base}/finalize`, identifiers: [] }
  const { authority, asked, bodies } = serverThat(() => json(201, order, { location: `${base}/order/1` }))
  assert.equal(await authority.order('a.example', signal), `${base}/order/1`)
  await authority.order('b.example', signal)
  assert.equal(asked.filter((each) => each === 'POST /account').length, 1)
  const account = JSON.parse(Buffer.from(bodies[0]!.payload, 'base64url').toString())
  const bound = JSON.parse(Buffer.from(account.externalAccountBinding.protected, 'base64url').toString())
  assert.deepEqual([account.contact, bound.kid, bound.alg], [['mailto:ops@example.org'], 'kid-1', 'HS256'])
})

test('an account that is there is used again, and not changed to what it is', async () => {
  const asked: string[] = []
  const order = { status: 'pending', authorizations: [], finalize: `${base}/finalize`, identifiers: [] }
  const request = async ({ method, url }: OutboundRequest): Promise<OutboundResponse> => {
    const path = String(url).slice(base.length)
    asked.push(`${method} ${path}`)
    if (path === '/dir') return json(200, directory)
    if (path === '/nonce') return json(200, '')
    if (path === '/account') return json(200, { status: 'valid' }, { location: `${base}/account/1` })
    if (path === '/order') return json(201, order, { location: `${base}/order/1` })
    return json(400, { type: `${urn}malformed`, detail: 'an update without anything in it' })
  }
  const settings = { directory: `${base}/dir`, email: undefined, eab: undefined, ca: undefined }
  const authority = createAcmeAuthority(settings, { request } as Outbound, async () => key)
  assert.equal(await authority.order('a.example', signal), `${base}/order/1`)
  assert.ok(!asked.includes('POST /account/1'), String(asked))
})

test('a CA that limits us is asked once, and its pause is reported, as seconds or as a date', async () => {
  const limited =
    (headers: Record<string, string>): Answer =>
    (_request, count) => {
      assert.equal(count, 1, 'the package repeats by itself')
      return json(429, { type: `${urn}rateLimited`, detail: 'too many\ncertificates\u0000' }, headers)
    }
  const problem = await problemOf(limited({ 'retry-after': '7200' }))
  assert.deepEqual([problem.kind, problem.retryAfterMs], ['limited', 7_200_000])
  assert.equal(problem.message, 'The certificate authority limits requests: too many certificates')
  const date = new Date(Date.now() + 3_600_000).toUTCString()
  const { retryAfterMs = 0 } = await problemOf(limited({ 'retry-after': date }))
  assert.ok(retryAfterMs > 3_500_000 && retryAfterMs <= 3_600_000)
  const absurd = await problemOf(limited({ 'retry-after': '999999999' }))
  assert.equal(absurd.retryAfterMs, 7 * 86_400_000)
  assert.equal((await problemOf(limited({ 'retry-after': 'soon' }))).retryAfterMs, undefined)
})

test('a CA that is away, or answers nonsense, is silent; one that says no has refused', async () => {
  const silent: Answer[] = [
    () => new OutboundFailed('timeout', 'no answer in time'),
    () => json(503, '<html>busy</html>', { 'retry-after': '60' }),
    () => json(302, '', { location: 'http://169.254.169.254/' }),
    () => ({ ...json(201, {}), truncated: true }),
    () => json(201, 'no JSON'),
    // For as long as the package tries.
    () => json(400, { type: `${urn}badNonce` }),
  ]
  for (const answer of silent) assert.notEqual((await problemOf(answer)).kind, 'limited')
  assert.equal((await problemOf(silent[0]!)).kind, 'silent')
  assert.equal((await problemOf(silent[1]!)).retryAfterMs, 60_000)
  assert.equal((await problemOf(silent[2]!)).kind, 'silent')
  const refused = await problemOf(() => json(403, { type: `${urn}rejectedIdentifier`, detail: 'x'.repeat(10_000) }))
  assert.equal(refused.kind, 'refused')
  assert.ok(refused.message.length < 600)
  assert.equal((await problemOf(() => json(400, { type: `${urn}accountDoesNotExist` }))).kind, 'gone')
})

test('a stop does not wait for the CA', async () => {
  const ending = new AbortController()
  const { authority } = serverThat(() => {
    ending.abort(new Error('stopping'))
    return new OutboundFailed('aborted', 'the request was aborted')
  })
  await assert.rejects(authority.order('a.example', ending.signal), /stopping/)
})
