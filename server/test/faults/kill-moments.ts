/**
 * Kills a Slipway at a named step of a deployment, which is recognized from outside: by the steps in its log, by the
 * state of the engine and the database, and by the deliveries to a webhook receiver.
 */
import { createLog } from '../../src/lib/log.ts'
import { connect } from '../../src/store/database.ts'
import { startPostgres } from '../../src/store/postgres/postgres.ts'
import { outboxChannel } from '../../src/webhooks/outbox.ts'
import type { Delivery, Receiver } from '../support/peers/receiver.ts'
import type { Slipway } from '../support/slipway/slipway.ts'
import { until } from '../support/until.ts'
import { followContainers } from './container-events.ts'
import { isFinalEvent } from './told.ts'

export const moments = [
  'queued',
  'cloning',
  'building',
  'creating',
  'starting',
  'health',
  'switching',
  'draining',
  'removing old',
  'webhook written',
  'webhook sent',
] as const

export type Moment = (typeof moments)[number]

export interface Aim {
  slipway: Slipway
  receiver: Receiver
  serviceId: string
}

type Strike = () => void
/** Calls `strike` at the moment; answers what ends the watch. */
type Watch = (aim: Aim, strike: Strike) => Promise<() => unknown>

const atStep =
  (step: string): Watch =>
  async ({ slipway, serviceId }, strike) => {
    let rest = ''
    return slipway.onOutput((text) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop()!
      if (lines.some((line) => line.includes(`"step":"${step}"`) && line.includes(serviceId))) strike()
    })
  }

const atContainer =
  (action: string): Watch =>
  async ({ serviceId }, strike) => {
    const following = await followContainers(serviceId, (event) => {
      if (event.action === action) strike()
    })
    return following.close
  }

const finalEvents = `select count(*)::int as count from outbox where event_type <> 'DEPLOYMENT_STARTED'`

const atOutbox: Watch = async ({ slipway: { dataDir } }, strike) => {
  const log = createLog('silent')
  const database = connect((await startPostgres({ dataDir, log })).connectionString, log)
  const count = async () => (await database.query<{ count: number }>(finalEvents))[0]!.count
  const before = await count()
  await database.listen(outboxChannel, async () => {
    if ((await count().catch(() => before)) > before) strike()
  })
  return database.close
}

const deploymentOf = ({ payload }: Delivery): string => payload.deployment_id

/** A repeated delivery does not count as a new moment. */
const atDelivery: Watch = async ({ receiver }, strike) => {
  const known = new Set(receiver.deliveries.filter(isFinalEvent).map(deploymentOf))
  receiver.onDelivery = (delivery) => {
    if (isFinalEvent(delivery) && !known.has(deploymentOf(delivery))) strike()
  }
  return () => {
    receiver.onDelivery = () => {}
  }
}

const watches: Record<Exclude<Moment, 'queued'>, Watch> = {
  cloning: atStep('source'),
  building: atStep('image'),
  creating: atContainer('create'),
  starting: atContainer('start'),
  health: atStep('ready'),
  switching: atStep('switch'),
  draining: atStep('drain'),
  'removing old': atContainer('kill'),
  'webhook written': atOutbox,
  'webhook sent': atDelivery,
}

/** From now on the moment kills; `struck` resolves when it has. */
export const arm = async (name: Moment, aim: Aim): Promise<{ struck(): Promise<void> }> => {
  let death: Promise<void> | undefined
  const strike = (): void => {
    death ??= aim.slipway.kill('SIGKILL')
  }
  const leave = name === 'queued' ? () => {} : await watches[name](aim, strike)
  return {
    async struck() {
      if (name === 'queued') strike()
      else await until(() => death !== undefined, { timeoutMs: 60_000, what: `the kill at ${name}` })
      await death
      await leave()
    },
  }
}
