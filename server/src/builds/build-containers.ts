/**
 * The containers that a build makes on its way. The engine ends them with the build; this sees to it, also after a kill
 * -9 of ours: their ids stand in a file per build, for the engine cannot label them.
 */
import { appendFileSync, mkdirSync } from 'node:fs'
import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../lib/clock.ts'
import { type Engine, ignoreGone, isEngineError } from '../lib/docker-engine.ts'
import { newId } from '../lib/ids.ts'

const graceMs = 3000
const pollMs = 50
/** Processes and threads of a build step. The engine's build API has no word for it, so its containers are told. */
const pidsLimit = 4096
const containerId = /^[0-9a-f]{12,64}$/

export const createBuildContainers = (engine: Engine, folder: string, clock: Clock) => {
  mkdirSync(folder, { recursive: true, mode: 0o700 })

  const isThere = async (id: string): Promise<boolean> => {
    try {
      await engine.call('GET', `/containers/${id}/json`)
      return true
    } catch (error) {
      if (isEngineError(error, 404)) return false
      throw error
    }
  }

  const remove = (id: string): Promise<void> =>
    ignoreGone(engine.call('DELETE', `/containers/${id}`, { query: { force: true, v: true } }))

  /** A step that cannot be held to its limit does not run. */
  const limit = async (id: string): Promise<void> => {
    try {
      await ignoreGone(engine.call('POST', `/containers/${id}/update`, { body: { PidsLimit: pidsLimit } }))
    } catch {
      await remove(id)
    }
  }

  const awaitEnd = async (id: string): Promise<void> => {
    const start = clock.monotonicMs()
    while (await isThere(id)) {
      if (clock.monotonicMs() - start > graceMs) return remove(id)
      await clock.sleep(pollMs)
    }
  }

  return {
    /** For one build: `add` what it starts; `end` returns when all of them are gone. */
    open() {
      const file = join(folder, newId())
      const ids: string[] = []
      const limits: Promise<void>[] = []
      return {
        add(id: string): void {
          if (!containerId.test(id)) return
          ids.push(id)
          appendFileSync(file, `${id}\n`)
          limits.push(limit(id))
        },
        async end(): Promise<void> {
          await Promise.allSettled(limits)
          await Promise.all(ids.slice(-2).map(awaitEnd))
          await rm(file, { force: true })
        },
      }
    },
    /** Removes what builds of a killed process left. */
    async sweep(): Promise<void> {
      for (const name of await readdir(folder)) {
        const text = await readFile(join(folder, name), 'utf8')
        for (const id of text.split('\n')) if (containerId.test(id)) await remove(id)
        await rm(join(folder, name))
      }
    },
  }
}

export type BuildContainers = ReturnType<typeof createBuildContainers>
