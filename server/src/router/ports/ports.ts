/** The ports of stream routes: opened before a change becomes active, closed when no route needs them any longer. */
import { PortUnavailable, type StreamRoute } from '../router.ts'

export interface OpenPort {
  /** Stops accepting and frees the port. Open connections continue. */
  close(): void
}

export interface Ports {
  /** Opens the missing ports of these routes. Rejects with `PortUnavailable`, and then opens none. */
  open(routes: readonly StreamRoute[]): Promise<void>
  /** Closes the ports that none of these needs. Needed ports that are not open are retried every second. */
  retain(routes: readonly StreamRoute[]): void
  /** Retries needed ports that are not open once, now. Never rejects. */
  openMissing(): Promise<void>
  close(): void
}

type Opener = (port: number) => Promise<OpenPort>

const retryMs = 1_000

const reasons: Record<string, string> = {
  EADDRINUSE: 'it is in use on this machine',
  EACCES: 'the router does not have the required privilege',
}

const refusal = ({ port, protocol }: StreamRoute, error: unknown): PortUnavailable => {
  const { code = '', message } = error as NodeJS.ErrnoException
  return new PortUnavailable(`the router cannot open the ${protocol} port ${port}: ${reasons[code] ?? message}`, port)
}

const keyOf = ({ protocol, port }: StreamRoute): string => `${protocol} ${port}`

export const createPorts = (
  openers: Record<StreamRoute['protocol'], Opener>,
  report: (message: string) => void,
): Ports => {
  const opened = new Map<string, OpenPort>()
  let wanted = new Map<string, StreamRoute>()
  const told = new Set<string>()
  let timer: NodeJS.Timeout | undefined
  let isClosed = false
  let turn: Promise<unknown> = Promise.resolve()

  /** One at a time, so that no two calls open the same port. */
  const inTurn = <Result>(work: () => Promise<Result>): Promise<Result> => {
    const result = turn.then(work)
    turn = result.catch(() => {})
    return result
  }

  const closeOne = (key: string): void => {
    opened.get(key)?.close()
    opened.delete(key)
  }

  const openOne = async (route: StreamRoute): Promise<void> => {
    const port = await openers[route.protocol](route.port).catch((error: unknown) => {
      throw refusal(route, error)
    })
    told.delete(keyOf(route))
    if (isClosed) port.close()
    else opened.set(keyOf(route), port)
  }

  const openAll = async (routes: readonly StreamRoute[]): Promise<void> => {
    const fresh: string[] = []
    try {
      for (const route of routes) {
        if (opened.has(keyOf(route))) continue
        await openOne(route)
        fresh.push(keyOf(route))
      }
    } catch (error) {
      fresh.forEach(closeOne)
      throw error
    }
  }

  const tellOnce = (route: StreamRoute, error: Error): void => {
    if (!told.has(keyOf(route))) report(error.message)
    told.add(keyOf(route))
  }

  const missing = (): StreamRoute[] => [...wanted.values()].filter((route) => !opened.has(keyOf(route)))

  const tryMissing = async (): Promise<void> => {
    for (const route of missing()) {
      await openOne(route).catch((error: Error) => tellOnce(route, error))
      if (!wanted.has(keyOf(route))) closeOne(keyOf(route))
    }
    retryLater()
  }

  const retryLater = (): void => {
    clearTimeout(timer)
    if (!isClosed && missing().length > 0) timer = setTimeout(() => inTurn(tryMissing), retryMs).unref()
  }

  return {
    open: (routes) => inTurn(() => openAll(routes)),
    retain(routes) {
      wanted = new Map(routes.map((route) => [keyOf(route), route]))
      for (const key of [...opened.keys()]) if (!wanted.has(key)) closeOne(key)
      retryLater()
    },
    openMissing: () => inTurn(tryMissing),
    close() {
      isClosed = true
      clearTimeout(timer)
      for (const key of [...opened.keys()]) closeOne(key)
    },
  }
}
