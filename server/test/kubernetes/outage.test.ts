/**
 * The API server of a real cluster is suspended for a minute in the middle of a deployment: nothing is stuck, no code
 * retries in a tight loop, and deployments resume when it is back.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Json } from '../support/api.ts'
import { until } from '../support/until.ts'
import { atRest, pageOf, servingContainer, needsOwnNode as skip, startPlace } from './cluster/place.ts'
import { processesOf } from './cluster/processes.ts'
import { outbound, ownNode } from './cluster/scene.ts'

const standstillMs = 60_000
const patience = { timeoutMs: 60_000 }

test('a deployment resumes after the API server was suspended for a minute, and the next one works too', {
  skip,
}, async (context) => {
  let connections = 0
  const place = await startPlace(async (...where) => {
    connections += 1
    return outbound.checkMachine(...where)
  })
  const { admin, must, newEnvironment } = place
  const id = await newEnvironment('outage')
  const body = { min_running_instances: 2, max_running_instances: 2 }
  const { id: service } = await must('POST', `/environment/${id}/container`, servingContainer(place, 'web', body))
  const { id: variable } = await must('POST', `/container/${service}/environmentVariable`, { key: 'PAGE', value: 'v1' })
  const path = `/container/${service}`
  const begin = async (page: string): Promise<void> => {
    await must('PUT', `${path}/environmentVariable/${variable}`, { key: 'PAGE', value: page })
    await must('POST', `${path}/deploy`, { image_tag: '1' })
  }
  const ends = async (page: string): Promise<void> => {
    const state = await atRest(place, path)
    if (state !== 'DEPLOYED') assert.fail(`${page}: ${JSON.stringify(await must('GET', `${path}/status`))}`)
    await until(async () => (await pageOf(place, id, service)).startsWith(`200 ${page}`), {
      ...patience,
      what: `${page} to serve`,
    })
  }
  await begin('v1')
  await ends('v1')

  const [apiServer, ...others] = processesOf('kube-apiserver', `${ownNode}/server.pem`)
  assert.ok(apiServer !== undefined && others.length === 0, 'the API server of this cluster')
  await begin('v2')
  const podsOf = async () => (await admin.get(`/api/v1/namespaces/slipway-${id}/pods`)).items.length
  await until(async () => (await podsOf()) > 2, { ...patience, what: 'the new version to begin' })
  const before = connections
  const resumesAt = performance.now() + standstillMs
  const states = new Set<string>()
  process.kill(apiServer, 'SIGSTOP')
  try {
    await until(
      async () => {
        // What this server knows itself it says at once.
        states.add((await must('GET', `${path}/status`)).state)
        return performance.now() >= resumesAt
      },
      { timeoutMs: 2 * standstillMs, what: 'the end of the standstill' },
    )
  } finally {
    process.kill(apiServer, 'SIGCONT')
  }
  const asked = connections - before
  context.diagnostic(`${asked} connections in a minute; ${[...states].join()}`)
  assert.ok(asked < 130, `${asked} connections in a minute`)
  assert.ok(![...states].some((state) => /ERROR|CANCEL/.test(state)), [...states].join())
  await ends('v2')
  await begin('v3')
  await ends('v3')
  const { items } = await admin.get(`/api/v1/namespaces/slipway-${id}/pods`)
  const pods = items.map(({ metadata, status }: Json) => `${metadata.name} ${status.phase}`)
  assert.equal(items.length, 2, pods.join())
})
