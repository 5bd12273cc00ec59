// Runs alone: it measures, or takes what the machine has.
/**
 * kill -9 of the control plane at random moments of deployments on a real engine. `SLIPWAY_TEST_KILLS` says how many.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { containersOf } from './support/docker/docker.ts'
import { howMany } from './support/nightly.ts'
import { type Receiver, startReceiver } from './support/peers/receiver.ts'
import type { Json } from './support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  hostOf,
  isSettled,
  settle,
  stateOf,
  visit,
} from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const kills = howMany(10, 200, 'SLIPWAY_TEST_KILLS')
const receiver = await startReceiver()
after(() => receiver.close())
const { slipway, git } = await withSlipway({ env: { SLIPWAY_WEBHOOK_SCHEDULE: '0,1,1,1,1' } })

/** A repeatable sequence of moments of a deployment: the seed is printed, so that a failure can be run again. */
const moments = (seed: number, longestMs: number) => {
  let state = seed
  return (): number => {
    state = (state * 1664525 + 1013904223) % 2 ** 32
    return (state / 2 ** 32) * longestMs
  }
}

test(`after each of ${kills} kill -9 the deployment reaches a final state, and exactly the desired container runs`, async (context) => {
  const seed = Number(process.env.SLIPWAY_TEST_SEED ?? Date.now() % 1_000_000)
  context.diagnostic(`seed ${seed}`)
  await git.createRepository('kills')
  await git.commit('kills', page('v0'), 'v0')
  const place = await createPlace(slipway)
  const webhook = await slipway.api('POST', `/organization/${place.organizationId}/webhook`, {
    target_url: receiver.url,
    events: ['DEPLOYMENT_STARTED', 'DEPLOYMENT_SUCCEEDED', 'DEPLOYMENT_FAILED', 'DEPLOYMENT_CANCELLED'],
    enabled: true,
  })
  assert.equal(webhook.status, 201, JSON.stringify(webhook.body))
  receiver.secret = webhook.body.signing_secret
  const application = await createApplication(slipway, place, 'web', git.url('kills'))
  const asked = new Set<string>()
  await deploy(slipway, application.id)
  await settle(slipway, application.id)
  await git.commit('kills', { 'index.html': 'calm\n' }, 'calm')
  const began = performance.now()
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYED')
  // Within the time that an undisturbed one takes: a kill after the end would show nothing.
  const moment = moments(seed, performance.now() - began)
  let hits = 0

  for (let round = 1; round <= kills; round += 1) {
    await git.commit('kills', { 'index.html': `v${round}\n` }, `v${round}`)
    asked.add((await deploy(slipway, application.id)).deployment_request_id)
    const at = performance.now() + moment()
    await until(() => performance.now() >= at, { what: 'the moment of the kill', timeoutMs: 60_000 })
    if (!isSettled(await stateOf(slipway, application.id))) hits += 1
    await slipway.kill('SIGKILL')
    await slipway.start()
    assert.equal(await settle(slipway, application.id, 60_000), 'DEPLOYED', `round ${round}`)
    assert.deepEqual(await visit(slipway, hostOf(place, 'web')), { status: 200, text: `v${round}` })
    // After a kill between the switch and the retirement of the old version, reconcile removes that one.
    await until(async () => (await containersOf(application.id)).length === 1, {
      timeoutMs: 60_000,
      what: 'one container',
    })
  }

  context.diagnostic(`${hits} of ${kills} kills met a deployment at work`)
  assert.ok(hits * 2 >= kills, `${hits} of ${kills} kills met a deployment at work`)
  assert.equal(asked.size, kills)
  const finals = () => receiver.deliveries.filter((each) => each.event !== 'DEPLOYMENT_STARTED')
  const ended = () => new Set(finals().map((each) => each.payload.deployment_id))
  await until(() => [...asked].every((id) => ended().has(id)), {
    timeoutMs: 60_000,
    what: 'a final event for each deployment',
  })
  assert.deepEqual(receiver.refused, [])
  for (const id of asked) checkEvents(id, receiver)
})

/** At least once, each event under one id, by which repeats are recognized. */
const checkEvents = (deploymentId: string, { deliveries }: Receiver): void => {
  const mine = deliveries.filter((each) => each.payload.deployment_id === deploymentId)
  const ids = (test: (event: string) => boolean) =>
    new Set(mine.filter((each: Json) => test(each.event)).map((each) => each.id))
  assert.equal(ids((event) => event === 'DEPLOYMENT_STARTED').size, 1, 'one STARTED event')
  assert.equal(ids((event) => event !== 'DEPLOYMENT_STARTED').size, 1, 'one final event')
}
