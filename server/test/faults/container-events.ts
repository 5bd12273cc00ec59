/** The engine's events about a service's containers, as they happen. */
import { createEngine } from '../../src/lib/docker/docker-engine.ts'

export interface ContainerEvent {
  action: string
  container: string
  atMs: number
}

interface WireEvent {
  Action: string
  Actor: { ID: string }
  timeNano: number
}

export interface Following {
  seen: ContainerEvent[]
  close(): Promise<void>
}

/** Calls back with each event from now on. */
export const followContainers = async (
  serviceId: string,
  onEvent: (event: ContainerEvent) => void = () => {},
): Promise<Following> => {
  const engine = createEngine()
  const filters = JSON.stringify({ type: ['container'], label: [`slipway.service=${serviceId}`] })
  const stream = await engine.stream('GET', '/events', { query: { filters } })
  const seen: ContainerEvent[] = []
  let rest = ''
  stream.setEncoding('utf8').on('error', () => {})
  stream.on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop()!
    for (const line of lines.filter((each) => each.trim() !== '')) {
      const { Action, Actor, timeNano } = JSON.parse(line) as WireEvent
      const event = { action: Action, container: Actor.ID, atMs: timeNano / 1e6 }
      seen.push(event)
      onEvent(event)
    }
  })
  return { seen, close: () => engine.close() }
}
