/** Webhooks of deployments, as a receiver saw them: each delivered at least once, repeats recognized by their id. */
import assert from 'node:assert/strict'
import { type Receiver, startReceiver } from '../support/peers/receiver.ts'
import type { Place } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Scene } from './scene.ts'

const started = 'DEPLOYMENT_STARTED'

export const isFinalEvent = ({ event }: { event: string }): boolean => event !== started

/** A receiver of events for every deployment of the organization. */
export const listenTo = async ({ send }: Scene, place: Place): Promise<Receiver> => {
  const receiver = await startReceiver()
  const webhook = await send('POST', `/organization/${place.organizationId}/webhook`, {
    target_url: receiver.url,
    events: [started, 'DEPLOYMENT_SUCCESSFUL', 'DEPLOYMENT_FAILURE', 'DEPLOYMENT_CANCELLED'],
    enabled: true,
  })
  receiver.secret = webhook.signing_secret
  return receiver
}

/** Waits for the final event of each; answers how many deliveries were repeats. */
export const assertTold = async (receiver: Receiver, deploymentIds: ReadonlySet<string>): Promise<number> => {
  const { deliveries, refused } = receiver
  const finals = () => deliveries.filter(isFinalEvent).map(({ payload }) => payload.deployment_id)
  await until(() => new Set(finals()).size >= deploymentIds.size, {
    timeoutMs: 60_000,
    what: 'a final event for each deployment',
  })
  assert.deepEqual(refused, [])
  for (const id of deploymentIds) {
    const mine = deliveries.filter(({ payload }) => payload.deployment_id === id)
    const ids = (all: typeof mine) => new Set(all.map((each) => each.id)).size
    assert.equal(ids(mine.filter((each) => !isFinalEvent(each))), 1, `${id}: one event of its start`)
    assert.equal(ids(mine.filter(isFinalEvent)), 1, `${id}: one final event`)
  }
  return deliveries.length - new Set(deliveries.map(({ id }) => id)).size
}
