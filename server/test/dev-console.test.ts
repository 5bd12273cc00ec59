/**
 * The console of `npm run dev` in front of an API: sessions, streams and addresses work as with the built console,
 * and only sources are sent.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import WebSocket from 'ws'
import { startDevConsole } from '../../console/dev.ts'
import { startApi } from './support/api.ts'
import { freePort } from './support/slipway/slipway.ts'

const api = await startApi({ idle: true })
let readiness: Promise<boolean> = Promise.resolve(true)
const dev = await startDevConsole({ api: api.url, port: await freePort(), isReady: () => readiness })
after(() => dev.close())

const ask = (path: string, headers: Record<string, string> = {}, init: RequestInit = {}) =>
  fetch(dev.url + path, { redirect: 'manual', signal: AbortSignal.timeout(30_000), ...init, headers })

const browser = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' }
const organization = `/organization/${api.organizationId}`

const signIn = async (origin: string): Promise<Response> =>
  ask(
    '/console/session',
    { origin, 'content-type': 'application/json' },
    {
      method: 'POST',
      body: JSON.stringify({ token: api.token }),
    },
  )

const halves = await signIn(dev.url).then(async (answer) => ({
  status: answer.status,
  cookie: answer.headers.get('set-cookie')!.split(';')[0]!,
  key: ((await answer.json()) as { key: string }).key,
}))

/** True if the stream of changes opens for a page of this origin. */
const opens = (origin: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = new WebSocket(
      `${dev.url.replace('http', 'ws')}${organization}/changes`,
      ['v1', `console.${halves.key}`],
      {
        headers: { cookie: halves.cookie, origin },
      },
    )
    socket.on('error', () => resolve(false))
    socket.on('open', () => {
      socket.close()
      resolve(true)
    })
  })

test('its page signs in, reads and follows like the server’s own page; a page of another origin cannot', async () => {
  assert.equal(halves.status, 201)
  const session = { cookie: halves.cookie, 'slipway-console-key': halves.key }
  assert.equal((await ask('/organization', { ...session, origin: dev.url })).status, 200)
  assert.equal(await opens(dev.url), true)
  const other = 'http://web-demo.localhost:8000'
  assert.equal((await signIn(other)).status, 403)
  const read = await ask('/organization', { ...session, origin: other })
  assert.deepEqual([read.status, read.headers.get('access-control-allow-origin')], [401, null])
  assert.equal(await opens(other), false)
})

test('browsers get the page at every address of the console, programs and other pages the API', async () => {
  for (const path of ['/', '/sign-in', '/e/1/services', '/o/1?q=organization']) {
    const page = await ask(path, browser)
    const text = await page.text()
    assert.equal(page.status, 200, path)
    const nonce = /script-src 'self' 'nonce-([^']+)'; style-src 'self' 'nonce-\1'/.exec(
      page.headers.get('content-security-policy') ?? '',
    )?.[1]
    assert.ok(nonce !== undefined && text.includes('/src/main.tsx'), path)
    for (const [script] of text.matchAll(/<script(?![^>]*\bsrc=)[^>]*>/g)) assert.ok(script.includes(nonce), script)
  }
  assert.match(await (await ask('/docs/', browser)).text(), /Slipway API/)
  assert.equal((await ask('/organization')).status, 401)
  assert.deepEqual(await (await ask('/openapi.json')).json(), await (await fetch(`${api.url}/openapi.json`)).json())
})

test('modules are sent, but no other file of this checkout', async (t) => {
  const root = fileURLToPath(new URL('../..', import.meta.url))
  const folder = mkdtempSync(join(root, '.slipway-dev-'))
  t.after(() => rmSync(folder, { recursive: true }))
  writeFileSync(join(folder, 'admin-token'), 'the secret of a data directory')
  for (const path of ['/src/api/client.ts', `/@fs${root}server/src/kinds.ts`]) {
    const module = await ask(path)
    assert.match(String(module.headers.get('content-type')), /javascript/, path)
    assert.match(await module.text(), /export/)
  }
  for (const query of ['', '?raw', '?url', '?import&raw']) {
    const file = await ask(`/@fs${folder}/admin-token${query}`)
    assert.doesNotMatch(await file.text(), /secret of/, query)
  }
})

test('requests wait for a server that is starting, and fail with a reason when none will start', async () => {
  const starting = Promise.withResolvers<boolean>()
  readiness = starting.promise
  const waiting = ask('/organization')
  assert.equal((await ask('/', browser)).status, 200)
  starting.resolve(true)
  assert.equal((await waiting).status, 401)
  readiness = Promise.resolve(false)
  const refused = await ask('/organization')
  assert.deepEqual([refused.status, ((await refused.json()) as { code: string }).code], [503, 'not_running'])
  readiness = Promise.resolve(true)
})
