/** Docker engines of other machines, which serve clusters. */
import { createEngine } from '../lib/docker/docker-engine.ts'
import type { EngineConnection } from '../lib/docker/engine-connection.ts'
import type { Pin } from '../lib/net/pinned-connector.ts'
import type { EngineFacts, Engines } from './engines.ts'

interface DockerEnginesOptions {
  /** The engine of the default cluster; null if that is not a Docker engine. */
  own: EngineConnection | null
  pin: Pin
  sockets: readonly string[]
  open: Engines['open']
}

const deadlineMs = 5000

/** Bounds a text reported by an untrusted engine. */
const word = (value: unknown): string => String(value ?? '').slice(0, 100)

const identify = async (connection: EngineConnection, signal: AbortSignal): Promise<EngineFacts> => {
  const engine = createEngine(connection)
  try {
    const options = { deadlineMs, signal }
    const [version, info] = await Promise.all([
      engine.call<{ Version: string; ApiVersion: string; Os: string; Arch: string }>('GET', '/version', options),
      engine.call<{ ID: string }>('GET', '/info', options),
    ])
    return {
      id: word(info.ID),
      version: word(version.Version),
      apiVersion: word(version.ApiVersion),
      os: word(version.Os),
      architecture: word(version.Arch),
    }
  } finally {
    await engine.close()
  }
}

export const createDockerEngines = ({ own, pin, sockets, open }: DockerEnginesOptions): Engines => ({
  identify,
  ownId: async (signal) => (own === null ? null : (await identify(own, signal)).id),
  open,
  pin,
  sockets,
})
