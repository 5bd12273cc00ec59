/**
 * The descriptors of a process, divided among their parties: organizations, and clients whose requests have not named
 * a service yet. While there are enough, each party gets as many as it needs, at the cost of two additions for a
 * connection. When there are no more, the party with the most gives up one for each new one.
 *
 * Promises: a connection of a party that has less than another one is neither refused nor ended because of the others.
 * Does not know: what a connection is for.
 */

export interface Holder {
  /** Nothing is in progress in it: it is closed first. */
  readonly isIdle: boolean
  /** Frees its descriptors, now or soon. */
  giveUp(): void
}

/** Its place among those of its party. */
export interface Holding {
  readonly holder: Holder
  /** How many descriptors it may take. */
  readonly weight: number
  party: string
  /** -1: it has left. */
  at: number
}

interface Party {
  holdings: Holding[]
  weight: number
}

export interface Shares {
  /** Makes room if there is none, possibly by closing the newcomer itself. */
  enter(holder: Holder, weight: number, party?: string): Holding
  move(holding: Holding, party: string): void
  /** Any number of times. */
  leave(holding: Holding): void
  /** Descriptors that are held. */
  readonly total: number
}

/** The party of connections whose requests have not named a service yet. */
const nobody = ''

/** Where every party has some idle ones, one is soon found. */
const mostTries = 8

/** `most` descriptors; `random` as `Math.random`. */
export const createShares = (most: number, random: () => number = Math.random): Shares => {
  const parties = new Map<string, Party>()
  let total = 0

  const add = (holding: Holding): void => {
    let party = parties.get(holding.party)
    if (party === undefined) {
      party = { holdings: [], weight: 0 }
      parties.set(holding.party, party)
    }
    holding.at = party.holdings.push(holding) - 1
    party.weight += holding.weight
  }
  const remove = (holding: Holding): void => {
    const party = parties.get(holding.party)!
    const last = party.holdings.pop()!
    if (last !== holding) {
      party.holdings[holding.at] = last
      last.at = holding.at
    }
    holding.at = -1
    party.weight -= holding.weight
    if (party.holdings.length === 0) parties.delete(holding.party)
  }
  const leave = (holding: Holding): void => {
    if (holding.at < 0) return
    remove(holding)
    total -= holding.weight
  }
  /** A random one, so that no client can choose it: among many that one client holds, it is one of those. */
  const choose = ({ holdings }: Party): Holding => {
    let found = holdings[0]!
    for (let tries = 0; tries < mostTries; tries++) {
      found = holdings[Math.floor(random() * holdings.length)]!
      if (found.holder.isIdle) return found
    }
    return found
  }
  const makeRoom = (): void => {
    while (total > most) {
      let largest: Party | undefined
      for (const party of parties.values()) if (party.weight > (largest?.weight ?? 0)) largest = party
      if (largest === undefined) return
      const chosen = choose(largest)
      leave(chosen)
      chosen.holder.giveUp()
    }
  }

  return {
    enter(holder, weight, party = nobody) {
      const holding: Holding = { holder, weight, party, at: -1 }
      add(holding)
      total += weight
      if (total > most) makeRoom()
      return holding
    },
    move(holding, party) {
      if (holding.party === party || holding.at < 0) return
      remove(holding)
      holding.party = party
      add(holding)
    },
    leave,
    get total() {
      return total
    },
  }
}
