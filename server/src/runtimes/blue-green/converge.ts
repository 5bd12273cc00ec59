/** From the present state of a service to the desired one, in order. See `Runtime.converge`. */

import { routeWhatCan } from '../../router/routes.ts'
import {
  type Converged,
  type Desired,
  isDown,
  type Rollout,
  type Running,
  type Runtime,
  readyWithinMs,
  type ServiceKey,
  type Workload,
} from '../runtime.ts'
import type { BlueGreenParts } from './blue-green.ts'
import type { PlacedInstance } from './instances.ts'
import type { LedBook } from './led.ts'
import { publicationOf, routesFor, routesOf } from './routes.ts'
import { createTraffic, drainTimeoutMs } from './traffic.ts'

type Stopped = Extract<Desired, { state: 'stopped' }>

const minute = 60_000
const startDeadlineMs = 5 * minute

/** Two versions side by side would share a volume's files: such services stop the old one first. */
export const stopsFirst = ({ volumes, recreate }: Pick<Workload, 'volumes' | 'recreate'>): boolean =>
  volumes.length > 0 || recreate === true

const nothing: Converged = { instances: [], refused: [] }

/** The answer of its hosts while none of its instances runs yet. */
const restOf = ({ scaling }: Workload): 'asleep' | 'starting' => (scaling?.sleeps === true ? 'asleep' : 'starting')

/** For calls without a rollout: each step is done, once. */
export const unwatched = (signal: AbortSignal): Rollout => ({
  step: (_name, _deadlineMs, work) => work(signal),
  report: () => {},
  serving: async () => {},
})

export const createConverge = ({ instances, router }: BlueGreenParts, led: LedBook): Runtime['converge'] => {
  const { lead, tellLed, drain } = createTraffic(router)

  /** Starts the new version where it may start, and shows `starting` if no instance of the service runs. */
  const startNew = async ({ workload, exposure }: Running, rollout: Rollout): Promise<PlacedInstance[]> => {
    const { serviceId, revision, stopGraceMs } = workload
    let seen: PlacedInstance[] | undefined
    let others: PlacedInstance[] = []
    const look = async (): Promise<void> => {
      seen ??= await instances.see([workload])
      others = seen.filter((instance) => instance.revision !== revision)
    }
    if (stopsFirst(workload)) {
      const why = workload.recreate === true ? 'The update strategy is Recreate' : 'The service has volumes'
      await rollout.step('stop-first', 2 * minute + stopGraceMs, async (signal) => {
        await look()
        if (others.length > 0)
          rollout.report('start', `${why}: stopping the running version before the new one starts.`)
        await instances.retire(workload, revision, stopGraceMs, signal)
        others = []
      })
    }
    await rollout.step('start', startDeadlineMs, async (signal) => {
      if (seen === undefined) await look()
      if (seen!.length === 0) await lead(serviceId, routesFor(workload, await exposure(), restOf(workload), []))
      await instances.apply(workload, (text) => rollout.report('start', text), signal)
    })
    return others
  }

  const rollOut = async (desired: Running, rollout: Rollout): Promise<Converged> => {
    const { workload, exposure } = desired
    const { serviceId, revision, stopGraceMs } = workload
    const others = await startNew(desired, rollout)
    let current: PlacedInstance[] = []
    await rollout.step('ready', readyWithinMs(workload) + minute, async (signal) => {
      current = await instances.ready(workload, (text, level) => rollout.report('ready', text, level), signal)
    })
    await rollout.step('switch', minute, async () => {
      const publication = publicationOf(workload, await exposure())
      const routes = routesOf(publication, current)
      led.note(serviceId, publication)
      await lead(serviceId, routes)
      await rollout.serving()
      tellLed(routes, rollout)
    })
    await rollout.step('drain', drainTimeoutMs + minute, (signal) => drain(others, rollout, signal))
    await rollout.step('retire', 2 * minute + stopGraceMs, (signal) =>
      instances.retire(workload, revision, stopGraceMs, signal),
    )
    return { instances: current, refused: [] }
  }

  /** The version that serves already: missing instances are started; the engine restarts those that only crashed. */
  const restore = async ({ workload, exposure }: Running, signal: AbortSignal): Promise<Converged> => {
    const { serviceId, revision, stopGraceMs } = workload
    const seen = await instances.see([workload])
    const others = seen.filter((instance) => instance.revision !== revision)
    let current = seen.filter((instance) => instance.revision === revision)
    const up = current.filter((instance) => !isDown(instance))
    const surplus = current.filter(({ index }) => index >= workload.instances)
    current = current.filter((instance) => !surplus.includes(instance))
    if (up.filter((instance) => !surplus.includes(instance)).length < workload.instances) {
      if (stopsFirst(workload)) await instances.retire(workload, revision, stopGraceMs, signal)
      current = await instances.apply(workload, () => {}, signal)
    }
    const publication = publicationOf(workload, await exposure())
    led.note(serviceId, publication)
    const refused = await routeWhatCan(router, serviceId, routesOf(publication, current))
    await drain([...others, ...surplus], unwatched(signal), signal)
    await instances.retire(workload, revision, stopGraceMs, signal)
    if (surplus.length > 0) await instances.shrink(workload, signal)
    return { instances: current, refused: refused.map(({ message }) => message) }
  }

  const stop = async (service: ServiceKey, { exposure, graceMs }: Stopped, rollout: Rollout): Promise<Converged> => {
    const { serviceId } = service
    await rollout.step('switch', minute, async () => {
      const routes = routesFor(service, await exposure(), 'stopped', [])
      led.note(serviceId, null)
      await router.setService(serviceId, routes)
    })
    await rollout.step('drain', drainTimeoutMs + minute, async (signal) =>
      drain(await instances.see([service]), rollout, signal),
    )
    await rollout.step('retire', 2 * minute + graceMs, (signal) => instances.retire(service, null, graceMs, signal))
    return nothing
  }

  const remove = async (service: ServiceKey, graceMs: number, rollout: Rollout): Promise<Converged> => {
    await rollout.step('switch', minute, async () => {
      led.note(service.serviceId, null)
      await router.setService(service.serviceId, [])
    })
    await rollout.step('retire', 2 * minute + graceMs, async (signal) => {
      await instances.retire(service, null, graceMs, signal)
      await instances.remove(service, signal)
    })
    return nothing
  }

  return async (service, desired, rollout, signal) => {
    signal.throwIfAborted()
    if (desired.state === 'running') return rollout === null ? restore(desired, signal) : rollOut(desired, rollout)
    const steps = rollout ?? unwatched(signal)
    if (desired.state === 'absent') return remove(service, desired.graceMs, steps)
    return stop(service, desired, steps)
  }
}
