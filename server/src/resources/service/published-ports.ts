/**
 * Public TCP and UDP ports: each is published on a port of this machine, the requested one or a free one of the
 * server's range. Only ports of that range and those that the operator lists can be requested. A configuration only
 * names them: the first deployment claims them, and no two services share one.
 */
import type { Context } from '../../api/operations/operation.ts'
import type { Change, Spec } from '../../api/operations/resource-writes.ts'
import { drawnKey, drawPort, noFreePort, ownPortsOf, readTaken } from '../../deployments/traffic/port-claims.ts'
import { ApiError, conflict, invalidField } from '../../lib/errors.ts'
import { isPublished, type Port } from './parts.ts'

const fieldOf = (index: number): string => `/ports/${index}/external_port`

type Limits = Pick<Context['parts']['settings'], 'portRange' | 'extraPorts'>

const textOf = ({ first, last }: Limits['portRange']): string => (first === last ? `${first}` : `${first}-${last}`)

const checkAllowed = (port: number, field: string, { portRange, extraPorts }: Limits): void => {
  if ([portRange, ...extraPorts].some(({ first, last }) => first <= port && port <= last)) return
  const extra = extraPorts.length === 0 ? 'which is empty' : extraPorts.map(textOf).join(', ')
  throw invalidField(
    field,
    `must be a port of SLIPWAY_PORT_RANGE (${textOf(portRange)}) or of SLIPWAY_EXTRA_PORTS (${extra}), which the operator of this server sets: choose another port`,
  )
}

const checkNamed = (ports: readonly Port[], own: readonly number[], limits: Limits | null): void => {
  const seen = new Set<string>()
  for (const [index, port] of ports.entries()) {
    const { protocol, external_port: number } = port
    if (!isPublished(port) || number === 0) continue
    if (protocol === 'TCP' && own.includes(number))
      throw invalidField(fieldOf(index), 'is used by this server itself: choose another port')
    if (limits !== null) checkAllowed(number, fieldOf(index), limits)
    const key = `${protocol} ${number}`
    if (seen.has(key)) throw invalidField(fieldOf(index), 'is used twice')
    seen.add(key)
  }
}

const taken = (index: number): ApiError => {
  const message = 'is already used by another service'
  const field = fieldOf(index)
  return new ApiError(409, 'port_taken', `ports.${index}.external_port: ${message}`, { details: [{ field, message }] })
}

interface Chosen {
  ports: Port[]
  /** The ports chosen by the server: a deployment may replace those. */
  drawn_ports: string[]
}

const keyOf = ({ protocol, external_port: port }: Port): string => drawnKey({ protocol, port })

/**
 * The ports of a configuration with a published port for each that needs one: a free one now, which the first
 * deployment claims. `named` says whether a user can choose them: ports from before the current limits keep working, but
 * cannot be written again.
 */
export const choosePorts = async (
  { parts }: Context,
  { db, id, previous }: Pick<Change<{ drawn_ports?: string[] }>, 'db' | 'id' | 'previous'>,
  ports: readonly Port[],
  { named }: { named: boolean },
): Promise<Chosen> => {
  const own = ownPortsOf(parts.settings)
  checkNamed(ports, own, named ? parts.settings : null)
  const before = new Set(previous?.spec.drawn_ports ?? [])
  const asked = ports.flatMap(({ protocol, external_port: port }) =>
    protocol === 'TCP' || protocol === 'UDP' ? [{ protocol, port }] : [],
  )
  const held = new Set((await readTaken(db, id, asked)).map(drawnKey))
  const numbers = [...own, ...ports.map((port) => port.external_port)]
  const chosen: Port[] = []
  const drawnPorts: string[] = []
  for (const [index, port] of ports.entries()) {
    const isHeld = isPublished(port) && held.has(keyOf(port))
    if (isHeld && !before.has(keyOf(port))) throw taken(index)
    const isDrawn = isPublished(port) && (port.external_port === 0 || isHeld)
    const number = isDrawn ? await drawPort(db, port.protocol, parts.settings.portRange, numbers) : port.external_port
    if (number === null) throw conflict('no_free_port', noFreePort(parts.settings.portRange))
    const complete = { ...port, external_port: number }
    numbers.push(number)
    if (isDrawn || (isPublished(port) && before.has(keyOf(port)))) drawnPorts.push(keyOf(complete))
    chosen.push(complete)
  }
  return { ports: chosen, drawn_ports: drawnPorts }
}

/** The configuration for another service, which gets its own published ports. */
export const withoutPublishedPorts = (spec: Spec): Spec => {
  if (!Array.isArray(spec.ports)) return spec
  const ports = (spec.ports as Port[]).map((port) => {
    const { external_port: _, ...rest } = port
    return isPublished(port) ? rest : port
  })
  const { drawn_ports: _, ...others } = spec
  return { ...others, ports }
}
