/**
 * Looks at instances for as long as they run, as their labels say: one that is not alive is restarted, one that is not
 * ready gets no requests until it is again, and one that the engine started again gets its command. While nobody
 * watches (the control plane is down), only the engine's own restart policy acts.
 */
import { untilAborted } from '../../../lib/concurrency/waiting.ts'
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'
import type { Log } from '../../../lib/log.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { PlacedInstance as Instance } from '../../blue-green/instances.ts'
import type { Probe } from '../../runtime.ts'
import type { ContainerRow, Containers } from '../containers.ts'
import { labelOf, labels } from '../describe.ts'
import type { ContainerEvent, Events } from '../events.ts'
import { type Hooks, parseCommand } from '../hooks.ts'
import { watchDisconnects } from '../network/disconnects.ts'
import { findingsOf, keepAliveOne } from './liveness.ts'
import { parseProbe } from './parse-probe.ts'
import { type ProbeCall, probeCallOf } from './probe.ts'
import { type Readiness, watchReadiness } from './readiness.ts'
import type { Troubles } from './troubles.ts'

export interface WatchParts {
  engine: Engine
  containers: Containers
  events: Events
  hooks: Hooks
  readiness: Readiness
  troubles: Troubles
  clock: Clock
  log: Log
}

/** What is looked at of one instance. */
interface Watched {
  controller: AbortController
  /** Without its owner's labels, which may be large. */
  row: ContainerRow
  /** It ended while it was watched. */
  hasEnded: boolean
}

/** A new start is not tried faster than this after a command that failed. */
const restartPauseMs = 10_000
const restartDeadlineMs = 60_000
/** After an error, such as an engine that did not answer. */
const retryPauseMs = 10_000
/** Its end may be told in another stream of events. */
const disconnectedMs = 500
/** Between two calls for what was started. */
const againMs = 500
/** Of one that is restarted. */
const stopGraceMs = 10_000
/** Instances of one engine that are looked at: one elsewhere may list as many as it likes. */
const mostWatched = 5000

const ours: ReadonlySet<string> = new Set(Object.values(labels))

const withOurLabels = (row: ContainerRow): ContainerRow => ({
  ...{ Id: row.Id, Names: row.Names, State: row.State, Created: row.Created },
  Labels: Object.fromEntries(Object.entries(row.Labels).filter(([name]) => ours.has(name))),
})

const probeIn = (row: ContainerRow, label: string, { endpoints }: Instance): Probe | null => {
  const text = labelOf(row.Labels, label)
  const probe = text === undefined ? null : parseProbe(text)
  // Of a container from before its labels were all ours: its image says this, and concerns no other.
  return probe === null || (probe.check.kind !== 'exec' && endpoints[probe.check.port] === undefined) ? null : probe
}

/** Until it succeeds or `ended`: what an error ended for good would leave its instance unwatched. */
const createPersist =
  ({ clock, log }: Pick<WatchParts, 'clock' | 'log'>) =>
  async (work: (isAgain: boolean) => Promise<void>, what: object, ended: AbortSignal): Promise<void> => {
    for (let isAgain = false; ; isAgain = true) {
      try {
        return await work(isAgain)
      } catch (error) {
        // A container that is gone needs nothing any more.
        if (ended.aborted || isEngineError(error, 404)) return
        log.warn({ err: error, ...what }, `watching goes on in ${retryPauseMs / 1000} s`)
        await clock.sleep(retryPauseMs, ended)
      }
    }
  }

/** One call after the other, however often it is asked for; `persist` goes on after errors. */
const createAgain = (
  clock: Pick<Clock, 'sleep'>,
  signal: AbortSignal,
  call: () => Promise<void>,
  persist: (work: () => Promise<void>) => Promise<void>,
): (() => void) => {
  let isUnderWay = false
  let isMore = false
  const callAll = async (): Promise<void> => {
    for (isMore = true; isMore; ) {
      isMore = false
      await call()
      if (isMore) await clock.sleep(againMs, signal)
    }
  }
  const again = (): void => {
    isMore = true
    if (isUnderWay) return
    isUnderWay = true
    void persist(callAll)
      .catch(() => {})
      .finally(() => {
        isUnderWay = false
        if (isMore && !signal.aborted) again()
      })
  }
  return again
}

