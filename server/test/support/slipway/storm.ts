/**
 * A storm: deploys, redeploys, restarts, stops, cancels, deletes and new creations at random moments over the services
 * of some environments. The seed decides what is asked for; when it arrives, the machine does.
 */
import assert from 'node:assert/strict'
import type { Json } from '../api.ts'
import { until } from '../until.ts'
import { type QueueWatch, type Seen, type Send, watchQueue } from './storm-watch.ts'

export interface StormService {
  /** `application`, `job` … */
  kind: string
  body: Record<string, unknown>
}

export interface StormPlan {
  send: Send
  environments: string[]
  /** What every environment has, by name. */
  services: Record<string, StormService>
  /** How many requests must be accepted. */
  operations: number
  /** Requests are this far apart at most. */
  maxPauseMs: number
  seed: number
}

/** What was asked to end, and when that was accepted. */
interface Cancel {
  ids: string[]
  at: number
}

export interface Storm {
  watches: QueueWatch[]
  cancels: Cancel[]
  /** Accepted requests by what they asked for. */
  counts: Record<string, number>
  /** Ids of deployments that were answered. */
  requests: Set<string>
  /** Ids of services that were made, by environment. */
  made: Map<string, string[]>
}

/** Seed for a new storm, or the one to repeat. */
export const stormSeed = (): number => Number(process.env.STORM_SEED ?? Math.floor(Math.random() * 2 ** 31))

