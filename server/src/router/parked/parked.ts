/**
 * Parks requests to sleeping services until the table has a target for them, and notifies listeners that can wake the
 * service.
 *
 * Promises: a parked request is not read; its place is free again when its client leaves; each is answered, after
 * `longestMs` at the latest; a crowd at one service takes no place from others, and does not keep the process from
 * serving them. Does not know: the form of a request, and what its service does.
 */
import type { PageName } from '../exchange/pages.ts'
import type { AnyRoute } from '../router.ts'

export interface Waiting {
  /** Continues the request with the current table; its place is free when it calls `leave`. */
  resume(): void
  refuse(page: Extract<PageName, 'waking' | 'crowded'>): void
}

export interface Place {
  /** The client has left, or was answered. Any number of times. */
  leave(): void
}

export interface Parked {
  /**
   * Null if there is no place. `bytes`: about as much as it keeps in memory; `party`: whose places its service shares.
   */
  take(serviceId: string, bytes: number, waiting: Waiting, party?: string): Place | null
  /** The table has changed: requests that wait for a service that is awake now continue. */
  settle(routes: readonly AnyRoute[]): void
  /** Calls `tell` with each service that requests wait for: at once, and again as long as they wait. */
  listen(tell: (serviceId: string) => void): () => void
  /** Nothing can wake services any longer: all requests are refused and may be retried. */
  end(): void
}

export interface ParkLimits {
  perService: number
  total: number
  bytes: number
  longestMs: number
  /**
   * Requests of one service that continue at once and have no answer yet: a program that has just started has a short
   * queue.
   */
  unanswered: number
}

export const usualParkLimits: ParkLimits = {
  ...{ perService: 2000, total: 8000, bytes: 64 << 20 },
  ...{ longestMs: 60_000, unanswered: 32 },
}

/** A request that takes longer no longer delays the others. */
const patienceMs = 250
const tellAgainMs = 5000
/** As much as the buffers of a connection take. */
const unreadBytes = 128 << 10
/** Answers in a row, before others have their turn. */
const atOnce = 32

/**
 * The memory of a parked request: its head, and the part of a body that is read before it is asked for. -1: a body of
 * unknown length.
 */
export const parkedBytes = (headBytes: number, bodyLength: number): number =>
  headBytes + (bodyLength < 0 ? unreadBytes : Math.min(unreadBytes, bodyLength))

interface Held extends Place {
  bytes: number
  waiting: Waiting
  timer: NodeJS.Timeout
}

interface Crowd {
  serviceId: string
  party: string
  held: Set<Held>
  bytes: number
  unanswered: number
  /** Its requests continue, in turn. */
  isOpen: boolean
  telling?: NodeJS.Timeout
}

/** Runs a few at a time, so that the process serves other requests in between. */
const createTurns = (report: (message: string) => void): ((turn: () => void) => void) => {
  const turns: (() => void)[] = []
  let isDue = false
  const schedule = (): void => {
    if (!isDue) setImmediate(take)
    isDue = true
  }
  const take = (): void => {
    isDue = false
    for (const turn of turns.splice(0, atOnce)) {
      try {
        turn()
      } catch (error) {
        report(`a parked request could not continue: ${String(error)}`)
      }
    }
    if (turns.length > 0) schedule()
  }
  return (turn) => {
    turns.push(turn)
    schedule()
  }
}

/** A limited resource: how much of it a crowd has, and how much one parked request. */
interface Measure {
  has(crowd: Crowd): number
  of(each: Pick<Held, 'bytes'>): number
}

const counted: Measure = { has: ({ held }) => held.size, of: () => 1 }
const weighed: Measure = { has: ({ bytes }) => bytes, of: ({ bytes }) => bytes }

/**
 * The group that gives up a waiting request for one more of `crowd`: the largest group of the party that has the most,
 * unless that party would then have less than the other one. Within one party, groups are compared in the same way.
 * Null: none.
 */
const giverFor = (
  crowds: ReadonlyMap<string, Crowd>,
  crowd: Crowd,
  bytes: number,
  { has, of }: Measure,
): Crowd | null => {
  const shares = new Map([[crowd.party, 0]])
  for (const each of crowds.values()) shares.set(each.party, (shares.get(each.party) ?? 0) + has(each))
  const [party, share] = [...shares].reduce((a, b) => (b[1] > a[1] ? b : a))
  const isOwn = party === crowd.party
  const rivals = [...crowds.values()].filter((each) => each.party === party)
  const largest = rivals.reduce((a, b) => (has(b) > has(a) ? b : a), isOwn ? crowd : rivals[0]!)
  const last = [...largest.held].at(-1)
  const [given, taken] = isOwn ? [has(largest), has(crowd)] : [share, shares.get(crowd.party)!]
  return last === undefined || given - of(last) < taken + of({ bytes }) ? null : largest
}

