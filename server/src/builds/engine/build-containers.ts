/**
 * The containers, volumes and network that a build creates on the engine, and its files on this machine. Ensures their
 * removal, even after our process is killed: their names are written to a file per build before they are created, and
 * names show the kind. Labels are not used, because the image would inherit them.
 */
import { appendFileSync, mkdirSync } from 'node:fs'
import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { type Engine, ignoreGone, orNull } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import type { Clock } from '../../lib/time/clock.ts'

const graceMs = 3000
const pollMs = 50
const containerId = /^[0-9a-f]{12,64}$/
const fileSuffix = '.download'
const ownName = /^slipway-build-[0-9a-f-]{36}$/

export interface BuildLeftovers {
  name(kind: 'container' | 'volume' | 'network'): string
  file(): string
  /** A container that the engine created and removes by itself. */
  add(id: string): void
  removeContainer(name: string): Promise<void>
  /** Call it once no container uses the volume. */
  removeVolume(name: string): Promise<void>
  end(): Promise<void>
}

export const createBuildContainers = (engine: Engine, folder: string, clock: Clock) => {
  mkdirSync(folder, { recursive: true, mode: 0o700 })

  const isThere = async (id: string): Promise<boolean> =>
    (await orNull(engine.call<object>('GET', `/containers/${id}/json`))) !== null

  const remove = (id: string): Promise<void> =>
    ignoreGone(engine.call('DELETE', `/containers/${id}`, { query: { force: true, v: true } }))

  const removeNetwork = (name: string): Promise<void> => ignoreGone(engine.call('DELETE', `/networks/${name}`))

  const removeVolume = (name: string): Promise<void> => ignoreGone(engine.call('DELETE', `/volumes/${name}`))

  const awaitEnd = async (id: string): Promise<void> => {
    const start = clock.monotonicMs()
    while (await isThere(id)) {
      if (clock.monotonicMs() - start > graceMs) return remove(id)
      await clock.sleep(pollMs)
    }
  }

  return {
    open(): BuildLeftovers {
      const file = join(folder, newId())
      const ids: string[] = []
      const files: string[] = []
      const named = { container: new Set<string>(), volume: new Set<string>(), network: new Set<string>() }
      return {
        name(kind) {
          const name = `slipway-build-${newId()}`
          appendFileSync(file, `${kind} ${name}\n`)
          named[kind].add(name)
          return name
        },
        file() {
          const path = join(folder, `${newId()}${fileSuffix}`)
          files.push(path)
          return path
        },
        add(id) {
          if (!containerId.test(id)) return
          ids.push(id)
          appendFileSync(file, `container ${id}\n`)
        },
        async removeContainer(name) {
          await remove(name)
          named.container.delete(name)
        },
        async removeVolume(name) {
          await removeVolume(name)
          named.volume.delete(name)
        },
        async end() {
          await Promise.all([...named.container].map(remove))
          await Promise.all([...named.volume].map(removeVolume))
          await Promise.all([...named.network].map(removeNetwork))
          await Promise.all(ids.slice(-2).map(awaitEnd))
          for (const path of [...files, file]) await rm(path, { force: true })
        },
      }
    },
    async sweep(): Promise<void> {
      for (const name of await readdir(folder)) {
        if (name.endsWith(fileSuffix)) {
          await rm(join(folder, name), { force: true })
          continue
        }
        const lines = (await readFile(join(folder, name), 'utf8')).split('\n').map((line) => line.split(' '))
        const of = (kind: string) => lines.flatMap(([word, value = '']) => (word === kind ? [value] : []))
        for (const id of of('container')) if (containerId.test(id) || ownName.test(id)) await remove(id)
        for (const volume of of('volume')) if (ownName.test(volume)) await removeVolume(volume)
        for (const network of of('network')) if (ownName.test(network)) await removeNetwork(network)
        await rm(join(folder, name))
      }
    },
  }
}

export type BuildContainers = ReturnType<typeof createBuildContainers>
