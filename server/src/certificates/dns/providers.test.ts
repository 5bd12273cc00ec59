/** Each provider against what it talks to: BIND itself, and servers of the tests' own that check every signature. */
import assert from 'node:assert/strict'
import { createServer } from 'node:net'
import { test } from 'node:test'
import { startBind, withoutBind } from '../../../test/support/tls/bind.ts'
import { signAws } from '../../lib/net/aws-signature.ts'
import { OutboundFailed, type OutboundRequest, type OutboundResponse } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import { createCloudflare } from './cloudflare.ts'
import { DnsProblem, type DnsProblemKind, type DnsProvider } from './provider.ts'
import { createUpdateProvider } from './rfc2136.ts'
import { createRoute53 } from './route53.ts'
import { readUpdateAnswer, updateMessage } from './update-message.ts'

const { signal } = new AbortController()
const clock = { now: () => new Date() }
const record = (value: string) => ({ name: '_acme-challenge.apps.example.test', value })

const problemOf = async (work: Promise<unknown>): Promise<DnsProblemKind> => {
  const error = await work.then(
    () => assert.fail('no problem'),
    (found: unknown) => found,
  )
  assert.ok(error instanceof DnsProblem, String(error))
  assert.doesNotMatch(error.message, /hush/)
  return error.kind
}

/** The promises of every provider; `texts` are the values that it has for the name. */
const holdPromises = async (provider: DnsProvider, texts: () => Promise<string[]> | string[]): Promise<void> => {
  await provider.check(record('').name, signal)
  await provider.set(record('one'), signal)
  await provider.set(record('one'), signal)
  await provider.set(record('two'), signal)
  assert.deepEqual([...(await texts())].sort(), ['one', 'two'])
  await provider.remove(record('one'), signal)
  await provider.remove(record('one'), signal)
  assert.deepEqual(await texts(), ['two'])
  await provider.remove(record('two'), signal)
  await provider.remove(record('two'), signal)
  assert.deepEqual(await texts(), [])
  assert.equal(await problemOf(provider.check('_acme-challenge.elsewhere.example', signal)), 'zone')
}

test('BIND takes records that are signed with its key, and nothing else', { skip: withoutBind }, async () => {
  const bind = await startBind('example.test')
  const providerWith = (more: { port?: number; keyName?: string; secret?: string }, now = clock.now) =>
    createUpdateProvider(
      {
        ...{ host: '127.0.0.1', port: more.port ?? bind.port, keyName: more.keyName ?? bind.key.name },
        keySecret: new Secret(more.secret ?? bind.key.secret),
      },
      { now },
    )
  try {
    await holdPromises(providerWith({}), () => bind.texts(record('').name))
    const denied = [
      providerWith({ secret: Buffer.from('hush-hush-hush-hush').toString('base64') }),
      providerWith({ keyName: 'unknown' }),
      providerWith({}, () => new Date(Date.now() - 3_600_000)),
    ]
    for (const provider of denied) assert.equal(await problemOf(provider.set(record('no'), signal)), 'denied')
    assert.deepEqual(await bind.texts(record('').name), [])
  } finally {
    await bind.close()
  }
})

test('a name server that says nothing, or hangs up, is silent', async () => {
  const server = createServer((socket) => void socket.destroy()).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as { port: number }
  const place = { host: '127.0.0.1', port, keyName: 'k', keySecret: new Secret('aHVzaA==') }
  assert.equal(await problemOf(createUpdateProvider(place, clock).set(record('x'), signal)), 'silent')
  server.close()
})

test('an answer counts as signed only if it is signed with our key, for what we asked', () => {
  const key = { name: 'k', secret: Buffer.from('hush') }
  const update = { kind: 'add' as const, zone: 'example.test', ...record('x') }
  const { message, signature } = updateMessage(update, key, { id: 7, now: new Date(0) })
  assert.equal(signature.length, 32)
  // As an answer to our own message, whose signature covers no earlier request.
  const answer = Buffer.from(message)
  answer.writeUInt16BE(0xa800, 2)
  assert.deepEqual(readUpdateAnswer(answer, 7, key, signature), { code: 0, tsigError: 0, isSigned: false })
  assert.equal(readUpdateAnswer(answer, 8, key, signature), null)
  for (let size = 0; size < answer.length; size += 1)
    assert.notEqual(readUpdateAnswer(answer.subarray(0, size), 7, key, signature)?.isSigned, true)
})

type Answer = { status: number; body: string; headers?: Record<string, string> }

/** An outgoing client whose other end is a function. */
const clientOf = (answer: (request: OutboundRequest, url: URL) => Answer | Error) => ({
  async request(request: OutboundRequest): Promise<OutboundResponse> {
    const found = answer(request, new URL(String(request.url)))
    if (found instanceof Error) throw found
    return { headers: {}, truncated: false, ...found }
  },
})

/** How either HTTP provider reports unexpected answers. */
const holdProblems = async (providerOf: (answer: () => Answer | Error) => DnsProvider): Promise<void> => {
  const cases: [Answer | Error, DnsProblemKind][] = [
    [new OutboundFailed('timeout', 'no answer in time'), 'silent'],
    [{ status: 503, body: '<html>hush</html>' }, 'silent'],
    [{ status: 302, body: '', headers: { location: 'http://169.254.169.254/' } }, 'silent'],
    [{ status: 403, body: '{"success":false,"errors":[{"code":10000,"message":"hush"}]}' }, 'denied'],
    [{ status: 429, body: '', headers: { 'retry-after': '120' } }, 'limited'],
  ]
  for (const [answer, kind] of cases)
    assert.equal(await problemOf(providerOf(() => answer).set(record('x'), signal)), kind, JSON.stringify(answer))
  const limited = await providerOf(() => cases.at(-1)![0])
    .check('a.example.test', signal)
    .catch((error: DnsProblem) => error.retryAfterMs)
  assert.equal(limited, 120_000)
}

