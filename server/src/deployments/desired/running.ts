/** What a runtime is asked to bring about for a service that runs, or is stopped. */
import type { Exposure } from '../../runtimes/ingress.ts'
import type { Artifact, ArtifactKind, Desired, Running } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import type { DeploymentParts } from '../parts.ts'
import { policyOf } from '../traffic/ingress-settings.ts'
import { readChartExposure, readExposure } from '../traffic/routes.ts'

type Exposed = { parts: Pick<DeploymentParts, 'database'>; service: { id: string } }

type ReadExposure<Of> = (db: Queryable, serviceId: string, artifact: Of) => Promise<Exposure>

const exposures: { [Kind in ArtifactKind]: ReadExposure<Extract<Artifact, { artifact: Kind }>> } = {
  image: (db, id, { ports, ingress, env }) => readExposure(db, id, ports, policyOf(ingress, env.reveal())),
  chart: readChartExposure,
  app: (db, id) => readExposure(db, id, []),
}

export const runningAs = <Of extends Artifact>({ parts, service }: Exposed, workload: Of): Running<Of> => ({
  state: 'running',
  workload,
  exposure: () => (exposures[workload.artifact] as ReadExposure<Of>)(parts.database, service.id, workload),
})

export const stoppedAs = ({ parts, service }: Exposed, graceMs: number): Desired => ({
  state: 'stopped',
  exposure: () => readExposure(parts.database, service.id, []),
  graceMs,
})
