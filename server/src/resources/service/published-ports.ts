/**
 * Public TCP and UDP ports: each is published on a port of this machine, the requested one or a free one of the
 * server's range. Only ports of that range and those that the operator lists can be requested. No two services share
 * one.
 */
import type { Context } from '../../api/operations/operation.ts'
import type { Change, Spec } from '../../api/operations/resource-writes.ts'
import { claimPorts, type PublishedPort, releaseUnusedPorts } from '../../deployments/traffic/published-ports.ts'
import { ApiError, conflict, invalidField } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { isPublished, type Port } from './parts.ts'

type Outside = Port & { protocol: PublishedPort['protocol'] }

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

const drawSql = `select d.port from (
    select $2::integer + (nextval('outside_port_draw') % ($3::integer - $2::integer + 1))::integer as port
    from generate_series($2::integer, $3::integer)) d
  where d.port <> all($4::integer[])
    and not exists (select from outside_port o where o.protocol = $1 and o.port = d.port)
  limit 1`

/**
 * The ports of a configuration with an published port for each that needs one. `named` says whether a user can choose
 * them: ports from before the current limits keep working, but cannot be written again.
 */
export const choosePorts = async (
  { parts }: Context,
  { db }: Change,
  ports: readonly Port[],
  { named }: { named: boolean },
): Promise<Port[]> => {
  const { port: apiPort, routerPort, routerTlsPort, databasePort, portRange } = parts.settings
  const own = [apiPort, routerPort, routerTlsPort, databasePort].filter((port) => port !== undefined)
  checkNamed(ports, own, named ? parts.settings : null)
  const taken = [...own, ...ports.map((port) => port.external_port)]
  const chosen: Port[] = []
  for (const port of ports) {
    const { first, last } = portRange
    const values = [port.protocol, first, last, taken]
    const [drawn] =
      isPublished(port) && port.external_port === 0 ? await db.query<{ port: number }>(drawSql, values) : [null]
    if (drawn === undefined)
      throw conflict(
        'no_free_port',
        `All ports from ${first} to ${last} (SLIPWAY_PORT_RANGE) are in use: delete a service that has one of them.`,
      )
    chosen.push(drawn === null ? port : { ...port, external_port: drawn.port })
  }
  return chosen
}

const taken = (index: number): ApiError => {
  const message = 'is already used by another service'
  const field = fieldOf(index)
  return new ApiError(409, 'port_taken', `ports.${index}.external_port: ${message}`, { details: [{ field, message }] })
}

/** Reserves the published ports of a service, and releases those it no longer needs. */
export const writePorts = async (tx: Queryable, serviceId: string, ports: readonly Port[]): Promise<void> => {
  const wanted = ports.flatMap((port, index) => (isPublished(port) ? [{ port: port as Outside, index }] : []))
  const held = await claimPorts(
    tx,
    serviceId,
    wanted.map(({ port: { protocol, external_port: port } }) => ({ protocol, port })),
  )
  for (const { port, index } of wanted)
    if (!held.some((one) => one.protocol === port.protocol && one.port === port.external_port)) throw taken(index)
  await releaseUnusedPorts(tx, serviceId)
}

/** The configuration for another service, which gets its own published ports. */
export const withoutPublishedPorts = (spec: Spec): Spec => {
  if (!Array.isArray(spec.ports)) return spec
  const ports = (spec.ports as Port[]).map((port) => {
    const { external_port: _, ...rest } = port
    return isPublished(port) ? rest : port
  })
  return { ...spec, ports }
}
