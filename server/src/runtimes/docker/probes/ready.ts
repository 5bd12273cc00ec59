/**
 * Waits until a revision's instances are ready, and says why if they are not. Exits are seen as events, never by
 * polling.
 */
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import { explainExitCode, outOfMemory } from '../../../lib/exit-codes.ts'
import { withLastWords } from '../../../lib/last-words.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { PlacedInstance as Instance } from '../../blue-green/instances.ts'
import { type Progress, readyWithinMs, usualPace, type Workload } from '../../runtime.ts'
import type { Containers } from '../containers.ts'
import { labels } from '../describe.ts'
import type { ContainerEvent, Events } from '../events.ts'
import type { Logs } from '../logs/logs.ts'
import { whyNotStarted } from '../program/not-started.ts'
import { awaited, createPortWatch } from './port-watch.ts'
import { type ProbeResult, probeFor } from './probe.ts'

/** From how a container ended to one plain sentence. Pure. */
export interface Ending {
  /** How often it has ended since it was made. */
  exits: number
  exitCode: number
  oomKilled: boolean
  /** False when the engine will not start it again. */
  restarts: boolean
}

interface Verdict {
  code: 'crash_loop' | 'out_of_memory'
  message: string
}

const exitsAllowed = 3

/** Null: wait, the engine starts it again and it may yet become ready. */
export const judge = (ending: Ending, memoryMb: number): Verdict | null => {
  if (ending.exits === 0) return null
  if (ending.oomKilled)
    return {
      code: 'out_of_memory',
      message: `The service ran out of memory (OOMKilled): ${outOfMemory(memoryMb)}.`,
    }
  if (ending.restarts && ending.exits < exitsAllowed) return null
  const times = ending.exits === 1 ? '' : ` ${ending.exits} times`
  const how = `exit code ${ending.exitCode}: ${explainExitCode(ending.exitCode)}`
  return { code: 'crash_loop', message: `The service exited${times} instead of becoming ready (${how}).` }
}

interface ReadyParts {
  engine: Engine
  containers: Containers
  events: Events
  logs: Logs
  clock: Clock
}

// Most programs listen within milliseconds of their start, and a check costs less than one; a command costs many.
const firstPauseMs = { look: 4, command: 50 }
const longestPauseMs = 500
/** If a check is cheap, readiness is noticed within a twentieth of the time that it took, or within this. */
const shareOfWait = 0.05
const shortPauseMs = 15
const stayUpMs = 1000
const errorLines = 50
/** For finding out why a program could not be started. */
const explainMs = 10_000

/** When it is checked: as its probe says, and by default as soon as a check is worthwhile. */
const paceOf = ({ readiness, eagerReadiness }: Workload): { firstMs: number; nextMs(): number } => {
  const chosen = eagerReadiness === true ? null : readiness
  const { initialDelaySeconds, periodSeconds } = chosen ?? usualPace
  const firstMs = initialDelaySeconds === usualPace.initialDelaySeconds ? 0 : 1000 * initialDelaySeconds
  if (periodSeconds !== usualPace.periodSeconds) return { firstMs, nextMs: () => 1000 * Math.max(1, periodSeconds) }
  const kind = readiness?.check.kind === 'exec' ? 'command' : 'look'
  let pauseMs = firstPauseMs[kind]
  let waitedMs = 0
  return {
    firstMs,
    nextMs() {
      const most = kind === 'look' ? Math.max(shortPauseMs, waitedMs * shareOfWait) : longestPauseMs
      const nowMs = Math.min(pauseMs, most, longestPauseMs)
      pauseMs = Math.min(pauseMs * 1.3, longestPauseMs)
      waitedMs += nowMs
      return nowMs
    },
  }
}

/** The state of one instance while it is waited for. */
interface Candidate {
  instance: Instance
  ending: Ending
  /** Monotonic: since when it runs; null while it is down. */
  upSinceMs: number | null
  /** Aborted with the reason why this instance will not become ready. */
  failed: AbortController
}

const createCandidate = (instance: Instance, nowMs: number): Candidate => ({
  instance,
  ending: { exits: 0, exitCode: 0, oomKilled: false, restarts: true },
  upSinceMs: nowMs,
  failed: new AbortController(),
})

const seconds = (ms: number): string => `${Math.round(ms / 100) / 10} s`

/** The engine's count of endings, and whether it restarts the container. */
const inspectEnding = async (
  containers: Pick<Containers, 'inspect'>,
  { instance, ending }: Candidate,
): Promise<void> => {
  try {
    const { State, RestartCount } = await containers.inspect(instance.id)
    ending.restarts = State.Restarting || State.Running
    ending.exits = RestartCount + (ending.restarts ? 0 : 1)
    ending.oomKilled ||= State.OOMKilled
  } catch (error) {
    if (!isEngineError(error, 404)) throw error
  }
}

const findInstances = async (containers: Containers, workload: Workload, signal: AbortSignal): Promise<Instance[]> => {
  const wanted = { [labels.service]: workload.serviceId, [labels.revision]: workload.revision }
  const found = await containers.describe(await containers.list(wanted, { signal }))
  if (found.length >= workload.instances) return found.sort((a, b) => a.index - b.index)
  const message = `Only ${found.length} of ${workload.instances} instances of the service exist.`
  throw new DeploymentError('not_ready', message)
}

/** For a program that listens nowhere. */
const lookAtAge = (clock: Clock, { upSinceMs }: Candidate): ProbeResult =>
  upSinceMs !== null && clock.monotonicMs() - upSinceMs >= stayUpMs ? null : 'it did not stay running for 1 s'

