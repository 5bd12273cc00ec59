import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { standIn } from '../../test/support/stand-in.ts'
import { systemClock } from '../lib/time/clock.ts'
import type { App } from '../wiring/app.ts'
import { prepareSample } from './sample-start.ts'

/** An API whose only application has failed with this error. */
const startFailedApi = async (error: { code: string; message: string } | undefined): Promise<string> => {
  const server = createServer((request, response) => {
    const [path = ''] = (request.url ?? '').split('?')
    const found = path.endsWith('/status')
      ? { state: 'ERROR', deployment_request_id: 'd', ...(error === undefined ? {} : { error }) }
      : { id: 'x', name: 'x', environment: { id: 'e', name: 'demo' }, results: [] }
    response.setHeader('content-type', 'application/json').end(JSON.stringify(found))
  })
  after(() => server.close())
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const printed = async (error?: { code: string; message: string }): Promise<string[]> => {
  const lines: string[] = []
  const app = standIn<App>({
    url: await startFailedApi(error),
    organizationId: 'o',
    sampleUrl: 'http://127.0.0.1:1/samples/hello.git',
    adminToken: { text: 'token' },
    parts: { settings: { sample: true }, database: { query: async () => [] }, clock: systemClock },
  })
  assert.equal(await prepareSample(app, (line) => lines.push(line)), null)
  return lines
}

test('a failed sample is reported with the reason of its deployment and where its log is', async () => {
  const log = 'The whole log is at GET /environment/e/logs'
  const message = 'The build failed: there is no user nobody.'
  assert.deepEqual((await printed({ code: 'build_failed', message })).slice(1), [
    `The sample could not be deployed: ${message} ${log}`,
  ])
  assert.deepEqual((await printed()).slice(1), [`The sample could not be deployed: its deployment failed. ${log}`])
})
