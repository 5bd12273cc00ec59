/** Wires the doctor of a running server. */
import type { Clusters } from '../clusters/clusters.ts'
import { createDoctor, type Doctor } from '../doctor/doctor.ts'
import { type EngineKind, readEngine } from '../doctor/engine.ts'
import { createEngine } from '../lib/docker/docker-engine.ts'
import { defaultConnection, defaultSocketPath } from '../lib/docker/engine-connection.ts'
import { systemClock } from '../lib/time/clock.ts'
import type { Foundation } from './foundation.ts'

export const wireDoctor = (
  foundation: Foundation,
  clusters: Clusters,
  kind: EngineKind,
): Doctor & { close(): Promise<void> } => {
  const { settings, own: router, work } = foundation
  const connection = kind === 'docker' ? defaultConnection(settings.dockerHost) : null
  const engine = connection && createEngine(connection)
  const ask = async () => (engine === null ? null : readEngine(engine))
  const doctor = createDoctor({
    ...foundation,
    router,
    work,
    clusters,
    engine: async () => ({ kind, info: await ask(), address: settings.dockerHost ?? defaultSocketPath }),
    engineRoot: async () => (connection?.kind === 'local' ? (await ask())?.DockerRootDir : undefined),
    clock: systemClock,
  })
  return { ...doctor, close: async () => engine?.close() }
}
