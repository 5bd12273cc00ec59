/**
 * Restarts instances whose liveness probe fails. The probe is in a label of the container, so that whoever watches the
 * engine knows it; while nobody does (the control plane is down), only the engine's own restart policy acts.
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
import { parseProbe } from './parse-probe.ts'
import { type ProbeCall, probeCallOf } from './probe.ts'

export interface LivenessParts {
  engine: Engine
  containers: Containers
  events: Events
  clock: Clock
  log: Log
}

const stopSeconds = 10
const shortestPauseMs = 1000
const restartDeadlineMs = 60_000

/** See `Runtime.keepAlive`. */
export const keepAlive = async (parts: LivenessParts, stopping: AbortSignal): Promise<void> => {
  const { engine, containers, events, clock, log } = parts
  const over = new AbortController()
  const signal = AbortSignal.any([stopping, over.signal])
  const watched = new Map<string, AbortController>()

  const restart = async (instance: Instance, finding: string): Promise<void> => {
    log.warn(
      { serviceId: instance.serviceId, instance: instance.name, finding },
      'liveness probe failed: restarting the instance',
    )
    const query = { t: stopSeconds }
    await engine.call('POST', `/containers/${instance.id}/restart`, { query, deadlineMs: restartDeadlineMs })
  }

  const probeWhileRunning = async (
    instance: Instance,
    probe: Probe,
    look: ProbeCall,
    ended: AbortSignal,
  ): Promise<void> => {
    for (;;) {
      await clock.sleep(probe.initialDelaySeconds * 1000, ended)
      for (let failures = 0; failures < Math.max(1, probe.failureThreshold); ) {
        await clock.sleep(Math.max(shortestPauseMs, probe.periodSeconds * 1000), ended)
        const finding = await look(ended)
        failures = finding === null ? 0 : failures + 1
        if (finding !== null && failures >= probe.failureThreshold) await restart(instance, finding)
      }
    }
  }

  const begin = (instance: Instance, probe: Probe): void => {
    const controller = new AbortController()
    watched.set(instance.id, controller)
    const ended = AbortSignal.any([signal, controller.signal])
    probeWhileRunning(instance, probe, probeCallOf(engine, probe, instance), ended)
      .catch((error: unknown) => {
        if (!ended.aborted) log.warn({ err: error, instance: instance.name }, 'the liveness probe waits for the engine')
      })
      .finally(() => watched.delete(instance.id))
  }

  const beginRow = (row: ContainerRow): void => {
    const text = labelOf(row.Labels, labels.liveness)
    if (text === undefined || row.State !== 'running' || watched.has(row.Id)) return
    const instance = containers.instanceOf(row)
    const probe = parseProbe(text)
    // Of a container from before its labels were all ours: its image says this, and concerns no other.
    if (probe === null || (probe.check.kind !== 'exec' && instance.endpoints[probe.check.port] === undefined))
      log.debug({ instance: instance.name }, 'its label has no valid liveness probe')
    else begin(instance, probe)
  }

  /** One call for all: instances that carry a probe and are not looked at yet. */
  const findNew = async (): Promise<void> => {
    for (const row of await containers.list({}, { signal })) beginRow(row)
  }

  const { promise: lost, reject } = Promise.withResolvers<never>()
  lost.catch(() => {})
  const onEvent = (event: ContainerEvent): void => {
    if (event.kind === 'started')
      findNew().catch((error: unknown) => log.debug({ err: error }, 'the instances could not be listed'))
    if (event.kind === 'removed') watched.get(event.instanceId)?.abort()
  }
  const leave = await events.listen(onEvent, reject)
  try {
    await findNew()
    await untilAborted(lost, signal)
  } catch (error) {
    if (!stopping.aborted) throw error
  } finally {
    over.abort(new Error('liveness is no longer monitored'))
    leave()
  }
}
