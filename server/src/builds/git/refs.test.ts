import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { startGitServer } from '../../../test/support/peers/git-server.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { createOutbound, OutboundFailed, type OutboundStream } from '../../lib/net/outbound.ts'
import { createRefs, type OpenUrl, type RefsRequest } from './refs.ts'

const never = new AbortController().signal
const request = (url: string, names: readonly string[]): RefsRequest => ({
  url,
  headers: {},
  names,
  timeoutMs: 10_000,
  signal: never,
})

test('a host of today and an old one name the same branches and tags, and a known host is asked once', async () => {
  const server = await startGitServer()
  try {
    await server.createRepository('app')
    const one = await server.commit('app', { a: '1' }, 'one')
    const two = await server.commit('app', { a: '2' }, 'two', { branch: 'main-2' })
    await server.tag('app', 'light', one)
    await server.tag('app', 'full', two, 'a tag with a message')
    const wanted = request(server.url('app'), ['refs/heads/main', 'refs/tags/'])
    const outbound = createOutbound({ allow: ['loopback'] })
    const old: OpenUrl = (sent) => {
      const { 'git-protocol': _, ...headers } = sent.headers ?? {}
      return outbound.open({ ...sent, headers })
    }
    const expected = { 'refs/heads/main': one, 'refs/tags/full': two, 'refs/tags/light': one }
    assert.deepEqual(Object.fromEntries(await createRefs(old)(wanted)), expected)
    server.requests.length = 0
    const readRefs = createRefs(outbound.open)
    for (let round = 0; round < 2; round += 1) assert.deepEqual(Object.fromEntries(await readRefs(wanted)), expected)
    assert.deepEqual(server.requests, [
      'GET /info/refs?service=git-upload-pack',
      'POST /git-upload-pack',
      'POST /git-upload-pack',
    ])
  } finally {
    await server.close()
  }
})

const frame = (text: string): string => (text.length + 4).toString(16).padStart(4, '0') + text
const id = 'a'.repeat(40)

const answer = (kind: string, chunks: Iterable<string>, status = 200): OutboundStream => ({
  status,
  headers: { 'content-type': `application/x-git-upload-pack-${kind}` },
  body: Readable.from([...chunks].map((chunk) => Buffer.from(chunk, 'latin1'))),
})

const fails = async (open: OpenUrl, code: string, message: RegExp): Promise<void> => {
  const work = createRefs(open)(request('https://git.test/app.git', ['refs/heads/main']))
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof DeploymentError, String(error))
    assert.equal(error.code, code, error.message)
    assert.match(error.message, message)
    return true
  })
}

test('what is not a valid response of a git server, or a refusal, is a sentence', async () => {
  const said =
    (...chunks: string[]) =>
    async () =>
      answer('advertisement', chunks)
  for (const bad of ['', 'hello', '0003', '0032ab', `${frame('version 2\n')}zzzz`])
    await fails(said(bad), 'git_unreachable', /did not answer as a git server/)
  await fails(async () => answer('result', [frame('version 2\n')]), 'git_unreachable', /as a git server/)
  await fails(said(frame('ERR Repository not found.\n')), 'git_denied', /no such repository/)
  for (const [status, code] of [
    [302, 'git_refused'],
    [401, 'git_denied'],
    [404, 'git_denied'],
    [500, 'git_unreachable'],
  ] as const)
    await fails(async () => answer('advertisement', [], status), code, /git\.test/)
  await fails(async () => answer('advertisement', [], 503), 'git_unreachable', /answered with the HTTP status 503\.$/)
  for (const [reason, code] of [
    ['CERT_HAS_EXPIRED', 'git_refused'],
    ['ECONNREFUSED', 'git_unreachable'],
  ] as const)
    await fails(() => Promise.reject(new OutboundFailed('connection', `failed (${reason})`)), code, /git\.test/)
})

test('a host that limits requests is named with the end of the limit, and a token only if one was sent', async () => {
  const ends = Math.floor(Date.now() / 1000) + 600
  const at = new Date(ends * 1000).toISOString().slice(11, 19)
  const sentence = async (status: number, headers: Record<string, string>, authorization?: string) => {
    const open: OpenUrl = async () => ({ ...answer('advertisement', [], status), headers })
    const asked = request('https://git.test/app.git', ['refs/heads/main'])
    const sent: Record<string, string> = authorization === undefined ? {} : { authorization }
    return createRefs(open)({ ...asked, headers: sent }).then(
      () => assert.fail(`status ${status} was accepted`),
      ({ message }: Error) => message,
    )
  }
  const limited = new RegExp(`too many requests and refuses more until \\S+ ${at} UTC \\(status 4`)
  assert.match(await sentence(403, { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(ends) }), limited)
  assert.match(await sentence(429, { 'x-ratelimit-reset': String(ends) }, 'Basic x'), limited)
  assert.match(await sentence(429, {}), /too many requests and refuses more \(status 429\)\.$/)
  for (const status of [401, 403, 404]) {
    assert.match(
      await sentence(status, {}),
      /has no such repository, or it is private: .* or choose a git token for it/,
    )
    assert.match(await sentence(status, {}, 'Basic x'), /check the git token|not accessible with this git token/)
  }
})

test('frames may be cut anywhere, ids keep their format, and what was not asked for is not kept', async () => {
  const sent: string[] = []
  const greeting = `${frame('# service=git-upload-pack\n')}0000${frame('version 2\n')}${frame('object-format=sha256\n')}0000`
  const long = 'b'.repeat(64)
  const refs = [
    `${long} refs/heads/main\n`,
    `${id} refs/heads/mainly\n`,
    `${id} refs/tags/v1\n`,
    'oops refs/heads/main\n',
  ]
  const open: OpenUrl = async ({ method, body }) => {
    if (method === 'GET') return answer('advertisement', greeting)
    sent.push(String(body))
    return answer('result', `${refs.map(frame).join('')}0000`)
  }
  const found = await createRefs(open)(request('https://git.test/app.git', ['refs/heads/main']))
  assert.deepEqual([...found], [['refs/heads/main', long]])
  assert.match(
    sent[0]!,
    /^0014command=ls-refs\n0019object-format=sha256\n00010009peel\n001fref-prefix refs\/heads\/main\n0000$/,
  )
})
