/**
 * Claims of published ports. A service has none before it is deployed: its configuration only names them, and the
 * request for a deployment claims them for it, within the limit of its organization. A port that the server chose is
 * replaced there if another service has claimed it meanwhile; one that a user chose is refused.
 */
import { type Limits, limitSentence } from '../../limits/limits.ts'
import { readPorts, refuseManyPorts } from '../../limits/port-room.ts'
import type { Queryable } from '../../store/database.ts'
import { claimPorts, type PublishedPort } from './published-ports.ts'

/** Both ends included. */
interface PortRange {
  first: number
  last: number
}

export interface PortRoom {
  range: PortRange
  /** Ports of this server itself. */
  own: readonly number[]
  limits: Pick<Limits, 'ports'>
}

interface OwnPorts {
  port: number
  routerPort: number
  routerTlsPort?: number | undefined
  databasePort?: number | undefined
}

/** Those that this server uses itself. */
export const ownPortsOf = ({ port, routerPort, routerTlsPort, databasePort }: OwnPorts): number[] =>
  [port, routerPort, routerTlsPort, databasePort].filter((each) => each !== undefined)

type Port = Pick<PublishedPort, 'protocol' | 'port'>

interface PortInSpec {
  protocol: string
  external_port?: number
  publicly_accessible?: boolean
}

interface Candidate {
  id: string
  spec: Record<string, unknown>
}

const drawSql = `select d.port from (
    select $2::integer + (nextval('outside_port_draw') % ($3::integer - $2::integer + 1))::integer as port
    from generate_series($2::integer, $3::integer)) d
  where d.port <> all($4::integer[])
    and not exists (select from outside_port o where o.protocol = $1 and o.port = d.port)
  limit 1`

/** A free port of the range that is not among `taken`; null if there is none. */
export const drawPort = async (
  db: Queryable,
  protocol: string,
  { first, last }: PortRange,
  taken: readonly number[],
): Promise<number | null> =>
  (await db.query<{ port: number }>(drawSql, [protocol, first, last, taken]))[0]?.port ?? null

export const noFreePort = ({ first, last }: PortRange): string =>
  `All ports from ${first} to ${last} (SLIPWAY_PORT_RANGE) are in use: delete a service that has one of them.`

/** The mark that a configuration stores for a port chosen by the server. */
export const drawnKey = ({ protocol, port }: { protocol: string; port: number }): string => `${protocol} ${port}`

const drawnIn = ({ drawn_ports: drawn }: Record<string, unknown>): ReadonlySet<string> =>
  new Set(Array.isArray(drawn) ? (drawn as string[]) : [])

const portsIn = ({ ports }: Record<string, unknown>): PortInSpec[] => (Array.isArray(ports) ? ports : [])

const isPublished = ({ protocol, publicly_accessible: open }: PortInSpec): boolean =>
  open === true && (protocol === 'TCP' || protocol === 'UDP')

const publishedIn = (spec: Record<string, unknown>): Port[] =>
  portsIn(spec).flatMap((each) =>
    isPublished(each) ? [{ protocol: each.protocol as Port['protocol'], port: each.external_port ?? 0 }] : [],
  )

const isAmong = (all: readonly Port[], { protocol, port }: Port): boolean =>
  all.some((each) => each.protocol === protocol && each.port === port)

/** Those of these ports that other services have. */
export const readTaken = (db: Queryable, serviceId: string, ports: readonly Port[]): Promise<Port[]> =>
  ports.length === 0
    ? Promise.resolve([])
    : db.query<Port>(
        `select protocol, port from outside_port
         where service_id <> $1 and (protocol, port) in (
           select w.protocol, w.port from json_to_recordset($2::json) as w (protocol text, port integer))`,
        [serviceId, JSON.stringify(ports)],
      )

const takenWords = ({ protocol, port }: Port): string =>
  `The ${protocol} port ${port} is used by another service: choose another external_port.`

