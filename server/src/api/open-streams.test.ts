import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { within } from '../../test/support/until.ts'

const api = await startApi()
const { call, organizationId } = api
const { environmentId } = await newPlace(api)
const { id: applicationId } = await newApplication(api, environmentId)

const newToken = async (name: string) =>
  (await call('POST', `/organization/${organizationId}/apiToken`, { name, scopes: ['Read'] })).body

/** Reads a stream of events until it ends, one way or the other. */
const follow = async (token: string) => {
  const answer = await fetch(`${api.url}/application/${applicationId}/log/stream`, {
    headers: { authorization: `Token ${token}` },
  })
  assert.equal(answer.status, 200)
  const state = { ended: false }
  const drain = async () => {
    for await (const _ of answer.body!);
  }
  drain()
    .catch(() => {})
    .finally(() => {
      state.ended = true
    })
  return state
}

const connect = async (token: string) => {
  const path = `${api.url.replace('http', 'ws')}/service/logs?service=${applicationId}`
  const socket = new WebSocket(path, ['v1', `auth.bearer.${token}`])
  const state = { code: 0 }
  socket.on('close', (code) => {
    state.code = code
  })
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
  return state
}

test('open streams of a revoked token end within a second, those of others continue', async () => {
  const [revoked, other] = [await newToken('revoked'), await newToken('other')]
  const [events, socket, further] = [
    await follow(revoked.token),
    await connect(revoked.token),
    await follow(other.token),
  ]
  assert.equal((await call('DELETE', `/organization/${organizationId}/apiToken/${revoked.id}`)).status, 204)
  await within(1000, () => events.ended && socket.code === 1008, 'the streams to end')
  assert.equal(further.ended, false)
  await call('DELETE', `/organization/${organizationId}/apiToken/${other.id}`)
  await within(1000, () => further.ended, 'the other stream to end')
})
