/** Why an action is not possible for a service, checked before it starts; a plan shows the same. Pure. */
import { type ApiError, badRequest, conflict } from '../../lib/errors.ts'
import type { Ability, ArtifactKind } from '../../runtimes/runtime.ts'
import type { Place } from '../artifacts/driver.ts'
import { driverOf } from '../artifacts/drivers.ts'
import type { DeployableKind, DeploymentAction, ServiceRequest, WorkloadSpec } from '../deployments.ts'
import { taskFor, tasksIn } from '../desired/tasks.ts'
import { sizeRefusal } from '../desired/volume-sizes.ts'
import { stickyKey } from '../traffic/ingress-settings.ts'

interface Candidate {
  name: string
  spec: Record<string, unknown>
  released: boolean
  state: string
  /** Open deployments that include it. */
  queued: number
  /** A deployment that deletes it is queued or running. */
  leaving: boolean
}

/** The limits of its kind; null if nothing prevents the action. */
export const kindRefusal = (
  action: DeploymentAction,
  kind: Pick<DeployableKind, 'workload' | 'tasks'>,
  { name, spec }: Pick<Candidate, 'name' | 'spec'>,
  { forceEvent, task }: Partial<ServiceRequest>,
): ApiError | null => {
  const { tasks, isAlone } = tasksIn(kind, spec)
  if (action === 'RESTART' && isAlone)
    return badRequest(`Service ${name} has no instances to restart: deploy it to run it again.`)
  if (forceEvent !== undefined && taskFor(tasks, forceEvent, task) === null)
    return badRequest(`Service ${name} has nothing to run for this event.`, undefined, 'event_missing')
  return null
}

type Needs = Pick<WorkloadSpec, 'volumes' | 'ports' | 'scaling' | 'ingress'> & { artifact?: ArtifactKind }

const opens = ({ ports }: Needs, wanted: 'TCP' | 'UDP'): boolean =>
  ports.some(({ protocol, publiclyAccessible }) => publiclyAccessible && protocol === wanted)

const publicWebPorts = ({ ports }: Needs) =>
  ports.filter(({ protocol, publiclyAccessible }) => publiclyAccessible && /^(HTTP|GRPC)$/.test(protocol))

const lacks: Record<Ability, { isNeeded(of: Needs): boolean; what: string }> = {
  volumes: {
    isNeeded: ({ volumes }) => volumes.length > 0,
    what: 'does not support volumes, but the service has storage',
  },
  'tcp-ports': {
    isNeeded: (of) => opens(of, 'TCP'),
    what: 'does not publish TCP ports, but the service has a public one',
  },
  'udp-ports': {
    isNeeded: (of) => opens(of, 'UDP'),
    what: 'does not publish UDP ports, but the service has a public one',
  },
  apps: {
    isNeeded: ({ artifact }) => artifact === 'app',
    what: 'has no Argo CD, which this service needs',
  },
  charts: {
    isNeeded: ({ artifact }) => artifact === 'chart',
    what: 'cannot install charts',
  },
  grpc: {
    isNeeded: (of) => publicWebPorts(of).some(({ protocol }) => protocol === 'GRPC'),
    what: 'does not publish gRPC ports, but the service has a public one',
  },
  'path-rewrites': {
    isNeeded: (of) =>
      publicWebPorts(of).some(
        ({ publicPath, publicPathRewrite: rewrite }) => rewrite !== undefined && rewrite !== publicPath,
      ),
    what: 'does not rewrite paths, but a port of the service has a public_path_rewrite',
  },
  'network-settings': {
    isNeeded: (of) => Object.keys(of.ingress ?? {}).some((key) => key !== stickyKey) && publicWebPorts(of).length > 0,
    what: 'does not support advanced network settings, but this service sets some',
  },
  'sticky-sessions': {
    isNeeded: (of) => Object.hasOwn(of.ingress ?? {}, stickyKey) && publicWebPorts(of).length > 0,
    what: 'does not keep clients with one instance, but the service has sticky sessions',
  },
  sleep: {
    isNeeded: ({ scaling }) => scaling?.sleeps === true,
    what: 'does not let services sleep, but the service has 0 as its minimum of instances',
  },
}

/** The end of a sentence about a cluster that lacks it. */
export const abilityWords = Object.fromEntries(
  Object.entries(lacks).map(([ability, { what }]) => [ability, what]),
) as Record<Ability, string>

/** Abilities of a Kubernetes cluster that depend on its kind of ingress. */
const ofIngress: ReadonlySet<Ability> = new Set(['grpc', 'path-rewrites', 'sticky-sessions'])

/** The ability that its cluster lacks for a service; null if it lacks none. */
export const abilityRefusal = (abilities: ReadonlySet<Ability>, of: Needs): string | null => {
  const lacking = (Object.keys(lacks) as Ability[]).find((each) => !abilities.has(each) && lacks[each].isNeeded(of))
  if (lacking === undefined) return null
  if (lacking === 'charts')
    return 'A helm service needs a Kubernetes cluster, and the cluster of this environment is a Docker engine: clone it to an environment on another cluster.'
  if (lacking === 'apps')
    return 'An Argo CD app needs a Kubernetes cluster with Argo CD, and the cluster of this environment is a Docker engine: clone the environment to another cluster.'
  if (ofIngress.has(lacking))
    return `The cluster ${lacks[lacking].what}: change the service, or give the cluster an \`ingress\` that can (a gateway, or annotations for its controller).`
  return `The cluster ${lacks[lacking].what}: change the service, or clone it to an environment on another cluster.`
}

const placeRefusal = ({ abilities, sizes, limits }: Place, of: Needs): string | null =>
  abilityRefusal(abilities, of) ?? sizeRefusal(sizes, limits, of.volumes)

/** Why a service of this kind cannot be deployed to its cluster, whatever its state; null if it can. */
export const deployRefusal = async (
  kind: Pick<DeployableKind, 'refusal' | 'source' | 'workload'>,
  place: Place,
  spec: Record<string, unknown>,
  requested: Partial<ServiceRequest>,
): Promise<string | null> => {
  const { forceEvent, releaseId } = requested
  const refusal = kind.refusal?.(spec) ?? null
  // Unlocking a state runs nothing, and an older release has its image.
  if (refusal !== null || forceEvent === 'UNLOCK' || releaseId !== undefined) return refusal
  const [source, workload] = [kind.source(spec), kind.workload(spec)]
  const driver = driverOf(source)
  return (
    (driver.artifact === null ? null : placeRefusal(place, { ...workload, artifact: driver.artifact })) ??
    driver.refusal(place, { source, spec: workload, requested })
  )
}

/** What its current state does not allow; null if nothing prevents the action. */
export const stateRefusal = (
  action: DeploymentAction,
  { name, released, leaving, state, queued }: Omit<Candidate, 'spec'>,
  wholeEnvironment: boolean,
): ApiError | null => {
  if (leaving) return conflict('deletion_in_progress', `Service ${name} is being deleted.`)
  // A stop of the whole environment skips services that are stopped.
  if (action === 'STOP' && !wholeEnvironment && state === 'STOPPED' && queued === 0)
    return conflict('already_stopped', `Service ${name} is already stopped.`)
  if (action === 'RESTART' && !released)
    return conflict('not_deployed', `Service ${name} is not deployed and cannot be restarted: deploy it first.`)
  if (action === 'RESTART' && !wholeEnvironment && state === 'STOPPED' && queued === 0)
    return conflict('stopped', `Service ${name} is stopped and cannot be restarted: deploy it to start it.`)
  return null
}
