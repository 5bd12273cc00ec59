/** Containers that are disconnected from a network, from the engine's events: also at each of their ends. */
import type { Engine } from '../../../lib/docker/docker-engine.ts'
import type { Keep } from '../../../lib/foreign-text/keep.ts'
import { readEvents } from '../events.ts'

interface WireEvent {
  Actor?: { Attributes?: { container?: string } }
}

const keep: Keep = { Actor: { Attributes: { container: true } } }

/** Until aborted; rejects when the engine's events end. */
export const watchDisconnects = async (
  engine: Pick<Engine, 'stream'>,
  onDisconnect: (containerId: string) => void,
  signal: AbortSignal,
): Promise<void> => {
  // These events cannot be filtered by our labels.
  const filters = JSON.stringify({ type: ['network'], event: ['disconnect'] })
  const stream = await engine.stream('GET', '/events', { query: { filters }, signal })
  for await (const { Actor } of readEvents<WireEvent>(stream, keep)) {
    const id = Actor?.Attributes?.container
    if (typeof id === 'string') onDisconnect(id)
  }
  throw new Error('the stream of network events ended')
}
