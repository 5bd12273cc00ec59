/** What a runtime is asked to bring about for a service that runs, or is stopped. */
import type { Desired, Running, Workload } from '../../runtimes/runtime.ts'
import type { DeploymentParts } from '../parts.ts'
import { policyOf } from '../traffic/ingress-settings.ts'
import { readChartExposure, readExposure } from '../traffic/routes.ts'

type Exposed = { parts: Pick<DeploymentParts, 'database'>; service: { id: string } }

export const runningAs = ({ parts, service }: Exposed, workload: Workload): Running => ({
  state: 'running',
  workload,
  exposure: () =>
    workload.chart === undefined
      ? readExposure(parts.database, service.id, workload.ports, policyOf(workload.ingress, workload.env.reveal()))
      : readChartExposure(parts.database, service.id),
})

export const stoppedAs = ({ parts, service }: Exposed, graceMs: number): Desired => ({
  state: 'stopped',
  exposure: () => readExposure(parts.database, service.id, []),
  graceMs,
})
