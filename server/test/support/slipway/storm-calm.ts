/** What must be true of a storm once it is over. */
import assert from 'node:assert/strict'
import type { Json } from '../api.ts'
import { patience, until } from '../until.ts'
import type { Storm, StormPlan } from './storm.ts'
import type { QueueWatch, Send } from './storm-watch.ts'

export interface Deadlines {
  /** From its turn to its final state. */
  deploymentMs: number
  cancelMs: number
}

/** All deployments of an environment, oldest first. */
const historyOf = async (send: Send, environmentId: string): Promise<Json[]> => {
  const entries: Json[] = []
  for (let page = 1; ; page += 1) {
    const path = `/environment/${environmentId}/deploymentHistoryV2?pageSize=100&page=${page}`
    const { results } = (await send('GET', path)).body
    entries.push(...results)
    if (results.length < 100) return entries.reverse()
  }
}

const numberOf = (entry: Json): number => Number(entry.identifier.execution_id.split('-').at(-1))

const assertOrder = (watch: QueueWatch, history: readonly Json[]): void => {
  assert.deepEqual(watch.disorder, [])
  const entries = new Map(history.map((entry) => [entry.identifier.deployment_request_id, entry]))
  const shown = [...watch.seen.keys()].map((id) => entries.get(id) ?? assert.fail(`${id} is not in the history`))
  const numbers = shown.map(numberOf)
  assert.deepEqual(
    numbers,
    numbers.toSorted((a, b) => a - b),
    'the queue showed requests in the order in which they came',
  )
  // One runs at a time, so they end in the order in which they began; what never began may end at any time.
  const ends = shown.filter((entry) => entry.action_status !== 'CANCELED').map((one) => one.auditing_data.updated_at)
  assert.deepEqual(ends, ends.toSorted(), 'deployments ran in the order that the queue showed')
}

const assertDeadlines = ({ watches, cancels }: Storm, deadlines: Deadlines): void => {
  const deploymentMs = deadlines.deploymentMs * patience
  const cancelMs = deadlines.cancelMs * patience
  const all = new Map(watches.flatMap(({ seen }) => [...seen]))
  for (const one of all.values())
    if (one.headAt !== null) {
      const ms = one.goneAt! - one.headAt
      assert.ok(ms <= deploymentMs, `deployment ${one.id} (${one.trigger}) took ${ms} ms`)
    }
  for (const { ids, at } of cancels)
    for (const id of ids) {
      const ms = all.get(id)!.goneAt! - at
      assert.ok(ms <= cancelMs, `the cancel of ${id} took ${ms} ms`)
    }
}

/** All that was asked for is final in the history, in the order and time that were promised. */
export const assertHistories = async (plan: StormPlan, storm: Storm, deadlines: Deadlines): Promise<Json[]> => {
  const all: Json[] = []
  for (const watch of storm.watches) {
    const history = await historyOf(plan.send, watch.environmentId)
    assertOrder(watch, history)
    all.push(...history)
  }
  for (const entry of all) assert.match(entry.action_status, /^(SUCCESS|ERROR|CANCELED)$/)
  const ids = new Set(all.map((entry) => entry.identifier.deployment_request_id))
  for (const id of storm.requests) assert.ok(ids.has(id), `deployment ${id} was accepted and is not in the history`)
  assertDeadlines(storm, deadlines)
  return all
}

/** What is there of one service, as its runtime and its router say. */
export interface Found {
  instances: number
  volumes: number
  /** Status of an answer through the router. */
  answer: number
}

export interface World {
  find(environmentId: string, serviceId: string, name: string): Promise<Found>
}

const finalStates = /^(READY|DEPLOYED|RESTARTED|STOPPED|CANCELED|[A-Z]+_ERROR)$/

const judgeKept = (kind: string, status: Json, found: Found): string | null => {
  const { state, running_state: running } = status
  if (!finalStates.test(state)) return 'is not final'
  if (kind === 'job') return found.instances === 0 ? null : 'is over and something runs'
  const shouldRun = { DEPLOYED: true, RESTARTED: true, STOPPED: false, READY: false }[state as string]
  if (shouldRun !== undefined && (running === 'RUNNING') !== shouldRun) return 'says one thing and shows another'
  const isUp = found.instances === 1 && found.answer === 200
  const isDown = found.instances === 0 && found.answer !== 200
  if (running === 'RUNNING') return isUp ? null : 'does not run'
  if (running !== 'STOPPED') return 'is neither running nor stopped'
  return isDown ? null : 'is not down'
}

/** Every service that does not do what its status says, and everything left of one that was deleted. */
export const mismatches = async (plan: StormPlan, storm: Storm, world: World): Promise<string[]> => {
  const problems: string[] = []
  for (const [environmentId, ids] of storm.made) {
    const { body } = await plan.send('GET', `/environment/${environmentId}/statuses`)
    const statuses = new Map([...body.applications, ...body.containers, ...body.jobs].map((one: Json) => [one.id, one]))
    const kept = new Map<string, { kind: string; name: string }>()
    for (const kind of new Set(Object.values(plan.services).map((one) => one.kind)))
      for (const one of (await plan.send('GET', `/environment/${environmentId}/${kind}`)).body.results)
        kept.set(one.id, { kind, name: one.name })
    for (const id of ids) {
      const { kind, name } = kept.get(id) ?? { kind: null, name: '' }
      const found = await world.find(environmentId, id, name)
      const left = found.instances + found.volumes > 0 ? 'was deleted and is still there' : null
      const problem = kind === null ? left : judgeKept(kind, statuses.get(id), found)
      const status = statuses.get(id) as Json
      if (problem !== null)
        problems.push(`${name} ${id} ${problem}: ${status?.state}, ${status?.running_state}, ${JSON.stringify(found)}`)
    }
  }
  return problems
}

/** What the clock of the reconciler brings in order may take a minute; the rest is so at once. */
export const assertTrue = async (plan: StormPlan, storm: Storm, world: World, timeoutMs: number): Promise<void> => {
  let problems: string[] = []
  const agree = async () => {
    problems = await mismatches(plan, storm, world)
    return problems.length === 0
  }
  await until(agree, { timeoutMs, what: 'statuses that are true' }).catch(() => assert.deepEqual(problems, []))
}
