/**
 * Looks at instances for as long as they run, as their labels say: one that is not alive is restarted, one that is not
 * ready gets no requests until it is again, and one that the engine started again gets its command. While nobody
 * watches (the control plane is down), only the engine's own restart policy acts.
 */
import { untilAborted } from '../../../lib/concurrency/waiting.ts'
import type { Engine } from '../../../lib/docker/docker-engine.ts'
import type { Log } from '../../../lib/log.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { PlacedInstance as Instance } from '../../blue-green/instances.ts'
import type { Probe } from '../../runtime.ts'
import type { ContainerRow, Containers } from '../containers.ts'
import { labelOf, labels } from '../describe.ts'
import type { ContainerEvent, Events } from '../events.ts'
import { type Hooks, parseCommand } from '../hooks.ts'
import { keepAliveOne } from './liveness.ts'
import { parseProbe } from './parse-probe.ts'
import { type ProbeCall, probeCallOf } from './probe.ts'
import { type Readiness, watchReadiness } from './readiness.ts'

export interface WatchParts {
  engine: Engine
  containers: Containers
  events: Events
  hooks: Hooks
  readiness: Readiness
  clock: Clock
  log: Log
}

/** What is looked at of one instance. */
interface Watched {
  controller: AbortController
  row: ContainerRow
  /** It ended while it was watched. */
  hasEnded: boolean
}

/** A new start is not tried faster than this after a command that failed. */
const restartPauseMs = 10_000
const restartDeadlineMs = 60_000

const probeIn = (row: ContainerRow, label: string, { endpoints }: Instance): Probe | null => {
  const text = labelOf(row.Labels, label)
  const probe = text === undefined ? null : parseProbe(text)
  // Of a container from before its labels were all ours: its image says this, and concerns no other.
  return probe === null || (probe.check.kind !== 'exec' && endpoints[probe.check.port] === undefined) ? null : probe
}

/** See `Runtime.keepAlive`. */
export const watchInstances = async (parts: WatchParts, stopping: AbortSignal): Promise<void> => {
  const { engine, containers, events, hooks, readiness, clock, log } = parts
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

  const begin = (row: ContainerRow, isFresh: boolean, isRestarted: boolean): void => {
    const controller = new AbortController()
    watched.set(row.Id, { controller, row, hasEnded: false })
    const ended = AbortSignal.any([signal, controller.signal])
    const instance = containers.instanceOf(row)
    const run = (work: Promise<void>): void =>
      void work.catch((error: unknown) => {
        if (!ended.aborted) log.warn({ err: error, instance: instance.name }, 'a probe waits for the engine')
      })
    const look = (probe: Probe): ProbeCall => probeCallOf(engine, probe, instance)
    const alive = probeIn(row, labels.liveness, instance)
    const ready = probeIn(row, labels.readiness, instance)
    if (alive !== null)
      run(
        keepAliveOne(clock, alive, look(alive), ended, async (finding) => {
          const { serviceId, name } = instance
          log.warn({ serviceId, instance: name, finding }, 'liveness probe failed: restarting the instance')
          await restart(row)
        }),
      )
    if (ready !== null) run(watchReadiness({ clock, readiness, isFresh }, instance, ready, look(ready), ended))
    if (isRestarted) run(runCommand(row, ended))
  }

  /** One call for all: instances that are not looked at yet. */
  const findNew = async (isFresh: boolean): Promise<void> => {
    for (const row of await containers.list({}, { signal }))
      if (row.State === 'running' && !watched.has(row.Id)) begin(row, isFresh, false)
  }

  const { promise: lost, reject } = Promise.withResolvers<never>()
  lost.catch(() => {})
  const onStarted = ({ instanceId }: ContainerEvent): void => {
    const known = watched.get(instanceId)
    if (known === undefined)
      findNew(true).catch((error: unknown) => log.debug({ err: error }, 'the instances could not be listed'))
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
  }
  const leave = await events.listen(onEvent, reject)
  try {
    await findNew(false)
    await untilAborted(lost, signal)
  } catch (error) {
    if (!stopping.aborted) throw error
  } finally {
    over.abort(new Error('the instances are no longer watched'))
    leave()
  }
}

/** Of one that is restarted. */
const stopGraceMs = 10_000
