/**
 * The original's own console as a client: what its browser sends, letter by letter. A preflight before each request of
 * another origin, a JWT as Bearer token, axios' Accept; websockets with the token among the subprotocols. Whatever the
 * browser would keep from the page is an assertion here, and so is an answer that its npm package does not describe.
 */
import assert from 'node:assert/strict'
import { WebSocket } from 'ws'
import type { Answer, Json, TestApi } from './api.ts'
import { judgeAnswer } from './client-types.ts'
import type { Heard } from './streams.ts'

export const consoleOrigin = 'https://console.example.org'

const browser = {
  origin: consoleOrigin,
  referer: `${consoleOrigin}/`,
  'user-agent': 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/139.0.0.0 Safari/537.36',
}

export interface StockConsole {
  /** The client's method that sends the request, by its operation; the answer is judged by that method's types. */
  send(operationId: string, method: string, path: string, body?: unknown): Promise<Json>
  /** The same for an answer that is an error. */
  refused(method: string, path: string, body?: unknown): Promise<Answer>
  socket(path: string, query: Record<string, string>): Promise<Heard>
}

const assertReadable = (headers: Headers, what: string): void =>
  assert.equal(headers.get('access-control-allow-origin'), consoleOrigin, `${what} can be read`)

export const createStockConsole = (api: TestApi, token: string): StockConsole => {
  const headersOf = (body: unknown): Record<string, string> => ({
    ...browser,
    accept: 'application/json, text/plain, */*',
    authorization: `Bearer ${token}`,
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  })
  const ask = async (method: string, path: string, body?: unknown): Promise<Answer> => {
    const headers = headersOf(body)
    const names = body === undefined ? 'authorization' : 'authorization,content-type'
    const asked = await fetch(api.url + path, {
      method: 'OPTIONS',
      headers: { ...browser, 'access-control-request-method': method, 'access-control-request-headers': names },
    })
    assert.ok(asked.ok, `the preflight of ${method} ${path}`)
    assertReadable(asked.headers, `the preflight of ${method} ${path}`)
    assert.ok(asked.headers.get('access-control-allow-methods')!.split(', ').includes(method), method)
    const allowed = asked.headers.get('access-control-allow-headers')!.split(/ *, */)
    for (const name of names.split(',')) assert.ok(allowed.includes(name), name)
    const answer = await api.as(null)(method, path, body, headers)
    assertReadable(answer.headers, `${method} ${path}`)
    return answer
  }
  return {
    async send(operationId, method, path, body) {
      const answer = await ask(method, path, body)
      assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
      assert.deepEqual(judgeAnswer(operationId, answer.body), [], `${operationId} for the client`)
      return answer.body
    },
    refused: ask,
    async socket(path, query) {
      const url = `${api.url.replace('http', 'ws')}${path}?${new URLSearchParams(query)}`
      const socket = new WebSocket(url, ['v1', `auth.bearer.${token}`], { origin: consoleOrigin, headers: browser })
      const heard: Heard = { all: [], ids: [], code: 0, close: () => socket.close() }
      socket.on('message', (data) => heard.all.push(JSON.parse(String(data))))
      socket.on('close', (code) => {
        heard.code = code
      })
      await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
      assert.equal(socket.protocol, 'v1')
      return heard
    },
  }
}

/** What the advanced settings' form sends when it is saved: each value as its field shows it, parsed if it is JSON. */
export const savedSettings = (values: Json, defaults: Json, changed: Record<string, string>): Json => {
  const shown = (value: unknown): string =>
    (typeof value === 'object' ? JSON.stringify(value) : String(value ?? '')) || ''
  const fields = Object.entries(values).map(([key, value]) => [key, changed[key] ?? shown(value)] as const)
  const sent = fields.map(([key, text]) => {
    try {
      return [key, JSON.parse(text)]
    } catch {
      return [key, text === '' ? defaults[key] : text]
    }
  })
  return Object.fromEntries(sent)
}

/** The chip of the deployment log under which the console shows a line. */
export const chipOf = (step: string): 'BUILD' | 'DEPLOY' | 'EXECUTING' | 'ALL' => {
  if (['Build', 'Built', 'BuiltError'].includes(step)) return 'BUILD'
  if (step === 'Executing') return 'EXECUTING'
  const ofDeploy =
    /^(Deploy|Deployed|DeployedError|Cancel|Cancelled|Pause|Paused|PausedError|Delete|Deleted|DeletedError|LoadConfiguration|Terminated|Recap|Restart|Restarted|RestartedError)$/
  return ofDeploy.test(step) ? 'DEPLOY' : 'ALL'
}
