/** Requests whose bodies do not arrive: each has its time, and gets one answer. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { type TestContext, test } from 'node:test'
import { newApplication, newPlace, startApi } from '../../test/support/api.ts'

const api = await startApi({ git: true, settings: { requestMs: 300 } })

/** Sends a head and the beginning of a body. */
const begin = (t: TestContext, path: string, type: string, more = `authorization: Token ${api.token}\r\n`) => {
  const socket = connect(Number(new URL(api.url).port), '127.0.0.1')
  t.after(() => socket.destroy())
  const seen = { text: '', isOver: false, closed: once(socket, 'close') }
  socket.setEncoding('latin1').on('data', (text: string) => {
    seen.text += text
  })
  socket
    .on('error', () => {})
    .once('close', () => {
      seen.isOver = true
    })
  socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${type}\r\ncontent-length: 100\r\n${more}\r\n{"a"`)
  return seen
}

test('a body that stops is a 408, one that was refused already gets no second answer, an archive has more time', async (t) => {
  const { environmentId } = await newPlace(api)
  const git_repository = { url: 'slipway:internal', branch: 'main' }
  const { id } = await newApplication(api, environmentId, { git_repository, ports: [] })
  const archive = begin(t, `/application/${id}/source`, 'application/gzip')
  const push = begin(t, `/git/${id}.git/git-receive-pack`, 'application/x-git-receive-pack-request')
  const plain = begin(t, `/organization/${api.organizationId}/project`, 'application/json')
  const refused = begin(t, `/organization/${api.organizationId}/project`, 'application/json', '')
  await Promise.all([plain.closed, refused.closed])
  const [head = '', body = ''] = plain.text.split('\r\n\r\n')
  assert.match(head, /^HTTP\/1\.1 408 Request Timeout\r\n/)
  const { status, error, code } = JSON.parse(body)
  assert.deepEqual([status, error, code], [408, 'Request Timeout', 'invalid_http'])
  assert.deepEqual(refused.text.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 401'])
  assert.deepEqual([archive.isOver, archive.text, push.isOver], [false, '', false])
})