/** See `Runtime.keepAlive`. */
export const watchInstances = async (parts: WatchParts, stopping: AbortSignal): Promise<void> => {
  const { engine, containers, events, hooks, readiness, troubles, clock, log } = parts
  const over = new AbortController()
  const signal = AbortSignal.any([stopping, over.signal])
  const watched = new Map<string, Watched>()

  const restart = async (row: ContainerRow): Promise<void> => {
    const leftMs = await hooks.ending(row, stopGraceMs, signal)
    const query = { t: Math.ceil(leftMs / 1000) }
    await engine.call('POST', `/containers/${row.Id}/restart`, { query, deadlineMs: restartDeadlineMs })
  }

  /** What the engine started again, or we did: it is as new. */
  const runCommand = async (row: ContainerRow, ended: AbortSignal): Promise<void> => {
    const command = parseCommand(labelOf(row.Labels, labels.postStart))
    if (command === null) return
    try {
      await hooks.started(row.Id, command, ended)
    } catch (error) {
      ended.throwIfAborted()
      log.warn({ err: error, instance: row.Names[0] }, 'the post-start command failed: restarting the instance')
      await clock.sleep(restartPauseMs, ended)
      await restart(row)
    }
  }

  const persist = createPersist(parts)

  const begin = (row: ContainerRow, isFresh: boolean, isRestarted: boolean): void => {
    const controller = new AbortController()
    watched.set(row.Id, { controller, row, hasEnded: false })
    const ended = AbortSignal.any([signal, controller.signal])
    const instance = containers.instanceOf(row)
    const run = (work: (isAgain: boolean) => Promise<void>): void =>
      void persist(work, { instance: instance.name }, ended).catch(() => {})
    const look = (probe: Probe): ProbeCall => probeCallOf(engine, probe, instance)
    const findings = findingsOf({ troubles, events, log }, instance, () => restart(row))
    // The delay is for a program that begins, not for a second attempt to watch it.
    const withDelay = (probe: Probe, isAgain: boolean): Probe =>
      isAgain ? { ...probe, initialDelaySeconds: 0 } : probe
    const alive = probeIn(row, labels.liveness, instance)
    const ready = probeIn(row, labels.readiness, instance)
    if (alive !== null) run((isAgain) => keepAliveOne(clock, withDelay(alive, isAgain), look(alive), ended, findings))
    if (ready !== null)
      run((isAgain) => {
        const watch = { clock, readiness, isFresh: isFresh || isAgain }
        return watchReadiness(watch, instance, withDelay(ready, isAgain), look(ready), ended)
      })
    if (isRestarted) run(() => runCommand(row, ended))
  }

  /** One call for all: instances that are not looked at yet. */
  const findNew = async (isFresh: boolean): Promise<void> => {
    for (const row of await containers.list({}, { signal }))
      if (row.State === 'running' && !watched.has(row.Id) && watched.size < mostWatched)
        begin(withOurLabels(row), isFresh, false)
  }

  const findAgain = createAgain(
    clock,
    signal,
    () => findNew(true),
    (work) => persist(work, {}, signal),
  )

  const { promise: lost, reject } = Promise.withResolvers<never>()
  lost.catch(() => {})
  const onStarted = ({ instanceId }: ContainerEvent): void => {
    const known = watched.get(instanceId)
    if (known === undefined) findAgain()
    else if (known.hasEnded) {
      known.controller.abort(new Error('it was started again'))
      begin(known.row, true, true)
    }
  }
  const onDied = ({ instanceId }: ContainerEvent): void => {
    const known = watched.get(instanceId)
    if (known === undefined) return
    known.hasEnded = true
    if (probeIn(known.row, labels.readiness, containers.instanceOf(known.row)) !== null)
      readiness.ended(containers.instanceOf(known.row))
  }
  const onEvent = (event: ContainerEvent): void => {
    if (event.isTask) return
    if (event.kind === 'started') onStarted(event)
    if (event.kind === 'died') onDied(event)
    if (event.kind !== 'removed') return
    watched.get(event.instanceId)?.controller.abort(new Error('it was removed'))
    watched.delete(event.instanceId)
    readiness.removed(event.instanceId)
    troubles.removed(event.instanceId)
    hooks.removed(event.instanceId)
  }
  /** An end disconnects too, and is told before that: what still runs then has lost its network. */
  const onDisconnect = async (id: string): Promise<void> => {
    await clock.sleep(disconnectedMs, signal)
    const known = watched.get(id)
    if (known === undefined || known.hasEnded) return
    const { serviceId, revision, name } = containers.instanceOf(known.row)
    log.warn({ serviceId, instance: name }, 'an instance was disconnected from its network')
    events.tell({ serviceId, revision, instanceId: id, kind: 'unready' })
  }
  const leave = await events.listen(onEvent, reject)
  try {
    await findNew(false)
    const heard = (id: string): void => void onDisconnect(id).catch(() => {})
    void persist(() => watchDisconnects(engine, heard, signal), {}, signal).catch(() => {})
    await untilAborted(lost, signal)
  } catch (error) {
    if (!stopping.aborted) throw error
  } finally {
    over.abort(new Error('the instances are no longer watched'))
    leave()
  }
}
