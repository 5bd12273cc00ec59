/**
 * Checks instances as long as they run, as their labels say: one that is not alive is restarted, one that is not ready
 * gets no requests until it is again, and one that the engine restarted gets its command. While the control plane is
 * down, only the engine's own restart policy acts.
 */
import { untilAborted } from '../../../lib/concurrency/waiting.ts'
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'
import { objectOf } from '../../../lib/foreign-text/fields.ts'
import { tryJson } from '../../../lib/foreign-text/read-json.ts'
import type { Log } from '../../../lib/log.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { PlacedInstance } from '../../blue-green/instances.ts'
import type { Instance, Probe } from '../../runtime.ts'
import type { ContainerRow, Containers } from '../containers.ts'
import { labelOf, labels } from '../describe.ts'
import { type ContainerEvent, type Events, watchDisconnects } from '../events.ts'
import { type Hooks, parseCommand } from '../hooks.ts'
import { type ProbeCall, probeCallOf } from './probe.ts'
import { type Readiness, watchReadiness } from './readiness.ts'
import type { Troubles } from './troubles.ts'

/** A week: past that a timer would end at once. */
const mostSeconds = 604_800

const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 && value <= mostSeconds

const isPort = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) > 0 && (value as number) <= 65_535

const parseCheck = (value: unknown): Probe['check'] | null => {
  const { kind, port, path, scheme, command, service } = objectOf(value)
  if (kind === 'tcp' && isPort(port)) return { kind, port }
  if (kind === 'http' && isPort(port) && typeof path === 'string' && (scheme === 'HTTP' || scheme === 'HTTPS'))
    return { kind, port, path, scheme }
  if (kind === 'grpc' && isPort(port) && typeof service === 'string') return { kind, port, service }
  if (kind === 'exec' && Array.isArray(command) && command.every((part) => typeof part === 'string'))
    return { kind, command }
  return null
}

/** The label of a liveness probe, which anybody may have written; null for anything but a whole probe. */
export const parseProbe = (text: string): Probe | null => {
  const fields = objectOf(tryJson(text))
  const check = parseCheck(fields.check)
  const { initialDelaySeconds, periodSeconds, timeoutSeconds, successThreshold, failureThreshold } = fields
  const counts = { initialDelaySeconds, periodSeconds, timeoutSeconds, successThreshold, failureThreshold }
  if (check === null || !Object.values(counts).every(isCount)) return null
  return { check, ...(counts as Omit<Probe, 'check'>) }
}

interface Findings {
  failed(finding: string): Promise<void>
  alive(): void
}

/** Restarts an instance that is not alive, or has it replaced where that did not help, and keeps its status true. */
const findingsOf = (
  { troubles, events, log }: Pick<WatchParts, 'troubles' | 'events' | 'log'>,
  { id, name, serviceId, revision }: Instance,
  restart: () => Promise<void>,
): Findings => {
  const notify = (kind: 'ready' | 'unready'): void => events.notify({ serviceId, revision, instanceId: id, kind })
  return {
    async failed(finding) {
      const { needsNew } = troubles.failed(id, finding)
      const action = needsNew ? 'replacing the instance' : 'restarting the instance'
      log.warn({ serviceId, instance: name, finding }, `liveness probe failed: ${action}`)
      notify('unready')
      // Its replacement removes it, which ends this watch.
      if (needsNew) return
      await restart()
      troubles.restarted(id)
    },
    alive() {
      if (troubles.alive(id)) notify('ready')
    },
  }
}

/** Until aborted; `failed` restarts it, and it is asked as a new one then. `alive`: it has answered as often as it has to. */
export const keepAliveOne = async (
  clock: Clock,
  probe: Probe,
  look: ProbeCall,
  ended: AbortSignal,
  { failed, alive }: Findings,
): Promise<void> => {
  for (;;) {
    // A program needs a moment to begin.
    await clock.sleep(Math.max(1, probe.initialDelaySeconds) * 1000, ended)
    for (let failures = 0, successes = 0; ; ) {
      const finding = await look(ended)
      ended.throwIfAborted()
      successes = finding === null ? successes + 1 : 0
      if (finding !== null) failures += 1
      else if (successes >= probe.successThreshold) {
        failures = 0
        alive()
      }
      if (finding !== null && failures >= Math.max(1, probe.failureThreshold)) {
        await failed(finding)
        break
      }
      await clock.sleep(Math.max(1, probe.periodSeconds) * 1000, ended)
    }
  }
}

interface WatchParts {
  engine: Engine
  containers: Containers
  events: Events
  hooks: Hooks
  readiness: Readiness
  troubles: Troubles
  clock: Clock
  log: Log
}

interface Watched {
  controller: AbortController
  /** Without its owner's labels, which may be large. */
  row: ContainerRow
  /** It ended while it was watched. */
  hasEnded: boolean
}

/** A new start is not tried faster than this after a failed command. */
const restartPauseMs = 10_000
const restartDeadlineMs = 60_000
/** After an error, such as an engine that did not answer. */
const retryPauseMs = 10_000
/** Its end may be reported in another stream of events. */
const disconnectedMs = 500
/** Between two calls for started ones. */
const againMs = 500
/** For a restarted one. */
const stopGraceMs = 10_000
/** The most instances of one engine that are checked: one elsewhere may list any number. */
const mostWatched = 5000

const ours: ReadonlySet<string> = new Set(Object.values(labels))

const withOurLabels = (row: ContainerRow): ContainerRow => ({
  ...{ Id: row.Id, Names: row.Names, State: row.State, Created: row.Created },
  Labels: Object.fromEntries(Object.entries(row.Labels).filter(([name]) => ours.has(name))),
})

const probeIn = (row: ContainerRow, label: string, { endpoints }: PlacedInstance): Probe | null => {
  const text = labelOf(row.Labels, label)
  const probe = text === undefined ? null : parseProbe(text)
  // For a container from before all its labels were ours: the label is its image's, and is ignored.
  return probe === null || (probe.check.kind !== 'exec' && endpoints[probe.check.port] === undefined) ? null : probe
}

/** Until it succeeds or `ended`: an error must not leave its instance unwatched. */
const createPersist =
  ({ clock, log }: Pick<WatchParts, 'clock' | 'log'>) =>
  async (work: (isAgain: boolean) => Promise<void>, what: object, ended: AbortSignal): Promise<void> => {
    for (let isAgain = false; ; isAgain = true) {
      try {
        return await work(isAgain)
      } catch (error) {
        // A container that is gone needs nothing more.
        if (ended.aborted || isEngineError(error, 404)) return
        log.warn({ err: error, ...what }, `watching resumes in ${retryPauseMs / 1000} s`)
        await clock.sleep(retryPauseMs, ended)
      }
    }
  }

/** One call after another, however often it is requested; `persist` continues after errors. */
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

  /** A container that the engine or we restarted: it is like new. */
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
    // The delay is for a program that starts, not for another attempt to watch it.
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

  /** One call for all: finds instances that are not watched yet. */
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
  /** An end disconnects too, and is reported before that: a container that still runs then has lost its network. */
  const onDisconnect = async (id: string): Promise<void> => {
    await clock.sleep(disconnectedMs, signal)
    const known = watched.get(id)
    if (known === undefined || known.hasEnded) return
    const { serviceId, revision, name } = containers.instanceOf(known.row)
    log.warn({ serviceId, instance: name }, 'an instance was disconnected from its network')
    events.notify({ serviceId, revision, instanceId: id, kind: 'unready' })
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
