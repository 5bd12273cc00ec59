/** The table in force. A change is on disk before it is in force, and in force in one tick. */
import type { Route } from './router.ts'
import { buildTable } from './table.ts'
import type { Choice, Upstreams } from './upstreams.ts'

export interface Entry extends Choice {
  readonly route: Route
}

export interface LiveTable {
  /** By normalized host. */
  find(host: string): Entry | undefined
  routes(): readonly Route[]
  /** Rejects, with nothing changed, when `edit` throws or the table cannot be saved. */
  change(edit: (routes: readonly Route[]) => readonly Route[]): Promise<void>
}

interface Change {
  edit(routes: readonly Route[]): readonly Route[]
  resolve(): void
  reject(error: unknown): void
}

export const createLiveTable = (
  initial: readonly Route[],
  upstreams: Upstreams,
  save: (routes: readonly Route[]) => Promise<void>,
): LiveTable => {
  let routes: readonly Route[] = []
  let entries = new Map<string, Entry>()
  const waiting: Change[] = []
  let saving = false

  const putInForce = (next: readonly Route[]): void => {
    const made = new Map<string, Entry>()
    for (const [host, route] of buildTable(next).byHost)
      made.set(host, { route, upstreams: route.targets.map(upstreams.of), next: 0 })
    routes = next
    entries = made
    upstreams.retain(next.flatMap((route) => route.targets))
  }

  const applyAll = (changes: Change[]): { next: readonly Route[]; applied: Change[] } => {
    let next = routes
    const applied = changes.filter((change) => {
      try {
        next = change.edit(next)
        return true
      } catch (error) {
        change.reject(error)
        return false
      }
    })
    return { next, applied }
  }

  // Changes that arrive while the disk is busy share the next write.
  const saveWaiting = async (): Promise<void> => {
    saving = true
    while (waiting.length > 0) {
      const { next, applied } = applyAll(waiting.splice(0))
      if (applied.length === 0) continue
      try {
        await save(next)
        putInForce(next)
        for (const change of applied) change.resolve()
      } catch (error) {
        for (const change of applied) change.reject(error)
      }
    }
    saving = false
  }

  putInForce(initial)
  return {
    find: (host) => entries.get(host),
    routes: () => routes,
    change(edit) {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      waiting.push({ edit, resolve, reject })
      if (!saving) void saveWaiting()
      return promise
    },
  }
}