/** Numbers from 0 to 1 that a seed decides (mulberry32). */
export const randomNumbers = (seed: number): (() => number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

interface Turn {
  plan: StormPlan
  storm: Storm
  random: () => number
  watch: QueueWatch
}

interface Target {
  name: string
  service: StormService
  /** Null: it has to be created first. */
  id: string | null
}

type Reply = Awaited<ReturnType<Send>>

const pick = <T>(items: readonly T[], random: () => number): T => items[Math.floor(random() * items.length)]!

const create = async ({ plan, storm, watch }: Turn, { name, service }: Target): Promise<Reply> => {
  const path = `/environment/${watch.environmentId}/${service.kind}`
  const answer = await plan.send('POST', path, { name, ...service.body })
  if (answer.status === 201)
    storm.made.set(watch.environmentId, [...(storm.made.get(watch.environmentId) ?? []), answer.body.id])
  return answer
}

/** What was deleted comes again under its name. */
const createAndDeploy = async (turn: Turn, target: Target): Promise<Reply> => {
  const { status, body } = await create(turn, target)
  return status === 201 ? turn.plan.send('POST', `/${target.service.kind}/${body.id}/deploy`) : { status, body }
}

const createAll = async (turn: Turn): Promise<void> => {
  for (const [name, service] of Object.entries(turn.plan.services)) {
    const { status, body } = await create(turn, { name, service, id: null })
    assert.equal(status, 201, JSON.stringify(body))
  }
}

const onService =
  (method: string, verb: string) =>
  ({ plan }: Turn, { service, id }: Target): Promise<Reply> =>
    plan.send(method, `/${service.kind}/${id}${verb}`)

const onEnvironment =
  (verb: string) =>
  ({ plan, watch }: Turn): Promise<Reply> =>
    plan.send('POST', `/environment/${watch.environmentId}/${verb}`)

/** Some of those that stay up, named by their ids. */
const selected =
  (verb: 'restart-service' | 'stop') =>
  async ({ plan, watch, random }: Turn): Promise<Reply> => {
    const ids: Record<string, string[]> = { application: [], container: [] }
    for (const kind of Object.keys(ids)) {
      const { body } = await plan.send('GET', `/environment/${watch.environmentId}/${kind}`)
      ids[kind] = body.results.map((one: Json) => one.id).filter(() => random() < 0.6)
    }
    const { application, container } = ids
    if (application!.length + container!.length === 0) return { status: 404, body: null }
    const chosen = { application_ids: application, container_ids: container }
    return plan.send('POST', `/environment/${watch.environmentId}/service/${verb}`, chosen)
  }

/** A delete that has begun goes to its end: what is half gone is of no use. */
const canEnd = ({ trigger }: Seen): boolean => trigger !== 'DELETE' && trigger !== 'UNINSTALL'

const remember = ({ storm }: Turn, answer: Reply, waiting: readonly Seen[]): Reply => {
  const ids = waiting.filter(canEnd).map(({ id }) => id)
  if (answer.status === 202) storm.cancels.push({ ids, at: performance.now() })
  return answer
}

const cancelAll = async (turn: Turn): Promise<Reply> => {
  const waiting = await turn.watch.look()
  return remember(turn, await onEnvironment('cancelDeployment')(turn), waiting)
}

const cancelOne = async (turn: Turn): Promise<Reply> => {
  const waiting = await turn.watch.look()
  if (waiting.length === 0) return { status: 404, body: null }
  const one = pick(waiting, turn.random)
  return remember(turn, await turn.plan.send('POST', `/deploymentQueue/${one.id}/cancelDeployment`), [one])
}

const actions: [string, number, (turn: Turn, target: Target) => Promise<Reply>][] = [
  ['deploy', 26, onService('POST', '/deploy')],
  ['redeploy', 6, onService('POST', '/redeploy')],
  ['restart', 9, onService('POST', '/restart-service')],
  ['stop', 9, onService('POST', '/stop')],
  ['uninstall', 3, onService('POST', '/uninstall')],
  ['delete', 12, onService('DELETE', '')],
  ['deploy all', 6, onEnvironment('deploy')],
  ['redeploy all', 2, onEnvironment('redeploy')],
  ['stop all', 2, onEnvironment('stop')],
  ['restart some', 3, selected('restart-service')],
  ['stop some', 2, selected('stop')],
  ['cancel all', 8, cancelAll],
  ['cancel one', 12, cancelOne],
]

const wheel = actions.flatMap((action) => Array.from({ length: action[1] }, () => action))

const chooseTarget = async ({ plan, random, watch }: Turn): Promise<Target> => {
  const name = pick(Object.keys(plan.services), random)
  const service = plan.services[name]!
  const { body } = await plan.send('GET', `/environment/${watch.environmentId}/${service.kind}`)
  const found = body.results.find((one: Json) => one.name === name)
  return { name, service, id: found?.id ?? null }
}

/** A job has nothing to restart, and what a list named may be gone a moment later. */
const maybeBad = new Set(['restart', 'restart some', 'stop some'])

/** One request, which may be refused: for what is gone or going. */
const act = async (turn: Turn): Promise<boolean> => {
  const target = await chooseTarget(turn)
  const [word, , run] = target.id === null ? (['create', 0, createAndDeploy] as const) : pick(wheel, turn.random)
  const { status, body } = await run(turn, target)
  const refusals = maybeBad.has(word) ? [400, 404, 409] : [404, 409]
  assert.ok(status < 300 || refusals.includes(status), `${word}: ${status} ${JSON.stringify(body)}`)
  if (status >= 300) return false
  turn.storm.counts[word] = (turn.storm.counts[word] ?? 0) + 1
  const id = body?.deployment_request_id
  if (typeof id === 'string' && !word.startsWith('cancel')) turn.storm.requests.add(id)
  return true
}

const isCalm = async ({ watches }: Storm): Promise<boolean> => {
  for (const watch of watches) if ((await watch.look()).length > 0) return false
  return true
}

/** Lets it rage, and waits until nothing is under way any more. */
export const rage = async (plan: StormPlan, calmTimeoutMs: number): Promise<Storm> => {
  const random = randomNumbers(plan.seed)
  const watches = plan.environments.map((id) => watchQueue(plan.send, id))
  const storm: Storm = { watches, cancels: [], counts: {}, requests: new Set(), made: new Map() }
  try {
    for (const watch of watches) await createAll({ plan, storm, random, watch })
    for (let accepted = 0; accepted < plan.operations; ) {
      if (await act({ plan, storm, random, watch: pick(watches, random) })) accepted += 1
      const moment = performance.now() + random() * plan.maxPauseMs
      await until(() => performance.now() >= moment, { what: 'the next moment' })
    }
    await until(() => isCalm(storm), { timeoutMs: calmTimeoutMs, what: 'the calm after the storm' })
  } finally {
    for (const watch of watches) await watch.stop()
  }
  return storm
}
