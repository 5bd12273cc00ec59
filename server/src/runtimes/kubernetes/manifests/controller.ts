/** A workload → what keeps its instances. Pure. */
import type { Workload } from '../../runtime.ts'
import {
  idLabels,
  instanceSelector,
  labels,
  type Manifest,
  nameOf,
  namespaceOf,
  type Place,
  recordOf,
} from './describe.ts'
import { templateOf, usualPort } from './pod.ts'

/** How many are wanted belongs to the autoscaler, where there is one. */
export const scalesItself = ({ scaling }: Pick<Workload, 'scaling'>): boolean =>
  scaling !== undefined && scaling.max > Math.max(1, scaling.min)

/** With none beyond those that are wanted, and none less, nothing could ever be replaced. */
const surgeOf = ({ surgePercent = 25 }: Workload): string => `${Math.max(1, surgePercent)}%`

/** What keeps the instances of a version: with volumes, one that never has two of them at one volume. */
export const describeController = (workload: Workload, place: Place, pullSecrets: readonly string[]): Manifest => {
  const common = {
    ...(scalesItself(workload) ? {} : { replicas: workload.instances }),
    revisionHistoryLimit: 2,
    // What asks nothing of its instances at least sees them stay up.
    minReadySeconds: workload.readiness === null && usualPort(workload) === undefined ? 2 : 0,
    selector: { matchLabels: instanceSelector(workload) },
    template: templateOf(workload, place, pullSecrets),
  }
  const metadata = {
    name: nameOf(workload.serviceId),
    namespace: namespaceOf(workload.environmentId),
    labels: { ...idLabels(place, workload), [labels.revision]: workload.revision },
    ...recordOf(workload),
  }
  if (workload.volumes.length > 0)
    return {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata,
      spec: {
        ...common,
        serviceName: metadata.name,
        podManagementPolicy: 'Parallel',
        updateStrategy: { type: 'RollingUpdate' },
      },
    }
  const strategy =
    workload.recreate === true
      ? { type: 'Recreate' }
      : { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: surgeOf(workload) } }
  return { apiVersion: 'apps/v1', kind: 'Deployment', metadata, spec: { ...common, strategy } }
}