test('Cloudflare gets records by its API and a token', async () => {
  const zone = '0123456789abcdef0123456789abcdef'
  const records = new Map<string, { id: string; name: string; content: string }>()
  const good = (result: unknown): Answer => ({
    status: 200,
    body: JSON.stringify({ success: true, errors: [], result }),
  })
  const bad = (status: number, code: number): Answer => ({
    status,
    body: JSON.stringify({ success: false, errors: [{ code, message: 'hush' }], result: null }),
  })
  const client = clientOf(({ method, headers, body }, { origin, pathname, searchParams }) => {
    assert.equal(origin, 'https://api.cloudflare.com')
    if (headers?.authorization !== 'Bearer hush-hush-hush-hush-hush') return bad(403, 9109)
    const path = pathname.replace('/client/v4', '')
    const name = searchParams.get('name')
    if (path === '/zones') return good(name === 'example.test' ? [{ id: zone, name }] : [])
    if (path === `/zones/${zone}/dns_records` && method === 'GET')
      return good([...records.values()].filter((each) => each.name === name))
    if (path === `/zones/${zone}/dns_records`) {
      const { type, name, content } = JSON.parse(String(body))
      assert.equal(type, 'TXT')
      if ([...records.values()].some((each) => each.content === content)) return bad(400, 81_058)
      const id = String(records.size).padStart(32, 'a')
      records.set(id, { id, name, content })
      return good({ id })
    }
    assert.equal(method, 'DELETE')
    return records.delete(path.split('/').at(-1)!) ? good({}) : { status: 404, body: '' }
  })
  const provider = createCloudflare(client, new Secret('hush-hush-hush-hush-hush'))
  await holdPromises(provider, () => [...records.values()].map(({ content }) => content.slice(1, -1)))
  const other = createCloudflare(client, new Secret('hush-of-somebody-else-here'))
  assert.equal(await problemOf(other.set(record('x'), signal)), 'denied')
  await holdProblems((answer) => createCloudflare(clientOf(answer), new Secret('hush')))
})

test('Route 53 gets records by signed requests, and keeps what others set at the same time', async () => {
  const keys = { accessKey: 'AKIDEXAMPLEAKIDEXAMPLE', secretKey: new Secret('hush-hush-hush-hush') }
  const now = new Date('2026-01-01T00:00:00Z')
  let texts: string[] = []
  /** A record of another client, set between our read and our change. */
  let intruder: string | null = null
  const set = () =>
    `<ResourceRecordSet><Name>${record('').name}.</Name><Type>TXT</Type><TTL>60</TTL><ResourceRecords>${texts
      .map((text) => `<ResourceRecord><Value>&quot;${text}&quot;</Value></ResourceRecord>`)
      .join('')}</ResourceRecords></ResourceRecordSet>`
  const failed = (status: number, code: string): Answer => ({ status, body: `<Error><Code>${code}</Code></Error>` })
  const valuesIn = (xml: string): string[] => [...xml.matchAll(/&quot;(\w+)&quot;/g)].map(([, text]) => text!)
  const apply = (body: string): Answer => {
    if (intruder !== null) texts = [...texts, intruder]
    intruder = null
    const [, removed = ''] = /<Action>DELETE<\/Action>(.*?)<\/Change>/.exec(body) ?? []
    const [, created = ''] = /<Action>CREATE<\/Action>(.*?)<\/Change>/.exec(body) ?? []
    if (valuesIn(removed).join() !== texts.join()) return failed(400, 'InvalidChangeBatch')
    texts = valuesIn(created)
    return { status: 200, body: '<ChangeInfo/>' }
  }
  const client = clientOf(({ method, headers = {}, body = '' }, url) => {
    const { authorization, 'x-amz-date': _, ...own } = headers
    const request = { method: method as 'GET', url, headers: own, body: String(body) }
    const place = { region: 'us-east-1', service: 'route53' }
    const pair = { accessKey: keys.accessKey, secretKey: keys.secretKey.reveal() }
    if (signAws({ ...request, ...place }, pair, now).authorization !== authorization)
      return failed(403, 'SignatureDoesNotMatch')
    assert.equal(url.origin, 'https://route53.amazonaws.com')
    if (url.pathname === '/2013-04-01/hostedzonesbyname')
      return {
        status: 200,
        body: `<HostedZones><HostedZone><Id>/hostedzone/ZPRIVATE</Id><Name>example.test.</Name><Config><PrivateZone>true</PrivateZone></Config></HostedZone><HostedZone><Id>/hostedzone/Z1</Id><Name>example.test.</Name></HostedZone></HostedZones>`,
      }
    assert.match(url.pathname, /^\/2013-04-01\/hostedzone\/Z1\/rrset\/?$/)
    if (method === 'POST') return apply(String(body))
    return { status: 200, body: `<ResourceRecordSets>${texts.length === 0 ? '' : set()}</ResourceRecordSets>` }
  })
  const provider = createRoute53(client, keys, { now: () => now })
  await holdPromises(provider, () => texts)
  intruder = 'other'
  await provider.set(record('mine'), signal)
  assert.deepEqual([...texts].sort(), ['mine', 'other'])
  const other = createRoute53(client, { ...keys, secretKey: new Secret('hush-of-others') }, { now: () => now })
  assert.equal(await problemOf(other.set(record('x'), signal)), 'denied')
  const throttled = createRoute53(
    clientOf(() => failed(400, 'Throttling')),
    keys,
    clock,
  )
  assert.equal(await problemOf(throttled.set(record('x'), signal)), 'limited')
  await holdProblems((answer) => createRoute53(clientOf(answer), keys, clock))
})