/** A program that has exited once may answer between two exits: it counts as ready only if it has also stayed up. */
const lookFor = (engine: Engine, clock: Clock, workload: Workload, candidate: Candidate) => {
  const probe = probeFor(engine, workload, candidate.instance)
  return async (signal: AbortSignal): Promise<ProbeResult> => {
    const finding = probe === null ? null : await probe(signal)
    return finding === null && (probe === null || candidate.ending.exits > 0) ? lookAtAge(clock, candidate) : finding
  }
}

export const createReady = ({ engine, containers, events, logs, clock }: ReadyParts) => {
  const ports = createPortWatch(engine, containers)

  const explain = async (instance: Instance, code: string, message: string): Promise<DeploymentError> => {
    const lines = await logs.lastLines(instance, errorLines).catch(() => [])
    if (code !== 'crash_loop') return new DeploymentError(code, message, { lines })
    const why = await whyNotStarted(engine, instance.id, lines, AbortSignal.timeout(explainMs)).catch(() => null)
    return new DeploymentError(code, withLastWords(message, lines, why), { lines })
  }

  const conclude = async (candidate: Candidate, memoryMb: number): Promise<void> => {
    const verdict = judge(candidate.ending, memoryMb)
    if (verdict === null || candidate.failed.signal.aborted) return
    candidate.failed.abort(await explain(candidate.instance, verdict.code, verdict.message))
  }

  const onEvent = async (event: ContainerEvent, candidate: Candidate, memoryMb: number): Promise<void> => {
    const { ending, failed } = candidate
    if (event.kind === 'removed')
      failed.abort(new DeploymentError('not_ready', 'The service was removed before it became ready.'))
    if (event.kind === 'started') candidate.upSinceMs = clock.monotonicMs()
    if (event.kind === 'oom') ending.oomKilled = true
    if (event.kind === 'died') {
      candidate.upSinceMs = null
      ending.exitCode = event.exitCode ?? 0
      await inspectEnding(containers, candidate)
    }
    await conclude(candidate, memoryMb)
  }

  /** It exited before the listener was added. */
  const adoptState = async (candidate: Candidate, memoryMb: number): Promise<void> => {
    const { instance, ending } = candidate
    if (instance.state === 'running' || instance.state === 'created') return
    candidate.upSinceMs = null
    Object.assign(ending, {
      exits: Math.max(1, instance.restarts),
      exitCode: instance.exitCode ?? 0,
      oomKilled: instance.oomKilled,
      restarts: instance.state === 'restarting',
    })
    await conclude(candidate, memoryMb)
  }

  /** For the first instance: the others run the same. */
  const tellPort = async (workload: Workload, candidate: Candidate, progress: Progress, signal: AbortSignal) => {
    const { instance } = candidate
    const upSinceMs = () => candidate.upSinceMs
    const wrong = await ports.watch({ clock, workload, instance, upSinceMs, progress }, signal)
    if (wrong !== null) throw await explain(instance, 'not_ready', `The service did not become ready: ${wrong}`)
  }

  const waitForOne = async (workload: Workload, candidate: Candidate, deadlineMs: number, outer: AbortSignal) => {
    const signal = AbortSignal.any([outer, candidate.failed.signal])
    const look = lookFor(engine, clock, workload, candidate)
    const needed = Math.max(1, workload.readiness?.successThreshold ?? 1)
    const pause = paceOf(workload)
    await clock.sleep(pause.firstMs, signal)
    for (let successes = 0; ; ) {
      const finding = await look(signal)
      signal.throwIfAborted()
      successes = finding === null ? successes + 1 : 0
      if (successes >= needed) return
      const leftMs = deadlineMs - clock.monotonicMs()
      if (leftMs <= 0) {
        const within = `within ${seconds(readyWithinMs(workload))}`
        const last = finding ?? `${successes} of ${needed} consecutive checks succeeded`
        const why = finding === null ? null : await ports.why(workload, candidate.instance, signal)
        const message = `The service did not become ready ${within}: ${why ?? `${last}.`}`
        throw await explain(candidate.instance, 'not_ready', message)
      }
      await clock.sleep(Math.min(pause.nextMs(), leftMs), signal)
    }
  }

  return async (workload: Workload, progress: Progress, signal: AbortSignal): Promise<Instance[]> => {
    if (workload.instances === 0) return []
    const candidates = new Map<string, Candidate>()
    const early: ContainerEvent[] = []
    const failed = new AbortController()
    const fail = (error: unknown) => failed.abort(error)
    let take = (event: ContainerEvent): void => void early.push(event)
    const deadlineMs = clock.monotonicMs() + readyWithinMs(workload)
    const leave = await events.listen((event) => take(event), fail)
    try {
      signal.throwIfAborted()
      const instances = await findInstances(containers, workload, signal)
      for (const each of instances) candidates.set(each.id, createCandidate(each, clock.monotonicMs()))
      take = (event) => {
        const candidate = candidates.get(event.instanceId)
        if (candidate !== undefined) onEvent(event, candidate, workload.memoryMb).catch(fail)
      }
      for (const candidate of candidates.values()) adoptState(candidate, workload.memoryMb).catch(fail)
      for (const event of early) take(event)
      const both = AbortSignal.any([signal, failed.signal])
      progress(`Waiting for ${awaited(workload)} (up to ${seconds(readyWithinMs(workload))}).`)
      tellPort(workload, [...candidates.values()][0]!, progress, both).catch(fail)
      let ready = 0
      const waits = [...candidates.values()].map(async (candidate) => {
        await waitForOne(workload, candidate, deadlineMs, both)
        ready += 1
        progress(`${ready} of ${instances.length} instances are ready`)
      })
      await Promise.all(waits)
      return instances.map((instance) => ({ ...instance, state: 'running' }))
    } finally {
      failed.abort(new Error('no longer waited for'))
      leave()
    }
  }
}
