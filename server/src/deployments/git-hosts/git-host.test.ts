/** Possible answers of git hosts, and the parts of them that we accept. */
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { type TestContext, test } from 'node:test'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { apiNames, startGitHostApi } from '../../../test/support/peers/git-host-api.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import type { Database } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import { openGitHost } from './git-host.ts'

const never = new AbortController().signal

const open = async (token: { type: string; token: string; git_api_url: string }) => {
  const { origin } = new URL(token.git_api_url)
  const reach = { origins: [origin], urls: [] }
  const row = { type: token.type, apiUrl: token.git_api_url, sealed: 'x', expired: false, reach }
  const host = await openGitHost(
    {
      database: standIn<Database>({ query: async () => [row] }),
      sealer: standIn<Sealer>({ open: async () => new Secret(token.token) }),
      outbound: createOutbound({ allow: ['loopback'] }),
    },
    'organization',
    `${origin}/acme/shop.git`,
    'token',
  )
  return host!
}

for (const name of apiNames)
  test(`a comment is written once and then changed, however many others there are: ${name}`, async (t: TestContext) => {
    const api = await startGitHostApi()
    t.after(() => api.close())
    const host = await open(api.token(name))
    for (let id = 1000; id < 1130; id += 1) api.comments.push({ id, request: 7, text: `comment ${id}` })
    for (const text of ['mark: waits', 'mark: is there', 'mark: is gone']) {
      await host.comment(7, 'mark', text, never)
      assert.deepEqual(
        api.comments.flatMap((each) => (each.text.includes('mark') ? [each.text] : [])),
        [text],
      )
    }
  })

/** A host that gives the same answer to every request. */
const saying = async (t: TestContext, body: () => string) => {
  const server = createServer((_, response) => response.end(body())).listen(0, '127.0.0.1')
  await new Promise((done) => server.once('listening', done))
  t.after(() => server.close())
  const { port } = server.address() as { port: number }
  return open({ type: 'GITHUB', token: 'x', git_api_url: `http://127.0.0.1:${port}` })
}

test('numbers that no request has are left out, and an answer without an end is not read', async (t) => {
  let body = ''
  const request = (number: unknown) => ({ number, head: { ref: 'a' }, base: { ref: 'main' } })
  const host = await saying(t, () => body)
  body = JSON.stringify([2 ** 40, -1, 1.5, '3', null, 4].map(request))
  const { requests, isComplete } = await host.pullRequests(never)
  assert.deepEqual([requests.map(({ number }) => number), isComplete], [[4], true])
  body = JSON.stringify([{ ...request(1), body: 'x'.repeat(8 << 20) }])
  await assert.rejects(host.pullRequests(never), /not that of a git host/)
})

test('what a host sends of requests and webhooks is counted before it is parsed', async (t) => {
  const host = await saying(t, () => `[${'{},'.repeat(1_300_000)}{}]`)
  const longest = longestParsed(t)
  await assert.rejects(host.pullRequests(never), /not that of a git host/)
  await assert.rejects(host.hook('https://slipway.example/hook', 'secret', never), /not that of a git host/)
  assert.equal(longest(), 0)
})
