/** Monitors the disks of this installation: the data directory's, and the engine's if it is on this machine. */

import { createEngine } from './lib/docker/docker-engine.ts'
import { defaultConnection } from './lib/docker/engine-connection.ts'
import { systemClock } from './lib/time/clock.ts'
import { createDisk, type Disk, type DiskParts } from './limits/disk.ts'
import { listedImages } from './limits/image-use.ts'
import type { Settings } from './settings.ts'
import type { WorkParts } from './work/loop.ts'

export const watchDisk = (
  { dataDir: data, dockerHost, limits, diskReserveMb }: Settings,
  { log, work }: Omit<WorkParts, 'clock'>,
  hasEngine: boolean,
): Disk => {
  const common = { diskGb: limits.diskGb, reserveMb: diskReserveMb, clock: systemClock, log, work }
  if (!hasEngine) return createDisk({ ...common, images: null, folders: async () => ({ data }) })
  const connection = defaultConnection(dockerHost)
  const engine = createEngine(connection)
  const isLocal = connection.kind === 'local'
  let root: string | undefined
  const folders: DiskParts['folders'] = async () => {
    if (isLocal && root === undefined)
      root = await engine.call<{ DockerRootDir?: string }>('GET', '/info').then(
        ({ DockerRootDir }) => DockerRootDir,
        () => undefined,
      )
    return root === undefined ? { data } : { data, engine: root }
  }
  const images: DiskParts['images'] = (signal) =>
    engine.call('GET', '/images/json', { query: { all: true }, signal, keep: listedImages })
  const disk = createDisk({ ...common, images, folders })
  return {
    ...disk,
    async close() {
      await disk.close()
      await engine.close()
    },
  }
}
