/** The ports of the API, of the router and of services: whether they answer, and who else has them. */
import { connect } from 'node:net'
import { failed, listed, topic, warning } from '../lib/finding.ts'
import type { Queryable } from '../store/database.ts'
import type { Ports } from './kernel.ts'
import { readListeningPorts } from './proc.ts'

interface Entrance {
  name: string
  host: string
  port: number
  /** What sets it. */
  setting: string
}

export interface PortFacts {
  entrances: readonly (Entrance & { answers: boolean })[]
  range: Ports
  /** Ports of the range that programs listen on which are not services of this server. */
  foreign: readonly number[]
}

interface PortSettings {
  host: string
  port: number
  routerHost: string
  routerPort: number
  routerTlsPort?: number | undefined
  portRange: Ports
}

const answerMs = 2000

/** An address that stands for all of a machine is reached at its loopback. */
const reachable = (host: string): string => (host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host)

export const answersAt = (host: string, port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect({ host: reachable(host), port, timeout: answerMs })
    const end = (answers: boolean) => () => {
      socket.destroy()
      resolve(answers)
    }
    socket.once('connect', end(true)).once('error', end(false)).once('timeout', end(false))
  })

export const entrancesOf = ({ host, port, routerHost, routerPort, routerTlsPort }: PortSettings): Entrance[] => [
  { name: 'the API', host, port, setting: 'SLIPWAY_PORT' },
  { name: 'the router', host: routerHost, port: routerPort, setting: 'SLIPWAY_ROUTER_PORT' },
  ...(routerTlsPort === undefined
    ? []
    : [{ name: 'HTTPS', host: routerHost, port: routerTlsPort, setting: 'SLIPWAY_ROUTER_TLS_PORT' }]),
]

export const readPorts = async (database: Queryable, settings: PortSettings): Promise<PortFacts> => {
  const { portRange: range } = settings
  const [entrances, listening, claimed] = await Promise.all([
    Promise.all(
      entrancesOf(settings).map(async (each) => ({ ...each, answers: await answersAt(each.host, each.port) })),
    ),
    readListeningPorts(),
    database.query<{ port: number }>('select port from outside_port where port between $1 and $2', [
      range.first,
      range.last,
    ]),
  ])
  const own = new Set([...claimed.map(({ port }) => port), ...entrances.map(({ port }) => port)])
  const foreign = listening.filter((port) => port >= range.first && port <= range.last && !own.has(port))
  return { entrances, range, foreign }
}

const ports = topic('ports', 'Ports')

export const judgePorts = ({ entrances, range, foreign }: PortFacts) => {
  const silent = entrances
    .filter(({ answers }) => !answers)
    .map(({ name, host, port, setting }) =>
      failed(
        `Nothing answers at ${host}:${port}, where ${name} should listen.`,
        `Restart Slipway; if another program has the port, set ${setting}.`,
      ),
    )
  const taken =
    foreign.length === 0
      ? []
      : [
          warning(
            `Other programs listen on ports of SLIPWAY_PORT_RANGE: ${listed(foreign)}. A service that gets one of them cannot be reached.`,
            'Stop those programs (`ss -ltnp`), or choose another SLIPWAY_PORT_RANGE.',
          ),
        ]
  return ports.judge(
    [...silent, ...taken],
    `These answer from this machine: ${listed(entrances.map(({ name, port }) => `${name} (${port})`))}. The range ${range.first}-${range.last} is free for services.`,
  )
}
