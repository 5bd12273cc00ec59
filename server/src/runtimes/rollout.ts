/**
 * How a service reaches its desired state, the same on every runtime: the steps, in one order, with or without a
 * deployment that watches them. A driver does the work of each step: one for each kind of artifact.
 */
import { DeploymentError } from '../lib/errors.ts'
import type {
  Artifact,
  ArtifactKind,
  Converged,
  Desired,
  Rollout,
  RolloutStep,
  Running,
  Runtime,
  ServiceKey,
  Workload,
} from './runtime.ts'

/** The work of one step, within its deadline. Idempotent: it may be repeated after a crash or an abort. */
export interface Part {
  deadlineMs: number
  work(signal: AbortSignal): Promise<unknown>
}

/** A step without an entry does nothing. */
export type Parts = Partial<Record<RolloutStep, Part>>

export type Ending = Exclude<Desired, Running>

export interface Driver<Of extends Artifact = Artifact> {
  /** From the old version to this one; `switch` calls `serving`. */
  rollOut(desired: Running<Of>, rollout: Rollout): { parts: Parts; instances(): Promise<Converged['instances']> }
  /** Starts the missing parts of the version that already serves, and ends what is left of other versions. */
  restore(desired: Running<Of>, signal: AbortSignal): Promise<Converged>
  end(service: ServiceKey, desired: Ending, rollout: Rollout, signal: AbortSignal): Parts | Promise<Parts>
}

export interface Drivers {
  /** Undefined: the cluster cannot run it. */
  of(artifact: ArtifactKind): Driver | undefined
  /** The drivers that may have objects of a service, in the order in which those end. Undefined: its kind is unknown. */
  ending(artifact: ArtifactKind | undefined): readonly Pick<Driver, 'end'>[]
}

export const minute = 60_000

const order: readonly RolloutStep[] = ['stop-first', 'start', 'ready', 'switch', 'drain', 'retire']

/** Two versions side by side would share a volume's files: such services stop the old one first. */
export const stopsFirst: Runtime['stopsFirst'] = ({ volumes, recreate }) => volumes.length > 0 || recreate === true

export const reportStopFirst = ({ recreate }: Workload, { report }: Rollout): void => {
  const why = recreate === true ? 'The update strategy is Recreate' : 'The service has volumes'
  report('start', `${why}: stopping the running version before the new one starts.`)
}

/** Without a deployment that watches: each step runs once. */
export const unwatched = (signal: AbortSignal): Rollout => ({
  step: (_name, _deadlineMs, work) => work(signal),
  report: () => {},
  serving: async () => {},
})

const walk = async (parts: Parts, rollout: Rollout): Promise<void> => {
  for (const name of order) {
    const part = parts[name]
    if (part !== undefined)
      await rollout.step(name, part.deadlineMs, async (signal) => {
        await part.work(signal)
      })
  }
}

/** The sentence for a cluster without a driver. */
const lacking: Record<ArtifactKind, string> = {
  chart: 'The cluster cannot install charts.',
  app: 'The cluster has no Argo CD, which this service needs.',
  image: 'The cluster cannot run images.',
}

/** See `Runtime.converge`. */
export const createConverge =
  (drivers: Drivers): Runtime['converge'] =>
  async (service, desired, rollout, signal) => {
    signal.throwIfAborted()
    if (desired.state === 'running') {
      const { artifact } = desired.workload
      const driver = drivers.of(artifact)
      if (driver === undefined) throw new DeploymentError('cluster_unable', lacking[artifact])
      if (rollout === null) return driver.restore(desired, signal)
      const { parts, instances } = driver.rollOut(desired, rollout)
      await walk(parts, rollout)
      return { instances: await instances(), refused: [] }
    }
    const steps = rollout ?? unwatched(signal)
    for (const driver of drivers.ending(service.artifact))
      await walk(await driver.end(service, desired, steps, signal), steps)
    return { instances: [], refused: [] }
  }