export const createParked = (report: (message: string) => void, limits = usualParkLimits): Parked => {
  const crowds = new Map<string, Crowd>()
  const listeners = new Set<(serviceId: string) => void>()
  let total = 0
  let bytes = 0
  const inTurn = createTurns(report)

  const isWaiting = ({ isOpen, held }: Crowd): boolean => !isOpen && held.size > 0
  const tell = (crowd: Crowd): void => {
    clearTimeout(crowd.telling)
    for (const listener of listeners) listener(crowd.serviceId)
    crowd.telling = setTimeout(() => isWaiting(crowd) && tell(crowd), tellAgainMs).unref()
  }
  const forgetIfEmpty = (crowd: Crowd): void => {
    if (crowd.held.size > 0 || crowd.unanswered > 0) return
    clearTimeout(crowd.telling)
    crowds.delete(crowd.serviceId)
  }

  /** False if it no longer waited. */
  const remove = (crowd: Crowd, held: Held): boolean => {
    if (!crowd.held.delete(held)) return false
    clearTimeout(held.timer)
    total--
    bytes -= held.bytes
    crowd.bytes -= held.bytes
    return true
  }
  const refuse = (crowd: Crowd, held: Held, page: 'waking' | 'crowded'): void => {
    if (!remove(crowd, held)) return
    inTurn(() => held.waiting.refuse(page))
    forgetIfEmpty(crowd)
  }
  const goOn = (crowd: Crowd): void => {
    for (const held of crowd.held) {
      if (!crowd.isOpen || crowd.unanswered >= limits.unanswered) return
      remove(crowd, held)
      crowd.unanswered++
      let isOver = false
      held.leave = () => {
        if (isOver) return
        isOver = true
        clearTimeout(patience)
        crowd.unanswered--
        forgetIfEmpty(crowd)
        if (crowd.held.size > 0) inTurn(() => goOn(crowd))
      }
      const patience = setTimeout(() => held.leave(), patienceMs)
      inTurn(() => held.waiting.resume())
    }
  }

  const makeRoom = (crowd: Crowd, size: number): boolean => {
    while (total >= limits.total || bytes + size > limits.bytes) {
      const measure = total >= limits.total ? counted : weighed
      const largest = giverFor(crowds, crowd, size, measure)
      if (largest === null) return false
      refuse(largest, [...largest.held].at(-1)!, 'crowded')
    }
    return true
  }
  const crowdOf = (serviceId: string, party: string): Crowd => {
    const crowd = crowds.get(serviceId) ?? { serviceId, party, held: new Set(), bytes: 0, unanswered: 0, isOpen: false }
    crowds.set(serviceId, crowd)
    // The newcomer has seen that it sleeps.
    crowd.isOpen = false
    return crowd
  }

  return {
    take(serviceId, size, waiting, party = serviceId) {
      const crowd = crowdOf(serviceId, party)
      if (crowd.held.size >= limits.perService || size > limits.bytes || !makeRoom(crowd, size)) {
        forgetIfEmpty(crowd)
        return null
      }
      const held: Held = {
        bytes: size,
        waiting,
        timer: setTimeout(() => refuse(crowd, held, 'waking'), limits.longestMs),
        leave: () => {
          if (remove(crowd, held)) forgetIfEmpty(crowd)
        },
      }
      crowd.held.add(held)
      crowd.bytes += size
      total++
      bytes += size
      if (crowd.held.size === 1) tell(crowd)
      return { leave: () => held.leave() }
    },
    settle(routes) {
      if (crowds.size === 0) return
      const asleep = new Set(routes.flatMap(({ state, serviceId }) => (state === 'asleep' ? [serviceId] : [])))
      for (const crowd of [...crowds.values()]) {
        crowd.isOpen = !asleep.has(crowd.serviceId)
        if (crowd.isOpen) goOn(crowd)
        else if (isWaiting(crowd)) tell(crowd)
      }
    },
    listen(listener) {
      listeners.add(listener)
      for (const crowd of crowds.values()) if (isWaiting(crowd)) listener(crowd.serviceId)
      return () => void listeners.delete(listener)
    },
    end() {
      for (const crowd of [...crowds.values()]) for (const held of [...crowd.held]) refuse(crowd, held, 'waking')
    },
  }
}
