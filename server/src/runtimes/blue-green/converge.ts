/** Containers behind our router: from the instances that there are of a service to those that there are to be. */

import { routeWhatCan } from '../../router/routes.ts'
import { type Driver, minute, type Part, type Parts, reportStopFirst, stopsFirst, unwatched } from '../rollout.ts'
import { type Converged, isDown, type Rollout, type Running, readyWithinMs, type Workload } from '../runtime.ts'
import type { BlueGreenParts } from './blue-green.ts'
import type { PlacedInstance } from './instances.ts'
import type { RoutedServices } from './routed.ts'
import { publicationOf, routesFor, routesOf } from './routes.ts'
import { createTraffic, drainTimeoutMs } from './traffic.ts'

const startDeadlineMs = 5 * minute
const drainDeadlineMs = drainTimeoutMs + minute
const endDeadlineMs = 2 * minute

/** The answer of its hosts while none of its instances runs yet. */
const restOf = ({ scaling }: Workload): 'asleep' | 'starting' => (scaling?.sleeps === true ? 'asleep' : 'starting')

export const createDriver = ({ instances, router }: BlueGreenParts, routed: RoutedServices): Driver<Workload> => {
  const { route, reportRouted, drain } = createTraffic(router)

  const rollOut = ({ workload, exposure }: Running<Workload>, rollout: Rollout): ReturnType<Driver['rollOut']> => {
    const { serviceId, revision, stopGraceMs } = workload
    let seen: PlacedInstance[] | undefined
    let others: PlacedInstance[] = []
    let current: PlacedInstance[] = []
    const look = async (): Promise<PlacedInstance[]> => {
      if (seen === undefined) {
        seen = await instances.see([workload])
        others = seen.filter((instance) => instance.revision !== revision)
      }
      return seen
    }
    const retire = (signal: AbortSignal): Promise<void> => instances.retire(workload, revision, stopGraceMs, signal)
    const stopFirst: Part = {
      deadlineMs: endDeadlineMs + stopGraceMs,
      async work(signal) {
        await look()
        if (others.length > 0) reportStopFirst(workload, rollout)
        await retire(signal)
        others = []
      },
    }
    const parts: Parts = {
      ...(stopsFirst(workload) ? { 'stop-first': stopFirst } : {}),
      start: {
        deadlineMs: startDeadlineMs,
        async work(signal) {
          // Where nothing of the service runs its hosts say to wait.
          if ((await look()).length === 0)
            await route(serviceId, routesFor(workload, await exposure(), restOf(workload), []))
          await instances.apply(workload, (text) => rollout.report('start', text), signal)
        },
      },
      ready: {
        deadlineMs: readyWithinMs(workload) + minute,
        async work(signal) {
          current = await instances.ready(workload, (text, level) => rollout.report('ready', text, level), signal)
        },
      },
      switch: {
        deadlineMs: minute,
        async work() {
          const publication = publicationOf(workload, await exposure())
          const routes = routesOf(publication, current)
          routed.note(serviceId, publication)
          await route(serviceId, routes)
          await rollout.serving()
          reportRouted(routes, rollout)
        },
      },
      drain: { deadlineMs: drainDeadlineMs, work: (signal) => drain(others, rollout, signal) },
      retire: { deadlineMs: endDeadlineMs + stopGraceMs, work: retire },
    }
    return { parts, instances: async () => current }
  }

  /** The engine looks after what only crashed. */
  const restore = async ({ workload, exposure }: Running<Workload>, signal: AbortSignal): Promise<Converged> => {
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
    routed.note(serviceId, publication)
    const refused = await routeWhatCan(router, serviceId, routesOf(publication, current))
    await drain([...others, ...surplus], unwatched(signal), signal)
    await instances.retire(workload, revision, stopGraceMs, signal)
    if (surplus.length > 0) await instances.shrink(workload, signal)
    return { instances: current, refused: refused.map(({ message }) => message) }
  }

  const end: Driver['end'] = (service, desired, rollout) => ({
    switch: {
      deadlineMs: minute,
      async work() {
        const isStopped = desired.state === 'stopped'
        const routes = isStopped ? routesFor(service, await desired.exposure(), 'stopped', []) : []
        routed.note(service.serviceId, null)
        await router.setService(service.serviceId, routes)
      },
    },
    ...(desired.state === 'stopped' && {
      drain: {
        deadlineMs: drainDeadlineMs,
        work: async (signal) => drain(await instances.see([service]), rollout, signal),
      },
    }),
    retire: {
      deadlineMs: endDeadlineMs + desired.graceMs,
      async work(signal) {
        await instances.retire(service, null, desired.graceMs, signal)
        if (desired.state === 'absent') await instances.remove(service, signal)
      },
    },
  })

  return { rollOut, restore, end }
}