/** Replaces the number of a port chosen by the server. */
const replaceDrawn = async (tx: Queryable, { id, spec }: Candidate, old: Port, port: number): Promise<void> => {
  const ports = portsIn(spec).map((each) =>
    isPublished(each) && each.protocol === old.protocol && each.external_port === old.port
      ? { ...each, external_port: port }
      : each,
  )
  const drawn = [...drawnIn(spec)].filter((key) => key !== drawnKey(old))
  Object.assign(spec, { ports, drawn_ports: [...drawn, drawnKey({ ...old, port })] })
  await tx.query('update node set spec = spec || $2::jsonb where id = $1', [
    id,
    JSON.stringify({ ports: spec.ports, drawn_ports: spec.drawn_ports }),
  ])
}

/** Claims another port in place of one chosen by the server; a sentence if there is none. */
const redraw = async (tx: Queryable, room: PortRoom, service: Candidate, lost: Port): Promise<string | null> => {
  for (;;) {
    const taken = [...room.own, ...publishedIn(service.spec).map(({ port }) => port)]
    const port = await drawPort(tx, lost.protocol, room.range, taken)
    if (port === null) return noFreePort(room.range)
    const held = await claimPorts(tx, service.id, [{ protocol: lost.protocol, port }])
    if (held.length === 0) continue
    await replaceDrawn(tx, service, lost, port)
    return null
  }
}

/** Claims the ports in the configuration of a service; a sentence if it cannot be deployed with them. */
const claimOf = async (tx: Queryable, room: PortRoom, service: Candidate): Promise<string | null> => {
  const wanted = publishedIn(service.spec)
  const taken = await readTaken(tx, service.id, wanted)
  const drawn = drawnIn(service.spec)
  const refused = taken.find((port) => !drawn.has(drawnKey(port)))
  if (refused !== undefined) return takenWords(refused)
  const held = await claimPorts(tx, service.id, wanted)
  for (const lost of wanted.filter((port) => !isAmong(held, port))) {
    const refusal = drawn.has(drawnKey(lost)) ? await redraw(tx, room, service, lost) : takenWords(lost)
    if (refusal !== null) return refusal
  }
  return null
}

/** Claims published ports for a deploy. Returns why services cannot have theirs, by id; 409 if there are too many. */
export const claimForDeploy = async (
  tx: Queryable,
  room: PortRoom,
  organizationId: string,
  services: readonly Candidate[],
): Promise<Map<string, string>> => {
  const refusals = new Map<string, string>()
  const publishing = services.filter(({ spec }) => publishedIn(spec).length > 0)
  if (publishing.length === 0) return refusals
  const before = await readPorts(tx, organizationId)
  for (const service of publishing) {
    const refusal = await claimOf(tx, room, service)
    if (refusal !== null) refusals.set(service.id, refusal)
  }
  await refuseManyPorts(tx, room.limits, organizationId, before)
  return refusals
}

/** Why a service could not be deployed with its ports now; null if it could. Claims nothing. */
export const portRefusal = async (
  db: Queryable,
  { range, own, limits: { ports: most } }: PortRoom,
  organizationId: string,
  { id, spec }: Candidate,
): Promise<string | null> => {
  const wanted = publishedIn(spec)
  if (wanted.length === 0) return null
  const taken = await readTaken(db, id, wanted)
  const drawn = drawnIn(spec)
  const refused = taken.find((port) => !drawn.has(drawnKey(port)))
  if (refused !== undefined) return takenWords(refused)
  for (const { protocol } of taken) if ((await drawPort(db, protocol, range, own)) === null) return noFreePort(range)
  const held = await db.query<Port>('select protocol, port from outside_port where service_id = $1', [id])
  const fresh = wanted.filter((port) => !isAmong(held, port)).length
  const total = (await readPorts(db, organizationId)) + fresh
  return most > 0 && fresh > 0 && total > most ? limitSentence('ports', most, total) : null
}
