/** How many streams may be open at once: for one token, and for an organization with any number of tokens. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { json } from 'node:stream/consumers'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { until } from '../../test/support/until.ts'
import { usualLimits } from '../limits/limits.ts'

const limits = { ...usualLimits, streamsPerToken: 20, streams: 50 }
const api = await startApi({ settings: { limits } })
const { environmentId } = await newPlace(api)
const { id: applicationId } = await newApplication(api, environmentId)
const url = `${api.url}/application/${applicationId}/log/stream`

interface Try {
  status: number
  code: string | null
  message: string | null
  retryAfter: string | null
  close(): void
}

/** One event stream, left open, on a connection of its own. */
const open = async (token: string, address = url): Promise<Try> => {
  const request = get(address, { agent: false, headers: { authorization: `Token ${token}` } })
  const [answer] = (await once(request, 'response')) as [IncomingMessage]
  const close = () => void request.destroy()
  const { statusCode: status = 0, headers } = answer
  request.on('error', () => {})
  if (status === 200) return { status, code: null, message: null, retryAfter: null, close }
  const { code, message } = (await json(answer)) as { code: string; message: string }
  return { status, code, message, retryAfter: headers['retry-after'] ?? null, close }
}

/** One websocket, left open, or the status of the handshake. */
const connect = (token: string): Promise<Try> =>
  new Promise((resolve, reject) => {
    const address = `${api.url.replace('http', 'ws')}/service/logs?service=${applicationId}`
    const socket = new WebSocket(address, ['v1', `auth.bearer.${token}`])
    socket.once('open', () =>
      resolve({ status: 101, code: null, message: null, retryAfter: null, close: () => socket.close() }),
    )
    socket.once('unexpected-response', (_request, answer) => {
      answer.resume()
      resolve({
        status: answer.statusCode!,
        code: null,
        message: null,
        retryAfter: answer.headers['retry-after'] ?? null,
        close: () => {},
      })
    })
    socket.once('error', reject)
  })

const opened = (tries: readonly Try[]): Try[] => tries.filter(({ status }) => status === 200 || status === 101)
const closeAll = (tries: readonly Try[]): void => {
  for (const one of tries) one.close()
}
const fds = (): number => readdirSync('/proc/self/fd').length

/** Waits until a token can have as many as it may, and leaves none open. */
const allClosed = async (): Promise<void> => {
  const token = await api.newToken(['Read'])
  const fill = async (): Promise<number> => {
    const tries = await Promise.all(Array.from({ length: limits.streamsPerToken }, () => open(token)))
    closeAll(tries)
    return opened(tries).length
  }
  await until(async () => (await fill()) === limits.streamsPerToken, { what: 'free places', timeoutMs: 5000 })
}

test('of 600 streams of one token as many open as it may have, and closing them makes room at once', async () => {
  const token = await api.newToken(['Read'])
  const before = fds()
  const tries = await Promise.all(Array.from({ length: 600 }, () => open(token)))
  assert.equal(opened(tries).length, limits.streamsPerToken)
  for (const one of tries.filter(({ status }) => status !== 200))
    assert.deepEqual([one.status, one.code, one.retryAfter], [429, 'limit_reached', '10'])
  // Both ends of a connection are in this process.
  await until(() => fds() - before <= 2 * limits.streamsPerToken + 20, { what: 'the rest to go', timeoutMs: 15_000 })
  assert.match((await open(token)).message ?? '', /^The limit is 20 open streams .*SLIPWAY_LIMIT_STREAMS_PER_TOKEN\.$/)
  opened(tries)[0]!.close()
  const again = async (): Promise<boolean> => {
    tries.push(await open(token))
    return tries.at(-1)!.status === 200
  }
  await until(again, { what: 'a place', timeoutMs: 2000 })
  closeAll(tries)
  await allClosed()
})

test('websockets count too, and one too many is refused at its handshake', async () => {
  const token = await api.newToken(['Read'])
  const tries = await Promise.all(Array.from({ length: 40 }, (_, at) => (at % 2 === 0 ? connect(token) : open(token))))
  assert.equal(opened(tries).length, limits.streamsPerToken)
  const refused = await connect(token)
  assert.deepEqual([refused.status, refused.retryAfter], [429, '10'])
  closeAll(tries)
  await allClosed()
})

/** Another organization with an environment. */
const newTenant = async () => {
  const { id } = (await api.call('POST', '/organization', { name: 'tenant', plan: 'FREE' })).body
  const token = await api.newToken(['Admin'], id)
  const project = await api.as(token)('POST', `/organization/${id}/project`, { name: 'theirs' })
  const environment = await api.as(token)('POST', `/project/${project.body.id}/environment`, { name: 'theirs' })
  return { token, environmentId: environment.body.id as string }
}

test('tokens that a token makes have no more together than the organization may, and another has its own', async () => {
  const theirs = await newTenant()
  const tokens = await Promise.all(Array.from({ length: 5 }, () => api.newToken(['Read'])))
  let tries: Try[] = []
  const fill = async (): Promise<boolean> => {
    tries = await Promise.all(tokens.flatMap((token) => Array.from({ length: 15 }, () => open(token))))
    assert.ok(opened(tries).length <= limits.streams)
    if (opened(tries).length < limits.streams) closeAll(tries)
    return opened(tries).length === limits.streams
  }
  // Those that the test before has closed may be on their way out.
  await until(fill, { what: 'as many as the organization may have', timeoutMs: 5000 })
  const refused = await open(await api.newToken(['Admin']))
  assert.equal(refused.status, 429)
  const one = await open(theirs.token, `${api.url}/environment/${theirs.environmentId}/statuses/stream`)
  assert.equal(one.status, 200)
  one.close()
  closeAll(tries)
  await allClosed()
})

test('a request for a stream that is refused for another reason takes no place', async () => {
  const token = await api.newToken(['Read'])
  for (let each = 0; each < 3 * limits.streamsPerToken; each += 1) {
    assert.equal((await open(token, `${url}?tail=no`)).status, 400)
  }
  const one = await open(token)
  assert.equal(one.status, 200)
  one.close()
})
