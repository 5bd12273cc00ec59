/** The containers of a revision: created and started next to the older ones, and stopped. */

import { createKeyedLock, withLock } from '../../lib/concurrency/keyed-lock.ts'
import { createSemaphore } from '../../lib/concurrency/semaphore.ts'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { PlacedInstance as Instance } from '../blue-green/instances.ts'
import type { Progress, ServiceKey, Workload } from '../runtime.ts'
import type { ContainerDetail, ContainerRow, Containers, NamedRow } from './containers.ts'
import { type CreateContext, type Creator, isNameTaken, isPlaceTaken } from './create.ts'
import { configHash, containerName, describeInstance, labels } from './describe.ts'
import { createEndings, type EndingsParts } from './endings.ts'
import type { Hooks } from './hooks.ts'
import type { Places } from './network/places.ts'
import { isAttached } from './probes/troubles.ts'

interface InstancesParts extends EndingsParts {
  creator: Creator
  places: Places
  hooks: Hooks
  ownerId: string
}

type ApplyContext = Pick<CreateContext, 'progress' | 'signal'>

type IsOver = (row: ContainerRow) => boolean

const startsAtOnce = 8
const placeTries = 5

/** One above the present number of instances. */
const isSurplus =
  ({ revision, instances }: Workload, { instanceOf }: Pick<Containers, 'instanceOf'>) =>
  (row: ContainerRow): boolean =>
    row.Labels[labels.revision] === revision && instanceOf(row).index >= instances

/** One that never started may lack its files, and one without its network would not be reachable. */
const isWhole = async (
  containers: Pick<Containers, 'describe'>,
  { State, NetworkSettings }: ContainerDetail,
  row: NamedRow,
): Promise<boolean> => {
  if (!State.Running) return State.Status !== 'created' && isAttached({ ...row, NetworkSettings })
  const [seen] = await containers.describe([{ ...row, Created: 0, NetworkSettings }])
  return seen?.trouble?.needsNew !== true
}

export const createInstances = (parts: InstancesParts) => {
  const { containers, creator, places, hooks, ownerId, clock } = parts
  const { remove, rowsOf, end } = createEndings(parts)
  const startInTurn = createSemaphore(startsAtOnce)
  // One service at a time: a second `apply` finds the instances of the first, and `retire` sees those that an aborted
  // one began.
  const perService = createKeyedLock()

  const make = async (workload: Workload, index: number, context: ApplyContext): Promise<Instance> => {
    const { environmentId } = workload
    const name = containerName(workload.serviceId, workload.revision, index)
    for (let tries = 1; ; tries += 1) {
      const body = describeInstance(workload, index, await places.take(workload, name), ownerId)
      let id: string | undefined
      try {
        id = await creator.create(name, body, { ...context, environmentId }, { files: workload.files, folders: [] })
        await creator.writeFiles(id, workload.files)
        await creator.start(id, environmentId)
        await hooks.started(id, workload.postStart, context.signal)
        const row = { Id: id, Names: [name], State: 'running', Labels: body.Labels }
        return { ...containers.instanceOf(row), state: 'starting', startedAt: clock.now().toISOString() }
      } catch (error) {
        if (id === undefined) places.release(name)
        else await remove(id, name)
        if (!isPlaceTaken(error) || tries === placeTries) throw error
        places.refused(environmentId, name)
      }
    }
  }

  /** A container of that name, if it was made from the same configuration; any other of ours is removed. */
  const adopt = async (workload: Workload, index: number, signal: AbortSignal): Promise<Instance | null> => {
    const name = containerName(workload.serviceId, workload.revision, index)
    const detail = await containers.inspect(name)
    const { Labels } = detail.Config
    if (Labels[labels.owner] !== ownerId)
      throw new DeploymentError(
        'name_taken',
        `A container named ${name} exists and does not belong to this server: remove it.`,
      )
    const row = { Id: detail.Id, Names: [name], State: 'running', Labels }
    const isAsked = Labels[labels.config] === configHash(workload, ownerId)
    if (!isAsked || !(await isWhole(containers, detail, row))) {
      const State = detail.State.Running ? 'running' : 'exited'
      await end([{ ...row, State, Created: 0 }], workload.stopGraceMs, signal)
      return null
    }
    try {
      if (!detail.State.Running) await creator.start(detail.Id, workload.environmentId)
      if (!detail.State.Running || !hooks.isStarted(detail.Id))
        await hooks.started(detail.Id, workload.postStart, signal)
    } catch (error) {
      if (!isPlaceTaken(error)) throw error
      await remove(detail.Id, name)
      return null
    }
    return containers.instanceOf(row)
  }

  const ensure = async (workload: Workload, index: number, context: ApplyContext, onAdopted: () => void) => {
    try {
      return await make(workload, index, context)
    } catch (error) {
      if (!isNameTaken(error)) throw error
      const adopted = await adopt(workload, index, context.signal)
      onAdopted()
      return adopted ?? (await make(workload, index, context))
    }
  }

  const removeSurplus = async (workload: Workload): Promise<void> => {
    const surplus = (await rowsOf(workload.serviceId))
      .filter(isSurplus(workload, containers))
      .map(containers.instanceOf)
    await Promise.all(surplus.map(({ id, name }) => remove(id, name)))
  }

  const makeAll = async (workload: Workload, progress: Progress, signal: AbortSignal): Promise<Instance[]> => {
    let adopted = workload.instances === 0
    const works = Array.from({ length: workload.instances }, (_, index) =>
      startInTurn(
        workload.serviceId,
        () =>
          ensure(workload, index, { progress, signal }, () => {
            adopted = true
          }),
        { signal },
      ),
    )
    const results = await Promise.allSettled(works)
    const failure = results.find((result) => result.status === 'rejected')
    if (failure !== undefined) throw failure.reason
    if (adopted) await removeSurplus(workload)
    return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  }

  const endThose = async (serviceId: string, isOver: IsOver, graceMs: number, signal: AbortSignal): Promise<void> => {
    await untilAborted(perService.settled(serviceId), signal)
    await end((await rowsOf(serviceId)).filter(isOver), graceMs, signal)
  }

  return {
    apply: (workload: Workload, progress: Progress, signal: AbortSignal): Promise<Instance[]> => {
      signal.throwIfAborted()
      const work = withLock(perService, workload.serviceId, signal, () => makeAll(workload, progress, signal))
      return untilAborted(work, signal)
    },
    retire: ({ serviceId }: ServiceKey, keep: string | null, graceMs: number, signal: AbortSignal): Promise<void> =>
      endThose(serviceId, (row) => row.Labels[labels.revision] !== keep, graceMs, signal),
    shrink: (workload: Workload, signal: AbortSignal): Promise<void> =>
      endThose(workload.serviceId, isSurplus(workload, containers), workload.stopGraceMs, signal),
    /** Tasks too. */
    endAll: async (serviceId: string, graceMs: number, signal: AbortSignal): Promise<void> => {
      await untilAborted(perService.settled(serviceId), signal)
      await end(await rowsOf(serviceId, {}, true), graceMs, signal)
    },
  }
}
